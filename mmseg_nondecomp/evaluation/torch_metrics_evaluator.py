"""Evaluator of MMEngine for any torchmetrics metric."""

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mmengine.dist import all_gather_object, get_dist_info
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.logging import print_log
from mmengine.structures import BaseDataElement

from mmseg_nondecomp.evaluation._report import Report
from mmseg_nondecomp.registry import EVALUATOR, METRICS

if TYPE_CHECKING:
    from mmseg_nondecomp.evaluation._batch import Batch


@METRICS.register_module()
class TorchMetricsEvaluator(BaseMetric):
    r"""Evaluator that computes torchmetrics metrics on the predictions of a validation or test loop.

    The metrics are updated batch by batch on the device of the predictions; only their states are stored. Values are
    shares from 0 to 1, as in torchmetrics, not percentages. A scalar goes to the log and the visualisers under the name
    of its metric, a value for each class (``average=None``) as ``<name>.<class>`` and as a table in the log, an entry
    of a dict as ``<name>.<key>``; ``save_best`` takes these names.

    It takes the data samples of MMSegmentation, MMPretrain and MMDetection. The class of a metric determines its input:

    - decided classes (``'labels'``): accuracies, F-scores, Jaccard indices, all that counts decisions;
    - probabilities (``'scores'``): curves, AUROC, average precision, calibration, the soft Jaccard indices, ``top_k``
      above 1. For MMSegmentation these are the logits at the size of the label map, after softmax;
    - ``'logits'``: `DirectAveragePrecision` and `SmoothTopKAccuracy`. MMPretrain returns probabilities, whose
      logarithms are logits up to a constant;
    - boxes, labels and scores (``'instances'``): ``MeanAveragePrecision``, for MMDetection.

    For MMDetection, metrics of two classes that take scores (``BinaryCalibrationError``, ``BinaryAveragePrecision``)
    take the score of each box and whether the box is right: matched, with an overlap of at least 0.5, with an object of
    its class that no box of a higher score is matched with. Objects without a box are not included.

    Metrics of one class take the scores of class 1, [N, \*]; metrics with ``num_labels`` those of all classes and a
    target of zeros and ones. A metric that stores scores, such as a curve without ``thresholds``, stores them here as
    well.

    Metrics of torchmetrics that depend only on the confusion matrix (accuracies, F-scores, Jaccard indices and others)
    share one after their first batch. Their settings determine which metrics share, not, as in a ``MetricCollection``,
    the equality of states after the first batch. From then on torchmetrics does not validate inputs, for which it sorts
    all pixels; labels are checked here for each batch.

    **Several processes.** MMEngine's samplers give process :math:`r` of :math:`W` the images :math:`r, r + W, \dots` of
    the data set and repeat some at the end so that all have the same number. The :math:`k`-th image of a process is
    left out if :math:`kW + r` is not below the size of the data set, as in MMEngine. This is known at the end only, so
    the last batch of a process is held back. All states are then gathered once.

    Args:
        metrics: Metrics by name. Each is a config, whose ``type`` is the full name of a class or the bare name of one
            in `mmseg_nondecomp.metrics` and which may hold further ones, or a metric, or a ``MetricCollection``. Or a
            ``MetricCollection`` alone.
        inputs: The kind of input of a metric, by its name, where its class does not determine it or another is wanted.
        prefix: Prefix of all names, followed by a slash.

    Example:
        The values of MMSegmentation's ``IoUMetric``, with the accuracy of each class. A class that is predicted but
        nowhere true has accuracy 0 in torchmetrics; ``IoUMetric`` leaves it out of the mean::

            count = dict(num_classes=19, ignore_index=255)
            accuracy = dict(type='torchmetrics.classification.MulticlassAccuracy', **count)
            iou = dict(type='torchmetrics.classification.MulticlassJaccardIndex', **count)
            val_evaluator = dict(type='TorchMetricsEvaluator', metrics=dict(
                mIoU=iou, mAcc=accuracy, aAcc=dict(accuracy, average='micro'), Acc=dict(accuracy, average=None)))
    """

    default_prefix = ''

    def __init__(self, metrics: Any, inputs: Mapping[str, str] | None = None, prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        # torchmetrics takes a second to import; not every process that imports this package needs it.
        from mmseg_nondecomp.evaluation._metric_set import MetricSet

        self.metric_set = MetricSet(metrics, inputs)
        self.n_samples = 0
        self.held_back: list[Batch] = []

    @property
    def dataset_meta(self) -> dict | None:
        """Return the meta information of the data set."""
        return self._dataset_meta

    @dataset_meta.setter
    def dataset_meta(self, dataset_meta: dict | None) -> None:
        self._dataset_meta = dataset_meta
        if self._classes:
            self.metric_set.check_number_of_classes(len(self._classes))

    def process(self, data_batch: Any, data_samples: Sequence[Any]) -> None:
        """Update the metrics with a batch of predictions."""
        from mmseg_nondecomp.evaluation._predictions import batches_of

        samples = [sample.to_dict() if isinstance(sample, BaseDataElement) else sample for sample in data_samples]
        batches = batches_of(samples, set(self.metric_set.specs.values()))
        _, world_size = get_dist_info()
        if world_size > 1:
            if self.n_samples == 0 and batches:
                copy.deepcopy(self.metric_set).update(batches[0])  # an error is raised at the first batch
            batches, self.held_back = self.held_back, batches
        for batch in batches:
            self.metric_set.update(batch)
        self.n_samples += len(samples)

    def evaluate(self, size: int) -> dict:
        """Return the values over all ``size`` images, the same on all processes, and reset the metrics."""
        rank, world_size = get_dist_info()
        n_repeated = max(0, self.n_samples - len(range(rank, size, world_size)))
        n_counted_twice = self._add_held_back(n_repeated)
        try:
            own: dict[str, Any] = {'n': self.n_samples, 'counted twice': n_counted_twice}
            if world_size > 1:
                own['states'] = self.metric_set.state()
            values = self.compute_metrics(all_gather_object(own))
        finally:
            self.n_samples = 0
            self.metric_set.reset()
        return {f'{self.prefix}/{name}': value for name, value in values.items()} if self.prefix else values

    def compute_metrics(self, results: list) -> dict[str, Any]:
        """Compute the values from the results of all processes, one each; the same on each of them."""
        if any(result['counted twice'] for result in results):
            raise RuntimeError(
                f'{type(self).__name__} was given {[result["n"] for result in results]} images by the processes, more '
                "than can be repetitions at the end of a data set. Use MMEngine's DefaultSampler."
            )
        if not any(result['n'] for result in results):
            print_log(f'{type(self).__name__} was given no predictions.', 'current', logging.WARNING)
            return {}
        if len(results) > 1:
            self.metric_set.merge([result['states'] for result in results])
        report = Report(self.metric_set.compute(), self._classes)
        if report.columns:
            print_log(f'per class results:\n{report.table()}', 'current')
        return report.numbers

    @property
    def _classes(self) -> Sequence[str] | None:
        return (self._dataset_meta or {}).get('classes')

    def _add_held_back(self, n_repeated: int) -> int:
        """Update the metrics with the last batch without repetitions; return how many were in earlier batches."""
        held_back, self.held_back = self.held_back, []
        n_counting = sum(batch.size for batch in held_back) - n_repeated
        for batch in held_back:
            n_of_batch = min(batch.size, max(n_counting, 0))
            n_counting -= batch.size
            if n_of_batch:
                self.metric_set.update(batch.first(n_of_batch))
        return max(0, n_repeated - sum(batch.size for batch in held_back))


@EVALUATOR.register_module(name='TorchMetricsEvaluator')
def _evaluator(**settings: Any) -> Evaluator:
    """Build an evaluator by the same name, for MMEngine takes a config with `metrics` as that of a whole evaluator."""
    return Evaluator(TorchMetricsEvaluator(**settings))

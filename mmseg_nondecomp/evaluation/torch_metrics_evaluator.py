"""Any torchmetrics metric as an evaluator of MMEngine."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mmengine.dist import all_gather_object, get_dist_info
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.logging import print_log
from mmengine.structures import BaseDataElement

from mmseg_nondecomp.evaluation.report import Report
from mmseg_nondecomp.registry import EVALUATOR, METRICS

if TYPE_CHECKING:
    from mmseg_nondecomp.evaluation.batch import Batch


@METRICS.register_module()
class TorchMetricsEvaluator(BaseMetric):
    r"""Computes torchmetrics metrics on the predictions of a validation or test loop.

    The metrics are updated batch by batch on the device of the predictions, and nothing is kept of an image but what
    the metrics keep. Their values are shares, as torchmetrics has them, not percentages. A scalar goes to the log and
    the visualisers under the name of its metric, a value for each class (``average=None``) as ``<name>.<class>`` and as
    a table in the log, an entry of a dict as ``<name>.<key>``; ``save_best`` takes these names.

    It is for the data samples of MMSegmentation, MMPretrain and MMDetection. What a metric is given follows from its
    class:

    - decided classes (``'labels'``): accuracies, F-scores, Jaccard indices, all that counts decisions;
    - probabilities (``'scores'``): curves, AUROC, average precision, calibration, the soft Jaccard indices, ``top_k``
      above 1. Of MMSegmentation these are the logits at the size of the label map, after softmax;
    - ``'logits'``: `DirectAveragePrecision` and `SmoothTopKAccuracy`. MMPretrain hands over probabilities, whose
      logarithms are logits up to a constant;
    - boxes, labels and scores (``'instances'``): ``MeanAveragePrecision``, for MMDetection.

    Of MMDetection, metrics of two classes that take scores (``BinaryCalibrationError``, ``BinaryAveragePrecision``) are
    given the score of each box and whether it is right: whether it has found an object of its class, with an overlap of
    at least 0.5, that none of a higher score has found. Objects that were not found are not among them.

    Metrics of one class get the scores of class 1, [N, \*]; metrics with ``num_labels`` those of all and a target of
    zeros and ones. A metric that keeps scores, a curve without ``thresholds`` say, keeps them here as well.

    Metrics of torchmetrics that only count which class was decided where which is true (accuracies, F-scores, Jaccard
    indices and others) share one count after their first batch. Settings decide which metrics share, not, as in a
    ``MetricCollection``, whether states agree after the first batch. From then on, torchmetrics does not validate
    inputs, for which it sorts all pixels; whether labels are classes is checked here for each batch.

    **Several processes.** MMEngine's samplers give process :math:`r` of :math:`W` the images :math:`r, r + W, \dots` of
    the data set and repeat some at the end so that all have the same number; the :math:`k`-th image of a process is one
    of them if :math:`kW + r` is not below the size of the data set, which is the rule by which MMEngine drops results.
    The size is not known before the end, but only what comes last can be a repetition: the last batch of a process is
    held back until then. At the end every process takes part in one gathering of all states, however many batches it
    has had, and computes the values from them by the reductions of the metrics.

    Args:
        metrics: Metrics by name. Each is a config, whose ``type`` is the full name of a class or the bare name of one
            in `mmseg_nondecomp.metrics` and which may hold further ones, or a metric, or a ``MetricCollection``. Or a
            ``MetricCollection`` alone.
        inputs: What a metric is given, by its name, where its class does not say so or something else is wanted.
        prefix: Goes before all names, with a slash.

    Raises:
        TypeError: If something is no metric of torchmetrics.
        ValueError: If a type is not known, a metric does not fit its input or the classes, or names are the same.

    Example:
        What MMSegmentation's ``IoUMetric`` reports, with the accuracy of each class. A class that is decided for but
        nowhere true has accuracy 0 in torchmetrics, and is left out of the mean by ``IoUMetric``::

            count = dict(num_classes=19, ignore_index=255)
            val_evaluator = dict(
                type='TorchMetricsEvaluator',
                metrics=dict(
                    mIoU=dict(type='torchmetrics.classification.MulticlassJaccardIndex', **count),
                    mAcc=dict(type='torchmetrics.classification.MulticlassAccuracy', **count),
                    aAcc=dict(type='torchmetrics.classification.MulticlassAccuracy', average='micro', **count),
                    Acc=dict(type='torchmetrics.classification.MulticlassAccuracy', average=None, **count),
                ),
            )
    """

    default_prefix = ''

    def __init__(self, metrics: Any, inputs: Mapping[str, str] | None = None, prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        # torchmetrics takes a second to import, and not every process that imports this package evaluates.
        from mmseg_nondecomp.evaluation.metric_set import MetricSet

        self.metric_set = MetricSet(metrics, inputs)
        self.n_samples = 0
        self.held_back: list[Batch] = []

    @property
    def dataset_meta(self) -> dict | None:
        """What the data set says of itself."""
        return self._dataset_meta

    @dataset_meta.setter
    def dataset_meta(self, dataset_meta: dict | None) -> None:
        self._dataset_meta = dataset_meta
        if self._classes:
            self.metric_set.check_number_of_classes(len(self._classes))

    def process(self, data_batch: Any, data_samples: Sequence[Any]) -> None:
        """Update the metrics with a batch of predictions."""
        from mmseg_nondecomp.evaluation.predictions import batches_of

        samples = [sample.to_dict() if isinstance(sample, BaseDataElement) else sample for sample in data_samples]
        batches = batches_of(samples, set(self.metric_set.needs.values()))
        _, world_size = get_dist_info()
        if world_size > 1:
            if self.n_samples == 0 and batches:
                copy.deepcopy(self.metric_set).update(batches[0])  # what is wrong is wrong from the first batch on
            batches, self.held_back = self.held_back, batches
        for batch in batches:
            self.metric_set.update(batch)
        self.n_samples += len(samples)

    def evaluate(self, size: int) -> dict:
        """The values over the whole data set, the same on all processes; then forget them.

        Args:
            size: The number of images of the data set.
        """
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
        """The values from what all processes have counted, one result a process; the same on each of them."""
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
        """Update the metrics with the last batch, without repetitions; how many of these were in batches before it."""
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
    """The same by the same name where MMEngine looks for it: it takes configs with `metrics` for whole evaluators."""
    return Evaluator(TorchMetricsEvaluator(**settings))

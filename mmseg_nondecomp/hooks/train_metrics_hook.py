"""Torchmetrics metrics of the training predictions."""

from collections.abc import Mapping
from typing import Any

from mmengine.dist import all_gather_object, get_dist_info
from mmengine.runner import Runner
from torch import Tensor

from mmseg_nondecomp.evaluation._report import Report
from mmseg_nondecomp.hooks._loss_inputs import LossInputsHook
from mmseg_nondecomp.registry import HOOKS


@HOOKS.register_module()
class TrainMetricsHook(LossInputsHook):
    r"""Torchmetrics metrics on the predictions of the training itself.

    The logits are those that a head passes to its loss: there is no second forward pass. Every ``interval`` iterations
    the values over the batches since the last report, of all processes, go to MMEngine's log and visualisers as
    ``train/<name>``, as shares from 0 to 1 and with the names of `TorchMetricsEvaluator`; then the metrics are reset.
    They are values of the images as they were drawn and augmented, by a network in training mode. The counts since the
    last report are not saved with a checkpoint.

    It is for heads of MMSegmentation and MMPretrain that call their ``loss_decode`` or ``loss_module`` with logits and
    class labels. Ignored labels are passed to the metrics, which should have the same ``ignore_index`` as the head.

    Args:
        metrics: Metrics by name or a collection, as for `TorchMetricsEvaluator`.
        inputs: The kind of input of a metric, by its name, where its class does not determine it or another is wanted.
        interval: Number of iterations between two reports.
        head: The head in the model, with dots if it is a part of another module; ``'head'`` in MMPretrain. Of a cascade
            it is the last.
        loss: The index of the loss whose logits decide, if the losses of the head have different logits: 1 for PIDNet.

    Example:
        ::

            iou = dict(type='torchmetrics.classification.MulticlassJaccardIndex', num_classes=19, ignore_index=255)
            custom_hooks = [dict(type='TrainMetricsHook', metrics=dict(mIoU=iou))]
    """

    def __init__(
        self,
        metrics: Any,
        inputs: Mapping[str, str] | None = None,
        interval: int = 50,
        head: str = 'decode_head',
        loss: int | None = None,
    ) -> None:
        super().__init__(interval, head, loss)
        from mmseg_nondecomp.evaluation._metric_set import MetricSet

        self.metric_set = MetricSet(metrics, inputs)
        self.specs = set(self.metric_set.specs.values())
        for spec in self.specs:
            if spec.kind == 'instances' or spec.form == 'multilabel':
                raise ValueError(
                    'TrainMetricsHook has logits and one class for each item. Found metrics of '
                    f'{"boxes" if spec.kind == "instances" else "several labels an item"}.'
                )

    def before_train(self, runner: Runner) -> None:
        """Register forward hooks on the losses of the head, and reset the metrics."""
        super().before_train(runner)
        self.metric_set.check_number_of_classes(self.n_classes)
        self.metric_set.reset()

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        """Log the values and reset the metrics every ``interval`` iterations."""
        self.check_called()
        if not self.every_n_train_iters(runner, self.interval):
            return
        _, world_size = get_dist_info()
        if world_size > 1:
            self.metric_set.merge(all_gather_object(self.metric_set.state()))
        for name, value in Report(self.metric_set.compute(), self.class_names).numbers.items():
            if isinstance(value, (int, float)):
                # MMEngine removes the first `train/` of a name; validation has the same names.
                runner.message_hub.update_scalar(f'train/train/{name}', value)
        self.metric_set.reset()

    def update(self, logits: Tensor, target: Tensor, ignore_index: int | None) -> None:
        """Update the metrics with the inputs of the loss."""
        from mmseg_nondecomp.evaluation._batch import Scores, batch_of_classes

        if target.is_floating_point() or target.shape != (len(logits), *logits.shape[2:]):
            raise ValueError(
                f'TrainMetricsHook needs logits [N, C, *] and class labels [N, *] where `{self.head_name}` calls its '
                f'loss. Found {tuple(logits.shape)} and {target.dtype} {tuple(target.shape)}; images that are mixed '
                '(Mixup, CutMix) have no class.'
            )
        scores = Scores(logits, are_probabilities=False)
        self.metric_set.update(batch_of_classes(self.specs, self.decided(logits), scores, target.long()))

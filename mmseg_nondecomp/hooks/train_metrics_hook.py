"""Any torchmetrics metric on the predictions of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmengine.dist import all_gather_object, get_dist_info
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor

from mmseg_nondecomp.evaluation.report import Report
from mmseg_nondecomp.hooks.loss_listener import LossListener, check_listening, class_names
from mmseg_nondecomp.registry import HOOKS


@HOOKS.register_module()
class TrainMetricsHook(Hook):
    r"""Computes torchmetrics metrics on the predictions that training makes anyway.

    The logits are those that a head hands to its loss, so there is no second forward pass. Every ``interval``
    iterations the values over the batches since the last time, of all processes, go to MMEngine's log and visualisers
    as ``train/<name>``, as shares from 0 to 1 and as `TorchMetricsEvaluator` names them; then counting starts anew.
    They tell of images as they were drawn and augmented, by a network in training mode. What was counted since the last
    report is not saved with a checkpoint.

    It is for heads of MMSegmentation and MMPretrain that call their ``loss_decode`` or ``loss_module`` with logits and
    class labels. Labels that the head ignores are given to the metrics as they are, which should have the same
    ``ignore_index``.

    Args:
        metrics: Metrics by name or a collection, as for `TorchMetricsEvaluator`.
        inputs: What a metric is given, by its name, where its class does not say so or something else is wanted.
        interval: Iterations from one report to the next.
        head: The head in the model, with dots where it is a part of another; ``'head'`` in MMPretrain. Of a cascade it
            is the last.
        loss: Which of the head's losses is handed the logits that decide, where they are not all handed the same:
            1 for PIDNet.

    Raises:
        TypeError: If something is no metric of torchmetrics.
        ValueError: If an argument is out of its range, or the model has no such head.

    Example:
        ::

            custom_hooks = [
                dict(
                    type='TrainMetricsHook',
                    metrics=dict(
                        mIoU=dict(
                            type='torchmetrics.classification.MulticlassJaccardIndex',
                            num_classes=19,
                            ignore_index=255,
                        )
                    ),
                )
            ]
    """

    priority = 'NORMAL'

    def __init__(
        self,
        metrics: Any,
        inputs: Mapping[str, str] | None = None,
        interval: int = 50,
        head: str = 'decode_head',
        loss: int | None = None,
    ) -> None:
        check_listening(interval, loss)
        from mmseg_nondecomp.evaluation.metric_set import MetricSet

        self.metric_set = MetricSet(metrics, inputs)
        self.needs = set(self.metric_set.needs.values())
        for need in self.needs:
            if need.kind == 'instances' or need.form == 'multilabel':
                raise ValueError(
                    'TrainMetricsHook has logits and one class for each item. Found metrics of '
                    f'{"boxes" if need.kind == "instances" else "several labels an item"}.'
                )
        self.interval = interval
        self.head_name = head
        self.loss = loss

    def before_train(self, runner: Runner) -> None:
        """Listen to the head's losses."""
        self.listener = LossListener(runner.model, self.head_name, self.loss, self._update, type(self).__name__)
        n_classes = max(self.listener.head.num_classes, 2)
        self.metric_set.check_number_of_classes(n_classes)
        self.class_names = class_names(runner.train_dataloader.dataset, n_classes)
        self.metric_set.reset()
        self._heard = False

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        """Every so often, tell the values."""
        if not self._heard:
            raise self.listener.heard_nothing()
        self._heard = False
        if not self.every_n_train_iters(runner, self.interval):
            return
        _, world_size = get_dist_info()
        if world_size > 1:
            self.metric_set.merge(all_gather_object(self.metric_set.state()))
        for name, value in Report(self.metric_set.compute(), self.class_names).numbers.items():
            if isinstance(value, (int, float)):
                # MMEngine takes the first `train/` off before it shows a name; validation has the same names.
                runner.message_hub.update_scalar(f'train/train/{name}', value)
        self.metric_set.reset()

    def after_train(self, runner: Runner) -> None:
        """Listen no more."""
        self.listener.stop()

    def _update(self, logits: Tensor, target: Tensor, ignore_index: int | None) -> None:
        """Update the metrics with what the head hands to its loss."""
        from mmseg_nondecomp.evaluation.batch import batch_of_classes
        from mmseg_nondecomp.evaluation.scores import Scores

        if target.is_floating_point() or target.shape != (len(logits), *logits.shape[2:]):
            raise ValueError(
                f'TrainMetricsHook needs logits [N, C, *] and class labels [N, *] where `{self.head_name}` calls its '
                f'loss. Found {tuple(logits.shape)} and {target.dtype} {tuple(target.shape)}; images that are mixed '
                '(Mixup, CutMix) have no class.'
            )
        scores = Scores(logits, are_probabilities=False)
        self.metric_set.update(batch_of_classes(self.needs, self.listener.decided(logits), scores, target.long()))
        self._heard = True

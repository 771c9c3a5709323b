"""The IoU of the training predictions: in the log, and with the samplers that ask for it."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, distributed

from mmseg_nondecomp.functional.jaccard_counts import count_decisions, mean_jaccard
from mmseg_nondecomp.hooks.loss_listener import LossListener, check_listening, class_names
from mmseg_nondecomp.registry import HOOKS

KEY = 'mmseg_nondecomp/train_iou'

FORGOTTEN = 1e-6
"""Pixels; a union that has faded to less says nothing any more."""


@HOOKS.register_module()
class TrainIoUHook(Hook):
    r"""Keeps the running IoU of each class on the predictions that training makes anyway.

    Each iteration the intersections and unions of the batch, summed over all processes, are added to those before,
    which count ``momentum`` times what they did:

    .. math:: I \leftarrow \mu I + I_\text{batch}, \quad U \leftarrow \mu U + U_\text{batch}, \quad
       \mathrm{IoU}_c = I_c / U_c.

    The logits are those that a decode head hands to its loss, so there is no second forward pass. Every ``interval``
    iterations ``train/mIoU`` and, of each class that was seen, ``train/IoU.<class>`` go to MMEngine's log and
    visualisers under these names, as shares from 0 to 1, and the IoU to a sampler of the training that takes it
    (`IoUAdaptiveSampler`). The counts and the state of the sampler are saved with each checkpoint and restored by
    ``resume``.

    It is the IoU of the batches as they were drawn and augmented: with a sampler that prefers rare classes it says more
    of these than the IoU of the data set does.

    Args:
        interval: Iterations from one report to the next.
        momentum: What of the counts remains after an iteration, at least 0 and below 1.
        per_class: Whether the IoU of each class is logged; with many classes the lines become long.
        head: The decode head in the model, with dots where it is a part of another. Of a cascade it is the last.
        loss: Which of the head's losses is handed the logits that decide, where they are not all handed the same:
            1 for PIDNet.

    Raises:
        ValueError: If a number is out of its range, or the model has no such head.
    """

    priority = 'NORMAL'

    def __init__(
        self,
        interval: int = 50,
        momentum: float = 0.99,
        per_class: bool = True,
        head: str = 'decode_head',
        loss: int | None = None,
    ) -> None:
        check_listening(interval, loss)
        if not 0 <= momentum < 1:
            raise ValueError(f'Parameter `momentum` should be at least 0 and below 1. Found {momentum!r}.')
        self.interval = interval
        self.momentum = momentum
        self.per_class = per_class
        self.head_name = head
        self.loss = loss

    def before_run(self, runner: Runner) -> None:
        """Forget what another training in this process left in the message hub; resuming fills it after this."""
        runner.message_hub.pop_info(KEY)

    def before_train(self, runner: Runner) -> None:
        """Listen to the head's losses, and go on from what was resumed."""
        self.listener = LossListener(runner.model, self.head_name, self.loss, self._count, type(self).__name__)
        self.n_classes = max(self.listener.head.num_classes, 2)
        self.samplers = _samplers_that_take_iou(runner.train_dataloader, self.n_classes)
        self.class_names = class_names(runner.train_dataloader.dataset, self.n_classes)
        self.batch_counts: Tensor | None = None
        self.counts = torch.zeros(2, self.n_classes, dtype=torch.float64)
        state = runner.message_hub.get_info(KEY)
        if state is not None:
            self._load_state_dict(state)

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        """Add the counts of the iteration; every so often, tell them."""
        if self.batch_counts is None:
            raise self.listener.heard_nothing()
        counts, self.batch_counts = self.batch_counts.double(), None
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(counts)
        counts += self.momentum * self.counts.to(counts.device)
        self.counts = counts.masked_fill(counts[1] < FORGOTTEN, 0)
        if self.every_n_train_iters(runner, self.interval):
            self._report(runner)
        runner.message_hub.update_info(KEY, self._state_dict())

    def after_train(self, runner: Runner) -> None:
        """Listen no more."""
        self.listener.stop()

    def _count(self, logits: Tensor, target: Tensor, ignore_index: int | None) -> None:
        """Count what a call of the loss decides."""
        fits = logits.dim() > 2 and target.shape == (len(logits), *logits.shape[2:]) and not target.is_floating_point()
        if not fits or logits.shape[1] not in (1, self.n_classes):
            raise ValueError(
                f'TrainIoUHook needs logits [N, {self.n_classes}, H, W] and labels [N, H, W] where `{self.head_name}` '
                f'calls its loss. Found {tuple(logits.shape)} and {target.dtype} {tuple(target.shape)}.'
            )
        decided = self.listener.decided(logits)
        if ignore_index is not None and 0 <= ignore_index < self.n_classes:  # no other label is counted
            target = target.masked_fill(target == ignore_index, -1)
        counts = count_decisions(decided, target, self.n_classes)
        self.batch_counts = counts if self.batch_counts is None else self.batch_counts + counts

    def _report(self, runner: Runner) -> None:
        counts = self.counts.cpu()
        iou = counts[0] / counts[1]
        # MMEngine takes the first `train/` off before it shows a name; validation has a `mIoU` of its own.
        runner.message_hub.update_scalar('train/train/mIoU', mean_jaccard(counts))
        if self.per_class:
            for name, value in zip(self.class_names, iou.tolist(), strict=True):
                if value == value:
                    runner.message_hub.update_scalar(f'train/train/IoU.{name}', value)
        for sampler in self.samplers:
            sampler.set_iou(iou)

    def _state_dict(self) -> dict[str, Any]:
        return {'counts': self.counts, 'samplers': [sampler.state_dict() for sampler in self.samplers]}

    def _load_state_dict(self, state: dict[str, Any]) -> None:
        found = tuple(state['counts'].shape)
        if found != self.counts.shape:
            raise ValueError(
                f'A training of {self.n_classes} classes should be resumed. Found counts of shape {found} of '
                'intersections and unions by class.'
            )
        self.counts = state['counts']
        if len(state['samplers']) != len(self.samplers):
            warnings.warn(
                f'The training that is resumed had {len(state["samplers"])} samplers that follow the IoU, and has '
                f'{len(self.samplers)} now. They start anew.',
                stacklevel=2,
            )
            return
        for sampler, sampler_state in zip(self.samplers, state['samplers'], strict=True):
            sampler.load_state_dict(sampler_state)


def _samplers_that_take_iou(dataloader: Any, n_classes: int) -> list[Any]:
    batches = dataloader.batch_sampler
    candidates: dict[int, Any] = {id(s): s for s in (dataloader.sampler, batches, getattr(batches, 'sampler', None))}
    samplers = [sampler for sampler in candidates.values() if hasattr(sampler, 'set_iou')]
    for sampler in samplers:
        if sampler.index.n_classes != n_classes:
            raise ValueError(
                f'The data set should have as many classes as the head, {n_classes}. Found {sampler.index.n_classes}.'
            )
    return samplers

"""Running IoU of the training predictions, for the log and for samplers."""

import warnings
from typing import Any

import torch
from mmengine.runner import Runner
from torch import Tensor, distributed

from mmseg_nondecomp.functional._averaging import count_decisions, mean_jaccard
from mmseg_nondecomp.hooks._loss_inputs import LossInputsHook
from mmseg_nondecomp.registry import HOOKS

KEY = 'mmseg_nondecomp/train_iou'

NEGLIGIBLE = 1e-6  # Decayed number of pixels below which a union counts as empty


@HOOKS.register_module()
class TrainIoUHook(LossInputsHook):
    r"""Running IoU of each class on the predictions of the training itself.

    Each iteration the intersections and unions of the batch, summed over all processes, are added to the previous ones,
    which decay by ``momentum``:

    .. math:: I \leftarrow \mu I + I_\text{batch}, \quad U \leftarrow \mu U + U_\text{batch}, \quad
       \mathrm{IoU}_c = I_c / U_c.

    The logits are those that a decode head passes to its loss: there is no second forward pass. Every ``interval``
    iterations ``train/mIoU`` and, for each class with pixels, ``train/IoU.<class>`` go to MMEngine's log and
    visualisers under these names, as shares from 0 to 1. The IoU is also passed to a sampler of the training that takes
    it (`IoUAdaptiveSampler`). The counts and the state of the sampler are saved with each checkpoint and restored by
    ``resume``.

    It is the IoU of the batches as they were drawn and augmented. With a sampler that prefers rare classes, they have a
    larger weight than in the IoU of the data set.

    Args:
        interval: Number of iterations between two reports.
        momentum: Decay of the counts per iteration, at least 0 and below 1.
        per_class: Whether the IoU of each class is logged; with many classes the lines become long.
        head: The decode head in the model, with dots if it is a part of another module. Of a cascade it is the last.
        loss: The index of the loss whose logits decide, if the losses of the head have different logits: 1 for PIDNet.
    """

    def __init__(
        self,
        interval: int = 50,
        momentum: float = 0.99,
        per_class: bool = True,
        head: str = 'decode_head',
        loss: int | None = None,
    ) -> None:
        super().__init__(interval, head, loss)
        if not 0 <= momentum < 1:
            raise ValueError(f'Parameter `momentum` should be at least 0 and below 1. Found {momentum!r}.')
        self.momentum = momentum
        self.per_class = per_class

    def before_run(self, runner: Runner) -> None:
        """Delete the state of another training in this process; resuming sets it again after this."""
        runner.message_hub.pop_info(KEY)

    def before_train(self, runner: Runner) -> None:
        """Register forward hooks on the losses of the head, and load a resumed state."""
        super().before_train(runner)
        self.samplers = _iou_samplers(runner.train_dataloader, self.n_classes)
        for sampler in self.samplers:
            sampler.has_hook = True
        self.batch_counts: Tensor | int = 0
        self.counts = torch.zeros(2, self.n_classes, dtype=torch.float64)
        state = runner.message_hub.get_info(KEY)
        if state is not None:
            self._load_state_dict(state)

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        """Add the counts of the iteration; report the IoU every ``interval`` iterations."""
        self.check_called()
        counts, self.batch_counts = torch.as_tensor(self.batch_counts, dtype=torch.float64), 0
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(counts)
        counts += self.momentum * self.counts.to(counts.device)
        self.counts = counts.masked_fill(counts[1] < NEGLIGIBLE, 0)
        if self.every_n_train_iters(runner, self.interval):
            self._report(runner)
        samplers = [sampler.state_dict() for sampler in self.samplers]
        runner.message_hub.update_info(KEY, {'counts': self.counts, 'samplers': samplers})

    def update(self, logits: Tensor, target: Tensor, ignore_index: int | None) -> None:
        """Count the decisions of a call of the loss."""
        fits = logits.dim() > 2 and target.shape == (len(logits), *logits.shape[2:]) and not target.is_floating_point()
        if not fits or logits.shape[1] not in (1, self.n_classes):
            raise ValueError(
                f'TrainIoUHook needs logits [N, {self.n_classes}, H, W] and labels [N, H, W] where `{self.head_name}` '
                f'calls its loss. Found {tuple(logits.shape)} and {target.dtype} {tuple(target.shape)}.'
            )
        decided = self.decided(logits)
        if ignore_index is not None and 0 <= ignore_index < self.n_classes:  # no other label is counted
            target = target.masked_fill(target == ignore_index, -1)
        counts = count_decisions(decided, target, self.n_classes)
        self.batch_counts = self.batch_counts + counts if isinstance(self.batch_counts, Tensor) else counts

    def _report(self, runner: Runner) -> None:
        counts = self.counts.cpu()
        iou = counts[0] / counts[1]
        # MMEngine removes the first `train/` of a name; validation has a `mIoU` of its own.
        runner.message_hub.update_scalar('train/train/mIoU', mean_jaccard(counts))
        if self.per_class:
            for name, value in zip(self.class_names, iou.tolist(), strict=True):
                if value == value:
                    runner.message_hub.update_scalar(f'train/train/IoU.{name}', value)
        for sampler in self.samplers:
            sampler.set_iou(iou)

    def _load_state_dict(self, state: dict[str, Any]) -> None:
        if state['counts'].shape != self.counts.shape:
            raise ValueError(
                f'A training of {self.n_classes} classes should be resumed. Found counts of shape '
                f'{tuple(state["counts"].shape)} of intersections and unions by class.'
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


def _iou_samplers(dataloader: Any, n_classes: int) -> list[Any]:
    """Return the samplers of a data loader that take the IoU."""
    batches = dataloader.batch_sampler
    candidates: dict[int, Any] = {id(s): s for s in (dataloader.sampler, batches, getattr(batches, 'sampler', None))}
    samplers = [sampler for sampler in candidates.values() if hasattr(sampler, 'set_iou')]
    for sampler in samplers:
        if sampler.index.n_classes != n_classes:
            raise ValueError(
                f'The data set should have as many classes as the head, {n_classes}. Found {sampler.index.n_classes}.'
            )
    return samplers

"""Counts of operations and bytes of each loss, metric update and hook on a device."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from reproductions.topk_algorithms import loss_by, with_custom_backward
from torch import Tensor, nn
from torchmetrics.classification import MulticlassJaccardIndex

from benchmarks import Row, Step, lovasz, soft_iou
from benchmarks.determinism import with_determinism, without_determinism
from benchmarks.measure import n_bytes, training_step
from benchmarks.operations import Operation, operations
from benchmarks.overhead import IOU
from benchmarks.peers import Loss, difftopk_peer
from benchmarks.table import number
from benchmarks.traffic import alike, while_a_runner_trains
from mmseg_nondecomp import (
    DirectAPLoss,
    DirectZeroOneLoss,
    HardTopKLoss,
    LossMaxPooling,
    LovaszHingeLoss,
    LovaszSoftmaxLoss,
    SMeasureLoss,
    SmoothTopKLoss,
    SoftIoULoss,
)
from mmseg_nondecomp.metrics import (
    DirectAveragePrecision,
    JaccardIndexByImage,
    LovaszJaccardIndex,
    SmoothTopKAccuracy,
    SoftJaccardIndex,
)

N_IMAGES = (2, 32)
N_CLASSES, SIDE = 19, 256
N_ITEMS, N_LABELS = 256, (100, 1000, 10_000)
MEMORY = 2
UNKNOWN = 'depends on values'

LOSSES: dict[str, Callable[[], nn.Module]] = {
    'LossMaxPooling': LossMaxPooling,
    'LossMaxPooling, p = 1': partial(LossMaxPooling, p=1),
    'LovaszSoftmaxLoss': LovaszSoftmaxLoss,
    'LovaszSoftmaxLoss, sorted': partial(LovaszSoftmaxLoss, bins=None),
    'LovaszSoftmaxLoss, each image a set': partial(LovaszSoftmaxLoss, scope='image'),
    'LovaszSoftmaxLoss, memory of 2 batches': partial(LovaszSoftmaxLoss, memory=MEMORY),
    'LovaszHingeLoss': LovaszHingeLoss,
    'LovaszHingeLoss, sorted': partial(LovaszHingeLoss, bins=None),
    'LovaszHingeLoss, proximal = 1': partial(LovaszHingeLoss, proximal=1.0),
    'SoftIoULoss': SoftIoULoss,
    'SoftIoULoss, each image a set': partial(SoftIoULoss, scope='image'),
    'SMeasureLoss': SMeasureLoss,
    'SMeasureLoss, area of 10 points': partial(SMeasureLoss, measure='auc_roc'),
    'DirectZeroOneLoss': DirectZeroOneLoss,
    'DirectAPLoss': DirectAPLoss,
    'SmoothTopKLoss, k = 2': partial(SmoothTopKLoss, k=2),
    'HardTopKLoss, k = 2': partial(HardTopKLoss, k=2),
}
METRICS: dict[str, Callable[[], Any]] = {
    'LovaszJaccardIndex': partial(LovaszJaccardIndex, N_CLASSES),
    'SoftJaccardIndex': partial(SoftJaccardIndex, N_CLASSES),
    'JaccardIndexByImage': partial(JaccardIndexByImage, N_CLASSES),
    'SmoothTopKAccuracy, k = 2': partial(SmoothTopKAccuracy, N_CLASSES, k=2),
    'DirectAveragePrecision, 4096 bins': partial(DirectAveragePrecision, N_CLASSES, bins=4096),
    'MulticlassJaccardIndex of torchmetrics': partial(MulticlassJaccardIndex, N_CLASSES, ignore_index=255),
}
HOOKS: dict[str, dict[str, Any]] = {
    'TrainIoUHook': dict(type='TrainIoUHook'),
    'TrainIoUHook, with its report': dict(type='TrainIoUHook', interval=1),
    'TrainMetricsHook (mIoU)': dict(type='TrainMetricsHook', metrics=dict(mIoU=IOU)),
    'TrainMetricsHook (mIoU), with its report': dict(type='TrainMetricsHook', metrics=dict(mIoU=IOU), interval=1),
}

Inputs = tuple[Tensor, Tensor]
"""Logits and labels."""
Counter = Callable[[Tensor, Tensor], 'Counts']


class Counts(NamedTuple):
    """Costs of a step, or a difference of costs."""

    operations: int
    bytes: float
    """Bytes, as a multiple of those of the logits."""
    reads: int
    """Number of values and sizes that the host waits for."""
    found: frozenset[Operation] = frozenset()

    def over(self, base: 'Counts') -> 'Counts':
        """Return the difference to the costs of another step."""
        return Counts(*(a - b for a, b in zip(self[:3], base[:3], strict=True)))


def rows(quick: bool) -> list[Row]:
    """Return a row for each candidate."""
    side = 16 if quick else SIDE
    images = [pixels(n, side) for n in N_IMAGES]
    items = [labelled(torch.empty(N_ITEMS, n, device='meta')) for n in N_LABELS]
    cross_entropy = {'cross-entropy': nn.CrossEntropyLoss}
    of_items = {'SmoothTopKLoss': partial(SmoothTopKLoss, k=5), 'HardTopKLoss': partial(HardTopKLoss, k=5)}
    found = [loss_row('loss', name, build, images) for name, build in (cross_entropy | LOSSES).items()]
    peers = lovasz.peers() | soft_iou.peers()
    found += [row('loss', name, partial(of_peer, peer), images) for name, peer in peers.items()]
    found += [loss_row('loss, k = 5', name, build, items) for name, build in (cross_entropy | of_items).items()]
    found += [row('loss, k = 5', name, partial(of_peer, peer), items) for name, peer in topk_peers().items()]
    found += [row('update of a metric', name, partial(of_update, build), images) for name, build in METRICS.items()]
    return found + [row('hook', name, partial(of_hook, hook), images) for name, hook in HOOKS.items()]


def loss_row(measured: str, name: str, build: Callable[[], nn.Module], inputs: Sequence[Inputs]) -> Row:
    """Return the row of a loss of the package, with its additional costs in a Runner of MMEngine."""
    found = row(measured, name, lambda *call: of_loss(build(), *call), inputs)
    if found['operations'] != UNKNOWN and name != 'cross-entropy':
        in_runner = [of_iteration(build(), *call).over(of_loss(build(), *call)) for call in inputs]
        found['more in a Runner'] = alike([f'{counts.operations:+d}' for counts in in_runner])
        found['read back in a Runner'] = alike([str(counts.reads) for counts in in_runner])
    return found


def row(measured: str, name: str, counter: Counter, inputs: Sequence[Inputs]) -> Row:
    """Return the row of a candidate with its costs for each of the inputs."""
    place = {'measured': measured, 'candidate': name}
    try:
        counts = [counter(*call) for call in inputs]
    except RuntimeError:  # of operations that need values, which `meta` tensors do not have
        return place | {'operations': UNKNOWN}
    return place | {
        'operations': alike([str(each.operations) for each in counts]),
        'bytes / logits': alike([number(float(each.bytes)) for each in counts]),
        'read back': alike([str(each.reads) for each in counts]),
        'deterministic on request': ', '.join(with_determinism(counts[-1].found)),
        'raise an error': ', '.join(without_determinism(counts[-1].found)),
    }


def counted(step: Step, logits: Tensor, answer: float | None = None, before: int = MEMORY) -> Counts:
    """Return the costs of a step after a few uncounted ones."""
    for _ in range(before):
        operations(step, answer)
    found = operations(step, answer)
    return Counts(found.number, found.bytes / n_bytes(logits), found.reads, frozenset(found.found))


def of_loss(loss: nn.Module, logits: Tensor, target: Tensor) -> Counts:
    """Return the costs of a training step of a loss that does not synchronise."""
    return counted(training_step(loss.to('meta'), logits, target), logits)


def of_peer(loss: Loss, logits: Tensor, target: Tensor) -> Counts:
    """Return the costs of a training step of a loss that may synchronise; each class is present."""
    return counted(training_step(loss, logits, target), logits, answer=0)


def of_iteration(loss: nn.Module, logits: Tensor, target: Tensor) -> Counts:
    """Return the costs of a training step in a Runner of MMEngine, in which losses log."""
    from mmengine.logging import MessageHub

    step, iterations = training_step(loss.to('meta'), logits, target), count()

    def iteration() -> None:
        MessageHub.get_current_instance().update_info('iter', next(iterations))
        step()

    with while_a_runner_trains():
        return counted(iteration, logits, answer=1)


def of_update(build: Callable[[], Any], logits: Tensor, target: Tensor) -> Counts:
    """Return the costs of an update of a metric."""
    metric = build().to('meta')
    return counted(lambda: metric.update(logits.detach(), target), logits, answer=0)


def of_hook(hook: dict[str, Any], logits: Tensor, target: Tensor) -> Counts:
    """Return the costs that a hook adds to an iteration with cross-entropy."""
    from mmengine.logging import MessageHub
    from mmengine.registry import HOOKS as REGISTERED_HOOKS

    built = REGISTERED_HOOKS.build(hook)
    head = nn.ModuleDict({'loss_decode': nn.CrossEntropyLoss()})
    head.num_classes, head.loss_decode = N_CLASSES, head['loss_decode']
    # The part of a Runner that the hooks use.
    runner = SimpleNamespace(
        model=nn.ModuleDict({'decode_head': head}),
        iter=0,
        message_hub=MessageHub.get_instance('benchmark'),
        train_dataloader=SimpleNamespace(dataset=None, sampler=None, batch_sampler=None),
    )
    alone = training_step(head.loss_decode, logits, target)

    def step() -> None:
        alone()
        built.after_train_iter(runner, 0)

    base = counted(alone, logits)
    built.before_train(runner)
    return counted(step, logits, answer=0).over(base)


def topk_peers() -> dict[str, Loss]:
    """Return the algorithms of the paper, and the loss of difftopk if it is installed."""
    of_paper = {'smooth top-k by Algorithms 1 and 2 of the paper': partial(loss_by, with_custom_backward, k=5)}
    return of_paper | difftopk_peer(N_LABELS[-1], 5)


def pixels(n_images: int, side: int) -> Inputs:
    """Return logits [N, C, H, W] and labels [N, H, W] without values."""
    return labelled(torch.empty(n_images, N_CLASSES, side, side, device='meta'))


def labelled(logits: Tensor) -> Inputs:
    """Return logits that require a gradient, and labels for them."""
    return logits.requires_grad_(), torch.empty_like(logits[:, 0], dtype=torch.long)

"""Lovász-Softmax compared with cross-entropy and with the implementations of other libraries."""

from collections.abc import Iterator
from importlib.util import find_spec

import torch.nn.functional as F

from benchmarks import Case, Row
from benchmarks.measure import training_step
from benchmarks.peers import Loss, losses_of_smp, module_of
from benchmarks.scenes import half_trained, one_hot, shape_label, sizes
from mmseg_nondecomp import LovaszSoftmaxLoss, SoftIoULoss


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases for training steps on street scenes, on many classes, and on small images."""
    for side in sizes(quick, 128, 256, 512):
        yield training('a training step, 19 classes', (2, 19, side, side))
    for side in sizes(quick, 128):
        yield training('a training step, 150 classes', (4, 150, side, side))
    for side in sizes(quick, 64):
        yield training('a training step, 16 classes, small images', (8, 16, side, side))


def training(group: str, shape: tuple[int, ...]) -> Case:
    """Return the case of forward and backward passes, and the value of each loss if every pixel is wrong."""
    n_classes = shape[1]
    logits, target = half_trained(shape)
    losses: dict[str, Loss] = {
        'cross-entropy': F.cross_entropy,
        'LovaszSoftmaxLoss, 1024 bins': LovaszSoftmaxLoss(),
        'LovaszSoftmaxLoss, sorted': LovaszSoftmaxLoss(bins=None),
        'SoftIoULoss': SoftIoULoss(),
        **peers(),
    }
    steps = {name: training_step(loss, logits, target) for name, loss in losses.items()}

    def also(row: Row) -> Row:
        candidate = row['candidate']
        # A peer may be fast but incorrect. If every pixel is assigned to a wrong class with certainty, the IoU is 0.
        wrong = 100 * one_hot((target + 1) % n_classes, n_classes)
        is_iou = candidate != 'cross-entropy'
        return {'loss where all is wrong': round(losses[candidate](wrong, target).item(), 3) if is_iou else ''}

    return Case(group, shape_label(shape), target.numel(), 'pixels', steps, logits, also)


def peers() -> dict[str, Loss]:
    """Return the Lovász-Softmax losses of installed libraries."""
    found: dict[str, Loss] = {}
    if find_spec('mmseg'):
        from mmseg.models.losses import LovaszLoss

        of_mmseg = LovaszLoss(reduction='none')
        found['LovaszLoss of mmsegmentation'] = lambda x, y: of_mmseg(x, y, ignore_index=255)
    if smp := losses_of_smp():
        found['LovaszLoss of segmentation-models-pytorch'] = smp.LovaszLoss('multiclass')
    if kornia := module_of('kornia.losses'):
        found['lovasz_softmax_loss of kornia'] = kornia.lovasz_softmax_loss
    return found

"""Lovász hinge and its proximal form compared with binary cross-entropy and other libraries."""

from collections.abc import Iterator
from importlib.util import find_spec

from benchmarks import Case
from benchmarks.measure import training_step
from benchmarks.peers import Loss, losses_of_smp, module_of
from benchmarks.scenes import binary_cross_entropy, foreground, shape_label, sizes
from mmseg_nondecomp import LovaszHingeLoss


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases for training steps of heads with one channel."""
    for side in sizes(quick, 128, 256, 512):
        logits, target = foreground((2, 1, side, side))
        losses: dict[str, Loss] = {
            'binary cross-entropy': binary_cross_entropy,
            'LovaszHingeLoss, 4096 bins': LovaszHingeLoss(),
            'LovaszHingeLoss, sorted': LovaszHingeLoss(bins=None),
            'LovaszHingeLoss, proximal = 1': LovaszHingeLoss(proximal=1.0),
            **peers(),
        }
        steps = {name: training_step(loss, logits, target) for name, loss in losses.items()}
        yield Case('a training step, one channel', shape_label(logits.shape), target.numel(), 'pixels', steps, logits)


def peers() -> dict[str, Loss]:
    """Return the Lovász hinges of other libraries over the batch; kornia's is a mean over images."""
    found: dict[str, Loss] = {}
    if find_spec('mmseg'):
        from mmseg.models.losses import LovaszLoss

        of_mmseg = LovaszLoss(loss_type='binary', reduction='none')
        found['LovaszLoss of mmsegmentation'] = lambda x, y: of_mmseg(x.squeeze(1), y, ignore_index=255)
    if smp := losses_of_smp():
        found['LovaszLoss of segmentation-models-pytorch'] = smp.LovaszLoss('binary')
    if kornia := module_of('kornia.losses'):
        found['lovasz_hinge_loss of kornia'] = kornia.lovasz_hinge_loss
    return found

"""Soft IoU loss compared with cross-entropy and the Jaccard losses of other libraries."""

from collections.abc import Iterator

import torch.nn.functional as F

from benchmarks import Case
from benchmarks.measure import training_step
from benchmarks.peers import Loss, losses_of_smp, module_of
from benchmarks.scenes import half_trained, shape_label, sizes
from mmseg_nondecomp import SoftIoULoss


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases for training steps; every loss treats the batch as one set."""
    for side in sizes(quick, 128, 256, 512):
        logits, target = half_trained((2, 19, side, side))
        losses: dict[str, Loss] = {'cross-entropy': F.cross_entropy, 'SoftIoULoss': SoftIoULoss(), **peers()}
        steps = {name: training_step(loss, logits, target) for name, loss in losses.items()}
        yield Case('a training step, 19 classes', shape_label(logits.shape), target.numel(), 'pixels', steps, logits)


def peers() -> dict[str, Loss]:
    """Return the soft Jaccard losses of other libraries."""
    found: dict[str, Loss] = {}
    if smp := losses_of_smp():
        found['JaccardLoss of segmentation-models-pytorch'] = smp.JaccardLoss('multiclass')
    if monai := module_of('monai.losses'):
        of_monai = monai.DiceLoss(jaccard=True, softmax=True, to_onehot_y=True, batch=True)
        found['DiceLoss(jaccard=True) of MONAI'] = lambda x, y: of_monai(x, y.unsqueeze(1))
    return found

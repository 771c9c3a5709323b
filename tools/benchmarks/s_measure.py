"""S-measures: projections compared with a sort, losses with cross-entropy and peers, and the cost of a head."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from benchmarks import Case, Step
from benchmarks.measure import training_step
from benchmarks.peers import Loss, losses_of_libauc, losses_of_smp, module_of
from benchmarks.scenes import binary_cross_entropy, foreground, half_trained, shape_label, sizes
from benchmarks.tiny_unet import fill_examples, unet_step
from mmseg_nondecomp import SMeasureLoss
from mmseg_nondecomp.functional import project_tau, soft_project_tau


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases for projections, pixels, and training steps of a small network."""
    for dtype in (torch.float32, torch.float64):
        yield projecting(1000 if quick else 1_000_000, dtype)
    for side in sizes(quick, 128, 256, 512):
        yield binary((2, 1, side, side))
    for side in sizes(quick, 128, 256, 512):
        yield several((2, 19, side, side))
    yield from heads(200 if quick else 100_000)


def projecting(n: int, dtype: torch.dtype) -> Case:
    """Return the case of the projection of n margins."""
    tau = torch.randn(n, generator=torch.Generator().manual_seed(0)).to(dtype)
    eps = torch.tensor(1.0, dtype=dtype)
    steps: dict[str, Step] = {
        'one sort of them': lambda: tau.sort(descending=True),
        'project_tau': lambda: project_tau(tau, eps),
        'soft_project_tau, temperature 0.1': lambda: soft_project_tau(tau, eps, 0.1),
    }
    name = str(dtype).removeprefix('torch.')
    return Case(f'projecting τ, {name}', f'{n} τ', n, 'τ', steps, tau)


def binary(shape: tuple[int, ...]) -> Case:
    """Return the case of a head with one channel."""
    logits, target = foreground(shape)
    losses: dict[str, Loss] = {
        'binary cross-entropy': binary_cross_entropy,
        'F_1': stepping(SMeasureLoss()),
        'F_1, hinge': stepping(SMeasureLoss(surrogate='hinge')),
        'precision at recall 0.9': stepping(SMeasureLoss('precision_at_recall', target=0.9)),
        'area under ROC, 10 anchors': stepping(SMeasureLoss('auc_roc')),
        **peers(),
    }
    steps = {name: training_step(loss, logits, target) for name, loss in losses.items()}
    return Case('a training step, one channel', shape_label(shape), target.numel(), 'pixels', steps, logits)


def peers() -> dict[str, Loss]:
    """Return a soft F_1 (Dice) and an area under the ROC curve of other libraries."""
    found: dict[str, Loss] = {}
    if smp := losses_of_smp():
        found['DiceLoss of segmentation-models-pytorch'] = smp.DiceLoss('binary')
    if monai := module_of('monai.losses'):
        of_monai = monai.DiceLoss(sigmoid=True, batch=True)
        found['DiceLoss of MONAI'] = lambda x, y: of_monai(x, y.unsqueeze(1))
    if libauc := losses_of_libauc():
        of_libauc = libauc.AUCMLoss()
        found['AUCMLoss of LibAUC'] = lambda x, y: of_libauc(x.sigmoid().view(-1, 1), y.view(-1, 1))
    return found


def several(shape: tuple[int, ...]) -> Case:
    """Return the case of a measure for each class."""
    logits, target = half_trained(shape)
    losses: dict[str, Loss] = {'cross-entropy': F.cross_entropy, 'F_1 of each class': stepping(SMeasureLoss())}
    steps = {name: training_step(loss, logits, target) for name, loss in losses.items()}
    return Case('a training step, 19 classes', shape_label(shape), target.numel(), 'pixels', steps, logits)


def stepping(loss: SMeasureLoss) -> Loss:
    """Return the loss with its own step after the last call, as in training."""

    def value(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss.step()
        return loss(logits, target)

    return value


def heads(n: int) -> Iterator[Case]:
    """Yield cases for training steps of the U-Net of LongTailShapes with a head that regularises its features."""
    f_1 = dict(type='SMeasureLoss', loss_weight=1e-2)
    steps = {'cross-entropy': unet_step(None, False)[0], 'F_1 of big and small images': unet_step(f_1, True)[0]}
    for when, ascend in (('each iteration', True), ('once an epoch', False)):
        step, loss = unet_step(dict(f_1, per_example=True), ascend)
        fill_examples(loss, n)
        steps[f'a τ for each of {n} images, projected {when}'] = step
    yield Case('SMeasureHead in the U-Net of LongTailShapes', '8x3x64x64', 8 * 64**2, 'pixels', steps)
    scores = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    once: dict[str, Step] = {
        'one sort of their scores': lambda: scores.sort(descending=True),
        'all seen in one call, and the projection of an epoch': lambda: fill_examples(loss, n),
    }
    yield Case('examples with a τ of their own', f'{n} examples', n, 'examples', once)

"""Loss max-pooling compared with cross-entropy, sorting as in Algorithm 1 of the paper, and OHEM."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import Case, Step
from benchmarks.measure import training_step
from benchmarks.peers import Loss
from benchmarks.scenes import half_trained, shape_label, sizes
from mmseg_nondecomp import LossMaxPooling, LossMaxPoolingPixelSampler
from mmseg_nondecomp.functional.max_pooling import pooled_items, pooling_weights

P, RATIO = 1.3, 0.25


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases for training steps, the pooling alone, and weights for a decode head."""
    for side in sizes(quick, 256, 512, 1024):
        yield training('a training step, 19 classes', (2, 19, side, side))
    for side in sizes(quick, 256):
        yield training('a training step, 150 classes', (2, 150, side, side))
    for side in sizes(quick, 256, 512, 1024):
        yield pooling((2, 19, side, side))
    for side in sizes(quick, 128, 256, 512):
        yield pixel_sampling((2, 19, side, side))


def training(group: str, shape: tuple[int, ...]) -> Case:
    """Return the case of forward and backward passes of the losses."""
    logits, target = half_trained(shape)
    losses: dict[str, Loss] = {
        'cross-entropy': F.cross_entropy,
        'LossMaxPooling, p = 1.3': LossMaxPooling(),
        'LossMaxPooling, p = 1': LossMaxPooling(p=1),
        'sorted (Algorithm 1), p = 1.3': sorted_max_pooling,
    }
    steps = {name: training_step(loss, logits, target) for name, loss in losses.items()}
    return Case(group, shape_label(shape), target.numel(), 'pixels', steps, logits)


def pooling(shape: tuple[int, ...]) -> Case:
    """Return the case of the weights alone, without the cross-entropy common to all candidates."""
    logits, target = half_trained(shape)
    losses = F.cross_entropy(logits, target, reduction='none').detach().flatten(1)
    steps: dict[str, Step] = {
        'sorted weights (Algorithm 1)': lambda: sorted_weights(losses, P, RATIO),
        'weights without a sort': lambda: unsorted_weights(losses, P, RATIO),
    }
    return Case('the weights of losses', f'{len(losses)}x{losses[0].numel()}', losses.numel(), 'pixels', steps, losses)


def pixel_sampling(shape: tuple[int, ...]) -> Case:
    """Return the case of cross-entropy with pixel samplers that keep at least a quarter of the pixels."""
    from mmseg.models.losses import CrossEntropyLoss
    from mmseg.structures import OHEMPixelSampler

    logits, target = half_trained(shape)
    cross_entropy = CrossEntropyLoss(avg_non_ignore=True)
    head = SimpleNamespace(loss_decode=cross_entropy, ignore_index=255)
    n_kept = max(2, int(RATIO * target[0].numel()))

    def weighted_by(sampler: Any) -> Step:
        def loss(logits: Tensor, target: Tensor) -> Tensor:
            weight = sampler.sample(logits, target.unsqueeze(1))
            return cross_entropy(logits, target, weight=weight, ignore_index=255)

        return training_step(loss, logits, target)

    steps: dict[str, Step] = {
        'cross-entropy of mmsegmentation': training_step(cross_entropy, logits, target),
        'with LossMaxPoolingPixelSampler': weighted_by(LossMaxPoolingPixelSampler(head, P, RATIO)),
        'with OHEMPixelSampler of mmsegmentation': weighted_by(OHEMPixelSampler(head, min_kept=n_kept)),
    }
    return Case('a pixel sampler, 19 classes', shape_label(shape), target.numel(), 'pixels', steps, logits)


def sorted_max_pooling(logits: Tensor, target: Tensor) -> Tensor:
    """Compute loss max-pooling by Algorithm 1 of the paper in vectorised PyTorch, as a user would implement it."""
    losses = F.cross_entropy(logits, target, reduction='none').flatten(1)
    return (sorted_weights(losses.detach(), P, RATIO) * losses).sum(1).mean()


def sorted_weights(losses: Tensor, p: float, ratio: float) -> Tensor:
    """Return the maximisers of each row by sorting."""
    q = p / (p - 1)
    n = losses.shape[1]
    m = ratio * n
    ascending, _ = losses.sort(1)
    largest = ascending[:, -1:]
    powers = (ascending / largest).pow(q)
    below = powers.cumsum(1)
    count = torch.arange(1, n + 1) + (m - n)
    in_support = count * powers > below
    n_full = in_support.sum(1, keepdim=True)
    n_below = n - n_full
    alpha = largest * (below.gather(1, (n_below - 1).clamp(min=0)) / (m - n_full)).pow(1 / q)
    return n ** (-1 / q) * m ** (-1 / p) * (losses / alpha).clamp(max=1).pow(q - 1)


def unsorted_weights(losses: Tensor, p: float, ratio: float) -> Tensor:
    """Return the maximisers of each row as computed by the package."""
    valid = torch.ones_like(losses, dtype=torch.bool)
    return pooling_weights(losses, valid, p, pooled_items(valid, ratio)).weights

"""Weights of pixels ordered by loss, and the pooled loss, for p from 1 to ∞."""

import math
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from concepts import BLACK, BLUE, GREEN, ORANGE, RED, two_panels
from mmseg_nondecomp.functional import loss_max_pooling, max_pooling_weights

RATIO = 0.25
PS = {1.0: RED, 1.3: ORANGE, 2.0: GREEN, 4.0: BLUE, math.inf: BLACK}
RATIOS = {0.05: RED, 0.25: ORANGE, 0.5: BLUE}
N_EXPONENTS = 41


class Pooled(NamedTuple):
    """Losses, weights and pooled losses."""

    losses: Tensor
    """Losses in ascending order, of shape [n]."""
    weights: dict[float, Tensor]
    """Weights for each p at the ratio 0.25, of shape [n]."""
    inverse_p: Tensor
    """1 / p from 0 to 1."""
    values: dict[float, Tensor]
    """Pooled loss for each ratio, of the shape of ``inverse_p``."""


def compute(n: int = 400) -> Pooled:
    """Return weights and pooled losses for exponential quantiles: few hard pixels, many easy ones."""
    losses = -torch.log1p(-(torch.arange(n, dtype=torch.float64) + 0.5) / n)
    weights = {p: max_pooling_weights(losses, p, RATIO * n) for p in PS}
    inverse_p = torch.linspace(0, 1, N_EXPONENTS, dtype=torch.float64)
    exponents = [1 / x if x > 0 else math.inf for x in inverse_p.tolist()]
    values = {ratio: torch.stack([loss_max_pooling(losses, p, ratio) for p in exponents]) for ratio in RATIOS}
    return Pooled(losses, weights, inverse_p, values)


def draw(pooled: Pooled) -> Figure:
    """Plot weights over the rank of a pixel, and the pooled loss over 1 / p."""
    figure, left, right = two_panels()
    n = len(pooled.losses)
    rank = 100 * (torch.arange(n) + 0.5) / n
    for p, weights in pooled.weights.items():
        left.plot(rank, n * weights, color=PS[p], label='p = ∞' if p == math.inf else f'p = {p:g}')
    left.set_xlabel('pixels by their loss, % (hardest right)')
    left.set_ylabel('weight, in units of the mean’s 1/n')
    left.set_title(f'optimal weights, m = {RATIO:g} n')
    left.legend(loc='upper left')
    for ratio, values in pooled.values.items():
        right.plot(pooled.inverse_p, values, color=RATIOS[ratio], label=f'm = {ratio:g} n')
    right.set_xlabel('1 / p')
    right.set_xticks([0, 0.25, 0.5, 1 / 1.3, 1], ['0\np = ∞', '1/4\n4', '1/2\n2', '0.77\n1.3', '1\n1'])
    right.set_ylabel('pooled loss')
    right.set_ylim(0, None)
    right.set_title('from the mean to the mean of the m hardest')
    right.legend(loc='upper left')
    return figure

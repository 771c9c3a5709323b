r"""Expected IoU and Dice of a set of decided pixels whose labels are independent.

A pixel j belongs to the class with probability :math:`p_j`; D is the set of pixels that are decided for it, of size
:math:`\tau`. With hits :math:`I = \sum_{D} y_j` and misses :math:`S = \sum_{\bar D} y_j`, the measures are

.. math:: \mathrm{IoU} = \frac{I}{\tau + S}, \qquad \mathrm{Dice} = \frac{2 I}{\tau + I + S}.

Reciprocals of sums of independent variables have an expectation that is an integral of their generating function
:math:`G(t) = \mathbb{E}\, t^S = \prod_j (1 - p_j + p_j t)`:

.. math:: \mathbb{E}\,\frac{1}{a + S} = \int_0^\infty e^{-a s}\, G(e^{-s})\, \mathrm{d}s, \qquad a > 0.

The integral is computed by the trapezoidal rule in :math:`\log s`, whose error with a step of 1/2 is below 1e-7.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

MEASURES = ('iou', 'dice')
EXPECTATIONS = ('exact', 'first_order', 'second_order')
STEP = 0.5  # of the trapezoidal rule, in the logarithm of s
NEAREST, FURTHEST = 1e-4, 120.0  # first and last node, relative to 1 / (a + mean of S)


class Goal(NamedTuple):
    """Quantity to maximise."""

    measure: str = 'iou'
    expectation: str = 'exact'
    zero_division: float = 0.0


class Nodes(NamedTuple):
    """Nodes of the integral over s, and their weights."""

    s: Tensor
    weight: Tensor

    @property
    def x(self) -> Tensor:
        """Return 1 - t of the nodes."""
        return -torch.expm1(-self.s)

    def density(self, probs: Tensor) -> Tensor:
        """Return p / (1 - p x) for probabilities [...], of shape [..., Q]."""
        p = probs.unsqueeze(-1)
        return p / torch.maximum(1 - p * self.x, (-self.s).exp())


def nodes_between(low: float, high: float, like: Tensor) -> Nodes:
    """Return nodes for every value of a + mean of S from ``low`` to ``high``."""
    first, last = math.log(NEAREST / high), math.log(FURTHEST / low)
    s = torch.arange(first, last, STEP, dtype=torch.float64, device=like.device).exp()
    weight = STEP * s
    # Nodes further to the left, a geometric series, have the integrand of the first.
    weight[0] = weight[0] / -math.expm1(-STEP)
    return Nodes(s, weight)


def log_generating(probs: Tensor, nodes: Nodes) -> Tensor:
    """Return log(1 - p + p t) for probabilities [...], of shape [..., Q]."""
    # The least value, for p = 1, is log t = -s.
    return torch.maximum(torch.log1p(-probs.unsqueeze(-1) * nodes.x), -nodes.s)


def value_of_none(probs: Tensor, counts: Tensor, goal: Goal) -> Tensor:
    """Return the expected measure of an empty set, of shape [R, 1]: 0 / 0 where no pixel belongs to the class."""
    log_absent = torch.where(counts > 0, torch.log1p(-probs) * counts, 0).sum(1, keepdim=True)
    return goal.zero_division * log_absent.exp()


class Sums(NamedTuple):
    """Sums over the pixels of an image for each class, float64 of one shape [...]."""

    size: Tensor  # number of decided pixels
    hits: Tensor  # sum of p over the decided pixels
    spread: Tensor  # sum of p (1 - p) over the decided pixels
    all_hits: Tensor  # sum of p over all pixels
    all_spread: Tensor  # sum of p (1 - p) over all pixels

    @property
    def misses(self) -> Tensor:
        """Expected number of pixels of the class that are not decided."""
        return (self.all_hits - self.hits).clamp(min=0)

    @property
    def spread_of_misses(self) -> Tensor:
        """Variance of that number."""
        return (self.all_spread - self.spread).clamp(min=0)

    def part(self, rows: slice) -> 'Sums':
        """Return the sums of some rows."""
        return Sums(*(part[rows] for part in self))

    def plus(self, p: Tensor, sign: float | Tensor = 1.0) -> 'Sums':
        """Return the sums with a further decided pixel of probability p, or without it."""
        return self._replace(size=self.size + sign, hits=self.hits + sign * p, spread=self.spread + sign * p * (1 - p))


class Value(NamedTuple):
    """Expected measure of the decided set, and its change with a further pixel of probability p."""

    value: Tensor
    slope: Tensor  # the change is approximately slope * p + offset
    offset: Tensor


def expected_value(sums: Sums, goal: Goal) -> Value:
    r"""Compute the expected measure from sums, without the term of an empty set, and the change by a further pixel.

    The exact expectation depends on all probabilities. For large sets these sums determine it, with
    :math:`\log G \approx -s\,\mathbb{E} S + (1 - t)^2\,\mathrm{Var} S / 2`, which is exact for p in {0, 1}.
    """
    of_measure = _iou if goal.measure == 'iou' else _dice
    return of_measure(sums, goal.expectation)


def _iou(sums: Sums, expectation: str) -> Value:
    hits, size, misses, spread = sums.hits, sums.size, sums.misses, sums.spread_of_misses
    if expectation == 'exact':
        nodes, weight = _nodes_of(size + 1 + misses, misses, spread)
        with_pixel = weight * (-(size + 1).unsqueeze(-1) * nodes.s).exp()
        without = weight * (-size.clamp(min=1).unsqueeze(-1) * nodes.s).exp()
        after, slower = with_pixel.sum(-1), (with_pixel * nodes.x).sum(-1)
        return Value(hits * without.sum(-1), after + hits * slower, -hits * (without * nodes.x).sum(-1))
    before, after = size + misses, size + misses + 1
    spread = spread if expectation == 'second_order' else torch.zeros_like(spread)
    value = hits * _reciprocal(before, spread)
    slope = _reciprocal(after, spread) + hits * (after**-2 + 3 * spread * after**-4)
    return Value(value, slope, hits * _reciprocal(after, spread) - value)


def _dice(sums: Sums, expectation: str) -> Value:
    hits, size, mean, spread = sums.hits, sums.size, sums.all_hits, sums.all_spread
    if expectation == 'exact':
        nodes, weight = _nodes_of(size + 1 + mean, mean, spread)
        weight = weight * (-(size + 1).unsqueeze(-1) * nodes.s).exp()
        # The sum of p / (1 - p x) over the decided pixels, as if all had the same probability.
        share = (1 - sums.spread / hits.clamp(min=1e-300)).clamp(0, 1)
        density = hits.unsqueeze(-1) / (1 - share.unsqueeze(-1) * nodes.x).clamp(min=1e-300)
        value, slope = 2 * (weight * density).sum(-1), 2 * (weight * (-nodes.s / 2).exp()).sum(-1)
        return Value(value, slope, -2 * (weight * nodes.x * density).sum(-1))
    before, after = size + mean, size + mean + 1
    if expectation == 'first_order':
        value = torch.where(before > 0, 2 * hits / before.clamp(min=1e-300), 0)
        return Value(value, 2 / after, 2 * hits / after - value)
    together = 2 * sums.spread  # covariance of the numerator and the denominator
    value, with_pixel = (
        torch.where(hits > 0, 2 * hits * _reciprocal(m, spread) - together * m.clamp(min=1e-300) ** -2, 0)
        for m in (before, after)
    )
    return Value(value, 2 * _reciprocal(after, spread), with_pixel - value)


def _nodes_of(scale: Tensor, mean: Tensor, spread: Tensor) -> tuple[Nodes, Tensor]:
    """Return nodes [..., Q] and their weights times the generating function of a sum with this mean and variance."""
    unit = nodes_between(1.0, 1.0, scale)
    nodes = Nodes(unit.s / scale.unsqueeze(-1), unit.weight / scale.unsqueeze(-1))
    log_generating = spread.unsqueeze(-1) * nodes.x.square() / 2 - mean.unsqueeze(-1) * nodes.s
    return nodes, nodes.weight * log_generating.exp()


def _reciprocal(mean: Tensor, spread: Tensor) -> Tensor:
    """Return E[1 / X] to the second order in the variance of X; 0 where X is 0."""
    safe = mean.clamp(min=1e-300)
    return torch.where(mean > 0, 1 / safe + spread / safe**3, 0)

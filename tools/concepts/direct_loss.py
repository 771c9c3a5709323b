"""Average precision loss over a shift of the positives' scores, and its direct-loss gradient."""

from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from concepts import BLACK, BLUE, ORANGE, RED, two_panels
from mmseg_nondecomp.functional import direct_ap_loss, loss_augmented_ranking
from mmseg_nondecomp.functional.direct.average_precision import direct_ap_losses

SIGNS = {'positive': 1, 'negative': -1}
EPSILON = 1.0
EPSILONS = {0.3: BLUE, 2.0: ORANGE, 8.0: RED}
N_POSITIVES, N_NEGATIVES = 3, 7


class Shifted(NamedTuple):
    """Effects of a shift t of the scores of all positives."""

    shifts: Tensor
    """Shifts of shape [T]."""
    loss: Tensor
    """1 - AP of one query."""
    bounds: dict[str, Tensor]
    """Function whose gradient is the direct-loss gradient, for each direction."""
    coarse: Tensor
    """Shifts at which expectations are computed, of shape [S]."""
    slope: Tensor
    """Slope of the expected loss, by differences, of shape [S]."""
    gradients: dict[float, Tensor]
    """Mean direct-loss gradient with respect to the shift, for each ε, of shape [S]."""
    n_queries: int


def compute(n_shifts: int = 401, n_coarse: int = 21, n_queries: int = 4000) -> Shifted:
    """Return the results of one query over fine shifts, and of many with normal scores over coarse ones."""
    generator = torch.Generator().manual_seed(2)
    is_positive = torch.arange(N_POSITIVES + N_NEGATIVES) < N_POSITIVES
    shifts = torch.linspace(-4, 4, n_shifts, dtype=torch.float64)
    query = torch.randn(len(is_positive), generator=generator, dtype=torch.float64)
    queries = torch.randn(n_queries, len(is_positive), generator=generator, dtype=torch.float64)
    coarse = torch.linspace(-4, 4, n_coarse, dtype=torch.float64)
    half = (coarse[1] - coarse[0]) / 2
    means = [mean_loss(queries, is_positive, t) for t in (*(coarse - half), coarse[-1] + half)]
    return Shifted(
        shifts,
        torch.stack([direct_ap_loss(query + t * is_positive, is_positive.long()) for t in shifts]),
        {way: torch.stack([bound(query + t * is_positive, way) for t in shifts]) for way in SIGNS},
        coarse,
        torch.stack(means).diff() / (2 * half),
        {e: torch.stack([mean_gradient(queries, is_positive, t, e) for t in coarse]) for e in EPSILONS},
        n_queries,
    )


def bound(scores: Tensor, direction: str) -> Tensor:
    """Return ± (max (F ± ε L) - max F) / ε, an upper bound on L for + and a lower bound for -."""
    pos, neg = (part.sort(descending=True).values for part in scores.split([N_POSITIVES, N_NEGATIVES]))
    direct = loss_augmented_ranking(pos, neg, EPSILON, direction)
    predicted = loss_augmented_ranking(pos, neg, 0.0)
    gained = score_of_ranking(pos, neg, direct) - score_of_ranking(pos, neg, predicted)
    place = torch.arange(1, len(pos) + 1, dtype=torch.float64)
    return SIGNS[direction] * gained / EPSILON + 1 - (place / (place + direct)).mean()


def score_of_ranking(pos: Tensor, neg: Tensor, counts: Tensor) -> Tensor:
    """Return F of the ranking with the given number of negatives above each positive."""
    y = torch.where(torch.arange(len(neg)) < counts.unsqueeze(1), -1, 1)
    return (y * (pos.unsqueeze(1) - neg)).mean()


def mean_loss(queries: Tensor, is_positive: Tensor, shift: Tensor) -> Tensor:
    """Return the mean of 1 - AP over the queries."""
    everything = torch.ones_like(queries, dtype=torch.bool)
    return direct_ap_losses(queries + shift * is_positive, everything & is_positive, everything, 1.0, 'positive').mean()


def mean_gradient(queries: Tensor, is_positive: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    """Return the mean of the direct-loss gradients with respect to the shift."""
    everything = torch.ones_like(queries, dtype=torch.bool)
    shift = shift.clone().requires_grad_()
    scores = queries + shift * is_positive
    losses = direct_ap_losses(scores, everything & is_positive, everything, epsilon, 'positive')
    return torch.autograd.grad(losses.mean(), shift)[0]


def draw(shifted: Shifted) -> Figure:
    """Plot the loss of one query between its bounds, and slopes of the expectation."""
    figure, left, right = two_panels()
    left.plot(shifted.shifts, shifted.bounds['positive'], color=ORANGE, label='positive update descends this')
    left.plot(shifted.shifts, shifted.loss, color=BLACK, linewidth=2.2, label='1 − AP: a gradient of 0')
    left.plot(
        shifted.shifts, shifted.bounds['negative'], color=BLUE, linestyle='-.', label='negative update descends this'
    )
    left.set_xlabel('shift of the positives’ scores')
    left.set_ylabel('loss')
    left.set_ylim(-0.05, 1.3)
    left.set_title(f'one query, ε = {EPSILON:g}')
    left.legend(loc='upper right')
    for epsilon, gradient in shifted.gradients.items():
        right.plot(shifted.coarse, gradient, color=EPSILONS[epsilon], label=f'ε = {epsilon:g}')
    right.plot(shifted.coarse, shifted.slope, color=BLACK, marker='o', linestyle='none', label='finite differences')
    right.set_xlabel('shift of the positives’ scores')
    right.set_ylim(-0.34, 0.01)
    right.set_ylabel('slope of the mean of 1 − AP')
    right.set_title(f'mean over {shifted.n_queries} queries')
    right.legend(loc='lower left', title='direct-loss gradient')
    return figure

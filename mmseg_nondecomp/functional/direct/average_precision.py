r"""Direct loss minimisation for the average precision: equations 2 to 5 of Song et al.

The gradient is that of :mod:`mmseg_nondecomp.functional.direct.general`, with the score F and the loss L of rankings
of :mod:`mmseg_nondecomp.functional.direct._rankings`. In terms of the counts c of negatives above each positive,

.. math:: \frac{\partial F}{\partial p_i} = \frac{|N| - 2 c_i}{|P||N|}, \qquad
   \frac{\partial F}{\partial n_j} = \frac{2\, |\{i : c_i \ge j\}| - |P|}{|P||N|}.

Equal scores are ranked in both orders at once: a pair of equal scores counts half in :math:`y_w`, and items of one kind
with equal scores share the sum of their gradients. So the order in which items are given does not matter.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional.direct._gradient import comparison, one_problem, with_gradient
from mmseg_nondecomp.functional.direct._rankings import best_rankings

LOWEST = -1e100  # finite score that replaces -inf
TOLERANCE = 1e-9  # upper bound on the rounding error of a sum of gradients that is 0


def direct_ap_loss(
    scores: Tensor, target: Tensor, epsilon: float = 0.1, mode: str = 'positive', weight: Tensor | None = None
) -> Tensor:
    r"""Compute one minus the average precision, a scalar, with the direct-loss gradient.

    Args:
        scores: The scores, of shape [n].
        target: 1 for positives, 0 for negatives, of shape [n]. Without either the loss is 0, attached to the graph.
        epsilon: The weight of the loss in the ranking that is compared.
        mode: The update. ``'positive'`` and ``'negative'`` are the directions of the paper: away from a worse ranking,
            towards a better one. ``'hinge'`` is the structured hinge loss, :math:`\max (F + L)` less the score of the
            perfect ranking, and ``'perceptron'`` is it without the L; they have no epsilon, and their value is not
            1 - AP but the bound that they minimise.
        weight: 0 for items that do not count, 1 for others, of shape [n].

    Example:
        >>> scores = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
        >>> loss = direct_ap_loss(scores, torch.tensor([0, 1, 0]), epsilon=8.0)
        >>> loss
        tensor(0.5000, grad_fn=<...>)
        >>> loss.backward()
        >>> scores.grad
        tensor([ 0.0000, -0.1250,  0.1250])
    """
    return direct_ap_losses(*one_problem(scores, target, weight, epsilon, mode), epsilon, mode)[0]


def direct_ap_losses(scores: Tensor, is_positive: Tensor, valid: Tensor, epsilon: float, mode: str | None) -> Tensor:
    """Return the loss of each problem [K], float32 or better; 0 for those without positives or without negatives.

    Scores, and the masks of positives and of items that count, are of shape [K, n]. With the mode None the loss has no
    gradient. Loss and gradient are NaN where a score is NaN or infinite.
    """
    with torch.no_grad():
        pos, neg = _sorted(scores.detach(), is_positive, valid)
        weight, other_weight, factor = comparison(epsilon, mode)
        direct, other = _ranking(pos, neg, weight), _ranking(pos, neg, other_weight)
        exact = scores.detach().double()
        n_pairs = (pos.size * neg.size).clamp(min=1).double().unsqueeze(1)
        gradient = 2 * factor * _difference(direct, other, pos, neg, torch.zeros_like(exact)) / n_pairs
        if other_weight is None:
            losses = _bound(gradient, exact, valid)
            losses = losses + _loss(direct[0], pos) if weight > 0 else losses
        else:
            losses = 1 - _average_precision(pos, neg)
        losses = torch.where((pos.size > 0) & (neg.size > 0), losses, 0)
        unordered = (valid & ~(exact < torch.inf)).any(1)
        losses = torch.where(unordered, torch.nan, losses)
        gradient = torch.where(unordered.unsqueeze(1), torch.nan, gradient)
    return with_gradient(scores, losses, gradient)


_Ranking = tuple[Tensor, Tensor]
"""Number of negatives above each positive, of shape [K, P], and of positives below each negative, of shape [K, N]."""


class _Sorted(NamedTuple):
    """Items of one kind, positives or negatives, of each problem in descending order of their scores."""

    scores: Tensor  # float64 of shape [K, m], padded
    items: Tensor  # index of each item, of shape [K, m]
    size: Tensor  # number of items, of shape [K]

    @property
    def exists(self) -> Tensor:
        """Whether a place is no padding, bool of shape [K, m]."""
        return torch.arange(self.scores.shape[1], device=self.scores.device) < self.size.unsqueeze(1)


def _sorted(scores: Tensor, is_positive: Tensor, valid: Tensor) -> tuple[_Sorted, _Sorted]:
    """Return the positives and the negatives that count."""
    scores, items = torch.where(valid, scores, -torch.inf).sort(dim=1, descending=True, stable=True)
    scores = scores.double().clamp(min=LOWEST)
    return _kind(scores, items, is_positive & valid), _kind(scores, items, ~is_positive & valid)


def _kind(scores: Tensor, items: Tensor, belongs: Tensor) -> _Sorted:
    """Return those of the sorted items [K, n] that belong."""
    size = belongs.sum(1)
    width = int(size.max()) if len(size) else 0
    belongs = belongs.gather(1, items)
    # One more place for all others, which is cut off.
    place = torch.where(belongs, belongs.cumsum(1) - 1, width)
    shape = (len(scores), width + 1)
    scores = scores.new_full(shape, -torch.inf).scatter_(1, place, scores)[:, :width]
    return _Sorted(scores.contiguous(), items.new_zeros(shape).scatter_(1, place, items)[:, :width], size)


def _ranking(pos: _Sorted, neg: _Sorted, weight: float | None) -> _Ranking:
    """Return the ranking that maximises F + weight · L: by the scores for 0, the perfect one for None."""
    if weight is None:
        return torch.zeros_like(pos.scores), torch.zeros_like(neg.scores)
    if weight == 0:
        return _n_higher(pos, neg), torch.where(neg.exists, pos.size.unsqueeze(1) - _n_higher(neg, pos), 0)
    counts = best_rankings(pos.scores, neg.scores, pos.size, neg.size, weight)
    return counts.double(), _positives_below(counts, pos, neg)


def _n_higher(these: _Sorted, those: _Sorted) -> Tensor:
    """Return the number of those with a higher score than each of these; an equal one counts half."""
    ascending = those.scores.flip(1)
    lower, not_higher = (torch.searchsorted(ascending, these.scores, right=right) for right in (False, True))
    return torch.where(these.exists, those.scores.shape[1] - (lower + not_higher).double() / 2, 0)


def _positives_below(counts: Tensor, pos: _Sorted, neg: _Sorted) -> Tensor:
    """Return the number of positives below each negative, from that of negatives above each positive."""
    place = torch.arange(1, neg.scores.shape[1] + 1, device=counts.device).expand_as(neg.scores)
    counts = torch.where(pos.exists, counts, neg.scores.shape[1] + 1)
    below = pos.size.unsqueeze(1) - torch.searchsorted(counts, place.contiguous())
    return torch.where(neg.exists, below, 0).double()


def _difference(direct: _Ranking, other: _Ranking, pos: _Sorted, neg: _Sorted, zeros: Tensor) -> Tensor:
    r"""Return :math:`\nabla F(\text{direct}) - \nabla F(\text{other})` times :math:`|P||N| / 2`, of shape [K, n]."""
    of_pos = _averaged_over_equals(other[0] - direct[0], pos)
    of_neg = _averaged_over_equals(direct[1] - other[1], neg)
    return zeros.scatter_add(1, pos.items, of_pos).scatter_add(1, neg.items, of_neg)


def _averaged_over_equals(values: Tensor, kind: _Sorted) -> Tensor:
    """Replace values of items of the same score by their mean, and those of padding by 0."""
    is_next = torch.zeros_like(values, dtype=torch.long)
    is_next[:, 1:] = kind.scores[:, 1:] != kind.scores[:, :-1]
    group = is_next.cumsum(1)
    values = torch.where(kind.exists, values, 0)
    total = torch.zeros_like(values).scatter_add(1, group, values)
    size = torch.zeros_like(values).scatter_add(1, group, kind.exists.to(values.dtype))
    return torch.where(kind.exists, total.gather(1, group) / size.gather(1, group), 0)


def _bound(gradient: Tensor, scores: Tensor, valid: Tensor) -> Tensor:
    """Return the difference of F that belongs to that of its gradients, as F is linear in the scores."""
    is_lowest = scores == -torch.inf
    losses = (gradient * torch.where(valid & ~is_lowest, scores, 0)).sum(1)
    # A positive below all that can be compared is infinitely wrong, unless negatives are as low.
    lowest = torch.where(valid & is_lowest, gradient, 0).sum(1)
    return torch.where(lowest < -TOLERANCE, torch.inf, losses)


def _loss(above: Tensor, pos: _Sorted) -> Tensor:
    """Return L of each problem, of shape [K], from the number of negatives above each positive."""
    rank = torch.arange(1, pos.scores.shape[1] + 1, device=pos.scores.device).double()
    return 1 - _mean(rank / (rank + above), pos)


def _average_precision(pos: _Sorted, neg: _Sorted) -> Tensor:
    """Return the average precision of each problem; the precision at a positive counts all items as high as it."""
    hits, misses = (
        kind.scores.shape[1] - torch.searchsorted(kind.scores.flip(1), pos.scores, right=False) for kind in (pos, neg)
    )
    return _mean(hits.double() / (hits + misses).clamp(min=1), pos)


def _mean(values: Tensor, kind: _Sorted) -> Tensor:
    """Return the mean over the items of each problem, of shape [K]."""
    return torch.where(kind.exists, values, 0).sum(1) / kind.size.clamp(min=1)

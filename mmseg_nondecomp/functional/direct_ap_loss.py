r"""Direct loss minimisation for the average precision.

The average precision is a step function of the scores. The gradient of its expectation is the limit, for
:math:`\epsilon \to 0`, of

.. math:: \pm \frac{1}{\epsilon} \left( \nabla F(y_\text{direct}) - \nabla F(y_w) \right), \qquad
   y_\text{direct} = \arg\max_y F(y) \pm \epsilon L(y), \qquad y_w = \arg\max_y F(y),

with F and L of :mod:`mmseg_nondecomp.functional.loss_augmented_ranking`: a step away from a ranking that is worse, or
towards one that is better. In terms of the counts c of negatives above each positive,

.. math:: \frac{\partial F}{\partial p_i} = \frac{|N| - 2 c_i}{|P||N|}, \qquad
   \frac{\partial F}{\partial n_j} = \frac{2\, |\{i : c_i \ge j\}| - |P|}{|P||N|}.

Equal scores are ranked in both orders at once: a pair of equal scores counts half in :math:`y_w`, and items of one kind
with equal scores share what falls to their places. So the order in which items are given does not matter.

Reference:
    Y. Song, A. G. Schwing, R. S. Zemel, R. Urtasun: Training deep neural networks via direct loss minimization.
    ICML 2016. https://arxiv.org/abs/1511.06411 (equations 2 to 5)
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional.items import can_be_read
from mmseg_nondecomp.functional.known_gradient import with_gradient
from mmseg_nondecomp.functional.loss_augmented_ranking import best_rankings, check_epsilon

LOWEST = -1e100
"""What a score of -inf counts as."""

TOLERANCE = 1e-9
"""What a sum of gradients that is nothing may have of roundings."""

MODES = ('positive', 'negative', 'hinge', 'perceptron')


class Ranked(NamedTuple):
    """Items of one kind, positives or negatives, of each query in descending order of their scores."""

    scores: Tensor
    """float64 of shape [K, m], padded."""
    items: Tensor
    """Which items they are, of shape [K, m]."""
    size: Tensor
    """How many there are, of shape [K]."""

    @property
    def exists(self) -> Tensor:
        """Which are no padding, bool of shape [K, m]."""
        return torch.arange(self.scores.shape[1], device=self.scores.device) < self.size.unsqueeze(1)


def direct_ap_loss(
    scores: Tensor, target: Tensor, epsilon: float = 0.1, mode: str = 'positive', weight: Tensor | None = None
) -> Tensor:
    r"""The loss of the average precision, 1 - AP, with the direct-loss gradient.

    Args:
        scores: The scores, of shape [n].
        target: 1 for positives, 0 for negatives, of shape [n].
        epsilon: The weight of the loss in the ranking that is compared: how far it looks.
        mode: The update. ``'positive'`` and ``'negative'`` are the directions of the paper: away from a worse ranking,
            towards a better one. ``'hinge'`` is the structured hinge loss, :math:`\max (F + L)` less the score of the
            perfect ranking, and ``'perceptron'`` is it without the L; they have no epsilon, and their value is not
            1 - AP but what they minimise.
        weight: 0 for items that do not count, 1 for others, of shape [n].

    Returns:
        A scalar; 0, attached to the graph, if there are no positives or no negatives.

    Raises:
        TypeError: If ``scores`` is not of floating point, or ``epsilon`` is no number.
        ValueError: If a shape, a label or a parameter is out of range.

    Example:
        >>> scores = torch.tensor([2.0, 1.0, 0.0], requires_grad=True)
        >>> loss = direct_ap_loss(scores, torch.tensor([0, 1, 0]), epsilon=8.0)
        >>> loss
        tensor(0.5000, grad_fn=<...>)
        >>> loss.backward()
        >>> scores.grad
        tensor([ 0.0000, -0.1250,  0.1250])
    """
    valid = check_direct_loss(scores, target, weight, epsilon, mode)
    return direct_ap_losses(scores.unsqueeze(0), (target == 1).unsqueeze(0), valid.unsqueeze(0), epsilon, mode)[0]


def direct_ap_losses(scores: Tensor, is_positive: Tensor, valid: Tensor, epsilon: float, mode: str) -> Tensor:
    """The loss of each query, 0 for those without positives or without negatives.

    Args:
        scores: The scores of the items in each query, of shape [K, n].
        is_positive: Whether an item is a positive of the query, bool of shape [K, n].
        valid: Whether it counts, bool of shape [K, n].
        epsilon: As for `direct_ap_loss`.
        mode: As for `direct_ap_loss`.

    Returns:
        The losses, of shape [K], float32 or better.
    """
    with torch.no_grad():
        losses, gradient = _losses_and_gradient(scores.detach(), is_positive, valid, epsilon, mode)
    return with_gradient(scores, losses, gradient)


def check_direct_loss(scores: Tensor, target: Tensor, weight: Tensor | None, epsilon: float, mode: str) -> Tensor:
    """Check a call of a direct loss; which items count, bool, of shape [n]."""
    check_epsilon(epsilon)
    check_mode(mode)
    if not scores.is_floating_point():
        raise TypeError(f'Parameter `scores` should be a floating-point tensor. Found {scores.dtype}.')
    for name, given in (('scores', scores), ('target', target), ('weight', weight)):
        if given is not None and (given.dim() != 1 or given.shape != scores.shape):
            raise ValueError(f'Parameter `{name}` should be of shape [n], as the scores. Found {tuple(given.shape)}.')
    valid = torch.ones_like(target, dtype=torch.bool) if weight is None else weight != 0
    check_binary('target', target, valid)
    if weight is not None:
        check_binary('weight', weight, valid)
    return valid


def check_binary(name: str, values: Tensor, valid: Tensor) -> None:
    """Raise unless the values that count are 0 or 1 (found on the CPU only)."""
    if can_be_read(values):
        wrong = valid & (values != 0) & (values != 1)
        if wrong.any():
            raise ValueError(
                f'Parameter `{name}` should be 0 or 1: an item counts or does not. '
                f'Found {values[wrong][0].item()} (in {int(wrong.sum())} items).'
            )


def check_mode(mode: str) -> None:
    """Raise unless the update is known."""
    if mode not in MODES:
        raise ValueError(f'Parameter `mode` should be one of {MODES}. Found {mode!r}.')


def _losses_and_gradient(
    scores: Tensor, is_positive: Tensor, valid: Tensor, epsilon: float, mode: str
) -> tuple[Tensor, Tensor]:
    """The losses [K], and their gradients [K, n]."""
    ordered, items = torch.where(valid, scores, -torch.inf).sort(dim=1, descending=True, stable=True)
    ordered, scores = ordered.double().clamp(min=LOWEST), scores.double()
    pos, neg = (_those(ordered, items, belongs & valid) for belongs in (is_positive, ~is_positive))
    size = (pos.size * neg.size).clamp(min=1).double().unsqueeze(1)
    if mode in ('positive', 'negative'):
        step, origin = _augmented(pos, neg, epsilon, mode), _predicted(pos, neg)
        factor = (1 if mode == 'positive' else -1) / epsilon
    else:
        step = _augmented(pos, neg, 1.0, 'positive') if mode == 'hinge' else _predicted(pos, neg)
        origin, factor = Ranking(torch.zeros_like(pos.scores), torch.zeros_like(neg.scores)), 1.0
    of_pos = _shared_by_equals(origin.above - step.above, pos)
    of_neg = _shared_by_equals(step.below - origin.below, neg)
    gradient = torch.zeros_like(scores).scatter_add(1, pos.items, of_pos).scatter_add(1, neg.items, of_neg)
    gradient = 2 * factor * gradient / size
    if mode in ('positive', 'negative'):
        losses = 1 - _mean(_precision(pos, neg), pos)
    else:
        # F is linear in the scores: its difference between two rankings is that of the gradients times the scores.
        losses = (gradient * torch.where(valid & (scores > -torch.inf), scores, 0)).sum(1)
        # A positive below all that can be compared is infinitely wrong, unless negatives are as low.
        lowest = torch.where(valid & (scores == -torch.inf), gradient, 0).sum(1)
        losses = torch.where(lowest < -TOLERANCE, torch.inf, losses)
        if mode == 'hinge':
            rank = torch.arange(1, pos.scores.shape[1] + 1, device=scores.device).double()
            losses = losses + 1 - _mean(rank / (rank + step.above), pos)
    counted = (pos.size > 0) & (neg.size > 0)
    unordered = (valid & ~(scores < torch.inf)).any(1)
    losses = torch.where(unordered, torch.nan, torch.where(counted, losses, 0))
    return losses, torch.where(unordered.unsqueeze(1), torch.nan, gradient)


class Ranking(NamedTuple):
    """Where positives and negatives are in a ranking of both."""

    above: Tensor
    """How many negatives are above each positive, of shape [K, P]."""
    below: Tensor
    """How many positives are below each negative, of shape [K, N]."""


def _predicted(pos: Ranked, neg: Ranked) -> Ranking:
    """The ranking by the scores."""
    return Ranking(_higher(pos, neg), _lower(neg, pos))


def _augmented(pos: Ranked, neg: Ranked, epsilon: float, direction: str) -> Ranking:
    """The loss-augmented ranking."""
    counts = best_rankings(pos.scores, neg.scores, pos.size, neg.size, epsilon, direction)
    return Ranking(counts.double(), _positives_below(counts, pos, neg))


def _those(ordered: Tensor, items: Tensor, belongs: Tensor) -> Ranked:
    """Those of the items in descending order [K, n] that belong."""
    size = belongs.sum(1)
    width = int(size.max()) if len(size) else 0
    belongs = belongs.gather(1, items)
    # One more place for all others, which is cut off.
    place = torch.where(belongs, belongs.cumsum(1) - 1, width)
    shape = (len(ordered), width + 1)
    scores = ordered.new_full(shape, -torch.inf).scatter_(1, place, ordered)[:, :width]
    return Ranked(scores.contiguous(), items.new_zeros(shape).scatter_(1, place, items)[:, :width], size)


def _higher(these: Ranked, those: Ranked) -> Tensor:
    """How many of those have a higher score than each of these; an equal one counts half."""
    ascending = those.scores.flip(1)
    lower, not_higher = (torch.searchsorted(ascending, these.scores, right=right) for right in (False, True))
    return torch.where(these.exists, those.scores.shape[1] - (lower + not_higher).double() / 2, 0)


def _lower(these: Ranked, those: Ranked) -> Tensor:
    """How many of those have a lower score than each of these; an equal one counts half."""
    return torch.where(these.exists, those.size.unsqueeze(1) - _higher(these, those), 0)


def _positives_below(counts: Tensor, pos: Ranked, neg: Ranked) -> Tensor:
    """How many positives are below each negative, from how many negatives are above each positive."""
    place = torch.arange(1, neg.scores.shape[1] + 1, device=counts.device).expand_as(neg.scores)
    counts = torch.where(pos.exists, counts, neg.scores.shape[1] + 1)
    below = pos.size.unsqueeze(1) - torch.searchsorted(counts, place.contiguous())
    return torch.where(neg.exists, below, 0).double()


def _shared_by_equals(values: Tensor, ranked: Ranked) -> Tensor:
    """The values with those of items of the same score replaced by their mean; 0 for padding."""
    is_next = torch.zeros_like(values, dtype=torch.long)
    is_next[:, 1:] = ranked.scores[:, 1:] != ranked.scores[:, :-1]
    group = is_next.cumsum(1)
    values = torch.where(ranked.exists, values, 0)
    total = torch.zeros_like(values).scatter_add(1, group, values)
    size = torch.zeros_like(values).scatter_add(1, group, ranked.exists.to(values.dtype))
    return torch.where(ranked.exists, total.gather(1, group) / size.gather(1, group), 0)


def _precision(pos: Ranked, neg: Ranked) -> Tensor:
    """The precision at each positive: of the items whose scores are as high, the share of positives; [K, P]."""
    hits, misses = (
        kind.scores.shape[1] - torch.searchsorted(kind.scores.flip(1), pos.scores, right=False) for kind in (pos, neg)
    )
    return hits.double() / (hits + misses).clamp(min=1)


def _mean(values: Tensor, ranked: Ranked) -> Tensor:
    """The mean over the items of each query, of shape [K]."""
    return torch.where(ranked.exists, values, 0).sum(1) / ranked.size.clamp(min=1)

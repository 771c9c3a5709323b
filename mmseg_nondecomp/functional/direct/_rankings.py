r"""Rankings that are good by the scores and bad, or good, by the average precision: equation 5 of Song et al.

A ranking y of positives P and negatives N has the score and the loss

.. math:: F(y) = \frac{1}{|P||N|} \sum_{i \in P,\, j \in N} y_{ij} (p_i - n_j), \qquad
   L(y) = 1 - \frac{1}{|P|} \sum_{i \in P} \frac{i}{i + c_i}

where :math:`y_{ij}` is 1 if positive i is above negative j, and -1 otherwise, and :math:`c_i` counts the negatives
above positive i. The ranking that maximises :math:`F \pm \epsilon L` has positives and negatives each in the order of
their scores, so the :math:`c_i` determine it.

**Slots** (:math:`F + \epsilon L`, no table of positives times negatives). If the j-th negative is ranked above the i-th
positive, as j - 1 others are already, the objective gains (times :math:`|P||N|`)

.. math:: \delta_i(j) = 2 (n_j - p_i) + \epsilon |N| \left( \frac{i}{i + j - 1} - \frac{i}{i + j} \right).

In slot o, below o positives and above all others, the negative gains :math:`\sum_{i > o} \delta_i(j)`. All
:math:`\delta_i(j)` fall with j, so if each negative takes its best slot, those further down take one no higher, and the
slots make a ranking: the best. (With the precision as a reward instead, the second term rises with j, and they may
not.) As the slots are in order, the negative in the middle halves the slots that are left to those above and below it.

**Table** (:math:`F - \epsilon L`). With :math:`S_c` the sum of the scores of the first c negatives, the objective is,
times :math:`|P||N|` and up to a constant,

.. math:: \sum_i g_i(c_i), \qquad g_i(c) = 2 (S_c - c\, p_i) \mp \epsilon |N| \frac{i}{i + c}, \qquad
   c_1 \le c_2 \le \dots \le c_{|P|}.

So the best for the first i positives, of which the last has c negatives above it, is

.. math:: f_i(c) = g_i(c) + \max_{c' \le c} f_{i - 1}(c'),

a cumulative maximum for each positive, up to the largest count that it may have. The way back needs only the places
where that maximum rises: a byte each.
"""

import warnings
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional._inputs import check_floating_point, check_number, check_option

MAX_CELLS = 2**28  # upper limit on the size of the table of the negative update: 256 MB
DIRECTIONS = ('positive', 'negative')


def loss_augmented_ranking(pos: Tensor, neg: Tensor, epsilon: float, direction: str = 'positive') -> Tensor:
    r"""Return how many negatives are above each positive, int64 [P], in descending order of the positives' scores.

    The positive direction, :math:`F + \epsilon L`, costs a sort; the negative one, :math:`F - \epsilon L`, grows with
    the number of pairs of a positive and a negative above it. Beyond 2^28 of them negatives move in blocks of
    neighbours, with a warning. Of equally good rankings, it is one with the positives as high as possible.

    Args:
        pos: The scores of the positives, of shape [P], in any order.
        neg: The scores of the negatives, of shape [N], in any order.
        epsilon: The weight of the loss, not negative.
        direction: ``'positive'`` for the worse ranking, ``'negative'`` for the better one.

    Example:
        >>> pos, neg = torch.tensor([2.0, 0.0]), torch.tensor([1.0, -1.0])
        >>> loss_augmented_ranking(pos, neg, epsilon=0.0)
        tensor([0, 1])
        >>> loss_augmented_ranking(pos, neg, epsilon=20.0), loss_augmented_ranking(pos, neg, 20.0, 'negative')
        (tensor([2, 2]), tensor([0, 0]))
    """
    for name, scores in (('pos', pos), ('neg', neg)):
        check_floating_point(name, scores)
        if scores.dim() != 1:
            raise ValueError(f'Parameter `{name}` should be of shape [n]. Found {tuple(scores.shape)}.')
    check_number('epsilon', epsilon, '[0, inf)')
    check_option('direction', direction, DIRECTIONS)
    pos, neg = (scores.double().sort(descending=True).values.unsqueeze(0) for scores in (pos, neg))
    n_pos, n_neg = (torch.tensor([scores.shape[1]], device=scores.device) for scores in (pos, neg))
    return best_rankings(pos, neg, n_pos, n_neg, epsilon if direction == 'positive' else -epsilon).squeeze(0)


def best_rankings(pos: Tensor, neg: Tensor, n_pos: Tensor, n_neg: Tensor, weight: float) -> Tensor:
    """Return the number of negatives above each positive, int64 of shape [K, P], in the best rankings of K problems.

    ``pos`` [K, P] and ``neg`` [K, N] hold scores, float64, in descending order and padded with -inf; ``n_pos`` and
    ``n_neg`` [K] are their numbers. The weight of the loss is below 0 for the better ranking.
    """
    if pos.numel() == 0 or neg.shape[1] == 0:
        return torch.zeros_like(pos, dtype=torch.long)
    if weight >= 0:
        return rankings_by_slots(pos, neg, n_pos, n_neg, weight)
    # Neither the scores nor the precision gain where a negative passes a positive with a higher score.
    exists = torch.arange(pos.shape[1], device=pos.device) < n_pos.unsqueeze(1)
    above = neg.shape[1] - torch.searchsorted(neg.flip(1), pos, right=True)
    highest = torch.where(exists, above, 0).amax(0).cummax(0).values.tolist()
    n_cells = len(pos) * (sum(highest) + len(highest))
    stride = -(-n_cells // MAX_CELLS)
    if stride > 1:
        warnings.warn(
            f'The table of the negative update would have {n_cells:,} cells. Negatives are ranked in blocks of '
            f'{stride} neighbours instead, which is an approximation. Take the positive update, or fewer items.',
            stacklevel=2,
        )
    return rankings_by_table(pos, neg, n_pos, n_neg, weight, highest, stride)


class _Ranges(NamedTuple):
    """Neighbouring negatives, first to last from 1, with the slots from ``high`` to ``low`` to choose from."""

    problem: Tensor
    first: Tensor
    last: Tensor
    high: Tensor
    low: Tensor

    def where(self, kept: Tensor) -> '_Ranges':
        """Return those that are kept."""
        return _Ranges(*(of_ranges[kept] for of_ranges in self))


def rankings_by_slots(pos: Tensor, neg: Tensor, n_pos: Tensor, n_neg: Tensor, epsilon: float) -> Tensor:
    """Return the counts of `best_rankings` for a weight that is not negative."""
    # Number of negatives in each slot; the last slot is below all positives.
    in_slot = pos.new_zeros(pos.shape[0], pos.shape[1] + 1, dtype=torch.long)
    problem = torch.arange(len(pos), device=pos.device)
    zero = torch.zeros_like(n_neg)
    ranges = _Ranges(problem, zero + 1, n_neg, zero, n_pos)
    while len(ranges.problem) > 0:
        is_decided = ranges.high == ranges.low
        decided = ranges.where(is_decided)
        in_slot.index_put_((decided.problem, decided.low), decided.last - decided.first + 1, accumulate=True)
        ranges = ranges.where(~is_decided & (ranges.first <= ranges.last))
        middle = (ranges.first + ranges.last) // 2
        slot = _best_slot(pos, neg, n_neg, epsilon, ranges, middle)
        in_slot.index_put_((ranges.problem, slot), torch.ones_like(slot), accumulate=True)
        above = ranges._replace(last=middle - 1, low=slot)
        below = ranges._replace(first=middle + 1, high=slot)
        ranges = _Ranges(*(torch.cat(pair) for pair in zip(above, below, strict=True)))
        ranges = ranges.where(ranges.first <= ranges.last)
    return in_slot[:, :-1].cumsum(1)


def _best_slot(pos: Tensor, neg: Tensor, n_neg: Tensor, epsilon: float, ranges: _Ranges, middle: Tensor) -> Tensor:
    """Return the slot of the negative in the middle of each range, the lowest of the best."""
    n_steps = ranges.low - ranges.high
    of_range = torch.repeat_interleave(torch.arange(len(n_steps), device=pos.device), n_steps)
    ends = n_steps.cumsum(0)
    step = torch.arange(len(of_range), device=pos.device) - (ends - n_steps)[of_range]
    # Up from the lowest slot: each step passes a positive.
    i, j, problem = ranges.low[of_range] - step, middle[of_range], ranges.problem[of_range]
    precision = i / ((i + j - 1).double() * (i + j))
    gain = 2 * (neg[problem, j - 1] - pos[problem, i - 1]) + epsilon * n_neg[problem] * precision
    total = gain.cumsum(0)
    before = torch.cat([total.new_zeros(1), total])[ends - n_steps]
    gained = total - before[of_range]
    best = torch.zeros_like(before).scatter_reduce(0, of_range, gained, 'amax')
    # The first step that reaches the best; none where no gain is above 0.
    last_step = n_steps.max() if len(n_steps) else 0
    reached = torch.where(gained == best[of_range], step + 1, last_step + 1)
    n_passed = torch.full_like(n_steps, int(last_step) + 1).scatter_reduce(0, of_range, reached, 'amin')
    return ranges.low - torch.where(best > 0, n_passed, 0)


def rankings_by_table(
    pos: Tensor, neg: Tensor, n_pos: Tensor, n_neg: Tensor, epsilon: float, highest: list[int], stride: int = 1
) -> Tensor:
    """Return the counts of `best_rankings`, multiples of ``stride``, for a weight of either sign.

    ``highest`` holds the largest count that each of the P positives may have, ascending.
    """
    counts = torch.arange(0, highest[-1] + stride, stride, device=pos.device)
    sums = 2 * F.pad(neg.cumsum(1), (1, 0))[:, counts.clamp(max=neg.shape[1])]
    sums.masked_fill_(counts > n_neg.unsqueeze(1), -torch.inf)
    counts, reward = counts.double(), (epsilon * n_neg).double().unsqueeze(1)
    fewest = int(n_pos.min())
    best = torch.zeros_like(sums[:, :1])
    rises = []
    for i in range(1, pos.shape[1] + 1):
        width = -(-highest[i - 1] // stride) + 1
        if width > best.shape[1]:
            # The maximum of the row before extends beyond its end.
            best = torch.cat([best, best[:, -1:].expand(-1, width - best.shape[1])], 1)
        values = best + sums[:, :width]
        values.addcmul_(counts[:width], pos[:, i - 1 : i], value=-2)
        values.addcdiv_(i * reward, i + counts[:width], value=-1)
        if i > fewest:
            values = torch.where((i <= n_pos).unsqueeze(1), values, best)
        best = values.cummax(1).values
        rises.append(torch.empty_like(best, dtype=torch.bool))
        rises[-1][:, 0] = True
        torch.gt(best[:, 1:], best[:, :-1], out=rises[-1][:, 1:])
    return stride * _way_back(rises, n_pos)


def _way_back(rises: list[Tensor], n_pos: Tensor) -> Tensor:
    """Return the place, from the last positive to the first, where the maximum up to the next one's was reached."""
    places = torch.zeros(len(n_pos), len(rises), dtype=torch.long)
    for k, n in enumerate(n_pos.tolist()):
        place = rises[-1].shape[1] - 1
        for i in range(n - 1, -1, -1):
            place = _last_rise(rises[i][k], min(place, rises[i].shape[1] - 1))
            places[k, i] = place
    return places.to(n_pos.device)


def _last_rise(row: Tensor, place: int) -> int:
    """Return the last place up to this one where the maximum rises, which it does at 0; it is mostly near."""
    reach = 1024
    while True:
        start = max(0, place + 1 - reach)
        rises = row[start : place + 1].nonzero()
        if len(rises) > 0:
            return start + int(rises[-1])
        reach *= 16

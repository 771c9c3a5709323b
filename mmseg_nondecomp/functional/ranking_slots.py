r"""The worst ranking that scores still support, negative by negative: no table of positives times negatives.

What the objective of :mod:`mmseg_nondecomp.functional.loss_augmented_ranking` gains when the j-th negative is ranked
above the i-th positive, as j - 1 others are already, is (times :math:`|P||N|`)

.. math:: \delta_i(j) = 2 (n_j - p_i) + \epsilon |N| \left( \frac{i}{i + j - 1} - \frac{i}{i + j} \right).

In slot o, below o positives and above all others, the negative gains :math:`\sum_{i > o} \delta_i(j)`. All
:math:`\delta_i(j)` fall with j, so if each negative takes its best slot, those further down take one no higher, and the
slots make a ranking: the best. (With the precision as a reward instead, the second term rises with j, and they may
not.) As the slots are in order, the negative in the middle halves the slots that are left to those above and below it.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class _Ranges(NamedTuple):
    """Neighbouring negatives, first to last from 1, that have the slots from ``high`` to ``low`` to choose from."""

    query: Tensor
    first: Tensor
    last: Tensor
    high: Tensor
    low: Tensor

    def where(self, kept: Tensor) -> '_Ranges':
        """Those that are kept."""
        return _Ranges(*(of_ranges[kept] for of_ranges in self))


def negatives_above(pos: Tensor, neg: Tensor, n_pos: Tensor, n_neg: Tensor, epsilon: float) -> Tensor:
    """For each positive, how many negatives the loss-augmented ranking of the positive update has above it.

    Args:
        pos: The scores of the positives of each query in descending order, float64 of shape [K, P].
        neg: Those of the negatives, of shape [K, N].
        n_pos: How many of the positives of a query exist, of shape [K].
        n_neg: The same for the negatives.
        epsilon: The weight of the loss.

    Returns:
        The counts, int64 of shape [K, P].
    """
    # How many negatives are in a slot; the last one is for those below all positives.
    in_slot = pos.new_zeros(pos.shape[0], pos.shape[1] + 1, dtype=torch.long)
    query = torch.arange(len(pos), device=pos.device)
    zero = torch.zeros_like(n_neg)
    ranges = _Ranges(query, zero + 1, n_neg, zero, n_pos)
    while len(ranges.query) > 0:
        is_decided = ranges.high == ranges.low
        decided = ranges.where(is_decided)
        in_slot.index_put_((decided.query, decided.low), decided.last - decided.first + 1, accumulate=True)
        ranges = ranges.where(~is_decided & (ranges.first <= ranges.last))
        middle = (ranges.first + ranges.last) // 2
        slot = _best_slot(pos, neg, n_neg, epsilon, ranges, middle)
        in_slot.index_put_((ranges.query, slot), torch.ones_like(slot), accumulate=True)
        above = ranges._replace(last=middle - 1, low=slot)
        below = ranges._replace(first=middle + 1, high=slot)
        ranges = _Ranges(*(torch.cat(pair) for pair in zip(above, below, strict=True)))
        ranges = ranges.where(ranges.first <= ranges.last)
    return in_slot[:, :-1].cumsum(1)


def _best_slot(pos: Tensor, neg: Tensor, n_neg: Tensor, epsilon: float, ranges: _Ranges, middle: Tensor) -> Tensor:
    """The slot of the negative in the middle of each range, the lowest of the best."""
    n_steps = ranges.low - ranges.high
    of_range = torch.repeat_interleave(torch.arange(len(n_steps), device=pos.device), n_steps)
    ends = n_steps.cumsum(0)
    step = torch.arange(len(of_range), device=pos.device) - (ends - n_steps)[of_range]
    # Up from the lowest slot: each step passes a positive.
    i, j, query = ranges.low[of_range] - step, middle[of_range], ranges.query[of_range]
    precision = i / ((i + j - 1).double() * (i + j))
    gain = 2 * (neg[query, j - 1] - pos[query, i - 1]) + epsilon * n_neg[query] * precision
    total = gain.cumsum(0)
    before = torch.cat([total.new_zeros(1), total])[ends - n_steps]
    gained = total - before[of_range]
    best = torch.zeros_like(before).scatter_reduce(0, of_range, gained, 'amax')
    # The first step that reaches the best; none where no gain is above 0.
    last_step = n_steps.max() if len(n_steps) else 0
    reached = torch.where(gained == best[of_range], step + 1, last_step + 1)
    n_passed = torch.full_like(n_steps, int(last_step) + 1).scatter_reduce(0, of_range, reached, 'amin')
    return ranges.low - torch.where(best > 0, n_passed, 0)

r"""The best interleaving of positives and negatives by the dynamic programme over their counts, row by row.

With :math:`c_i` negatives above the i-th positive, and :math:`S_c` the sum of the scores of the first c negatives, the
objective of :mod:`mmseg_nondecomp.functional.loss_augmented_ranking` is, times :math:`|P||N|` and up to a constant,

.. math:: \sum_i g_i(c_i), \qquad g_i(c) = 2 (S_c - c\, p_i) \mp \epsilon |N| \frac{i}{i + c}, \qquad
   c_1 \le c_2 \le \dots \le c_{|P|}.

So the best for the first i positives, of which the last has c negatives above it, is

.. math:: f_i(c) = g_i(c) + \max_{c' \le c} f_{i - 1}(c'),

a cumulative maximum for each positive, up to the largest count that it may have. The way back needs the places alone
where that maximum rises: a byte each.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def negatives_above(
    pos: Tensor, neg: Tensor, n_pos: Tensor, n_neg: Tensor, epsilon: float, highest: list[int], stride: int = 1
) -> Tensor:
    """For each positive, how many negatives the loss-augmented ranking has above it.

    Args:
        pos: The scores of the positives of each query in descending order, float64 of shape [K, P].
        neg: Those of the negatives, of shape [K, N].
        n_pos: How many of the positives of a query exist, of shape [K].
        n_neg: The same for the negatives.
        epsilon: The weight of the loss; below 0 for the negative update.
        highest: The largest count that each of the P positives may have, ascending.
        stride: The counts are multiples of this number.

    Returns:
        The counts, int64 of shape [K, P].
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
            # The maximum of the row before goes on behind its end.
            best = torch.cat([best, best[:, -1:].expand(-1, width - best.shape[1])], 1)
        found = best + sums[:, :width]
        found.addcmul_(counts[:width], pos[:, i - 1 : i], value=-2)
        found.addcdiv_(i * reward, i + counts[:width], value=-1)
        if i > fewest:
            found = torch.where((i <= n_pos).unsqueeze(1), found, best)
        best = found.cummax(1).values
        rises.append(torch.empty_like(best, dtype=torch.bool))
        rises[-1][:, 0] = True
        torch.gt(best[:, 1:], best[:, :-1], out=rises[-1][:, 1:])
    return stride * _way_back(rises, n_pos)


def _way_back(rises: list[Tensor], n_pos: Tensor) -> Tensor:
    """From the last positive to the first: the place where the maximum up to the place of the next one was reached."""
    places = torch.zeros(len(n_pos), len(rises), dtype=torch.long)
    for k, n in enumerate(n_pos.tolist()):
        place = rises[-1].shape[1] - 1
        for i in range(n - 1, -1, -1):
            place = _last_rise(rises[i][k], min(place, rises[i].shape[1] - 1))
            places[k, i] = place
    return places.to(n_pos.device)


def _last_rise(row: Tensor, place: int) -> int:
    """The last place up to this one where the maximum rises, which it does at 0; it is mostly near."""
    reach = 1024
    while True:
        start = max(0, place + 1 - reach)
        found = row[start : place + 1].nonzero()
        if len(found) > 0:
            return start + int(found[-1])
        reach *= 16

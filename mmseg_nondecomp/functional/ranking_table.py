r"""The best interleaving of positives and negatives by the dynamic programme over their counts, row by row.

With :math:`c_i` negatives above the i-th positive, and :math:`S_c` the sum of the scores of the first c negatives, the
objective of :mod:`mmseg_nondecomp.functional.loss_augmented_ranking` is, times :math:`|P||N|` and up to a constant,

.. math:: \sum_i g_i(c_i), \qquad g_i(c) = 2 (S_c - c\, p_i) \mp \epsilon |N| \frac{i}{i + c}, \qquad
   c_1 \le c_2 \le \dots \le c_{|P|}.

So the best for the first i positives, of which the last has c negatives above it, is

.. math:: f_i(c) = g_i(c) + \max_{c' \le c} f_{i - 1}(c'),

a cumulative maximum for each positive. The way back needs the places alone where that maximum rises, one bit each.
"""

import torch
from torch import Tensor


def negatives_above(
    pos: Tensor, neg: Tensor, n_pos: Tensor, n_neg: Tensor, epsilon: float, highest: Tensor, stride: int = 1
) -> Tensor:
    """For each positive, how many negatives the loss-augmented ranking has above it.

    Args:
        pos: The scores of the positives of each query in descending order, float64 of shape [K, P].
        neg: Those of the negatives, of shape [K, N].
        n_pos: How many of the positives of a query exist, of shape [K].
        n_neg: The same for the negatives.
        epsilon: The weight of the loss; below 0 for the negative update.
        highest: A bound of the counts, of shape [K].
        stride: The counts are multiples of this number.

    Returns:
        The counts, int64 of shape [K, P].
    """
    counts = torch.arange(0, int(highest.max()) + stride, stride, device=pos.device)
    sums = torch.nn.functional.pad(neg.cumsum(1), (1, 0))
    sums = 2 * sums[:, counts.clamp(max=neg.shape[1])]
    sums.masked_fill_(counts > highest.unsqueeze(1), -torch.inf)
    best = torch.zeros_like(sums)
    rises = torch.ones(pos.shape[1], *sums.shape, dtype=torch.bool, device=pos.device)
    reward = (epsilon * n_neg).double().unsqueeze(1)
    for i in range(1, pos.shape[1] + 1):
        found = best + sums
        found.addcmul_(counts.double(), pos[:, i - 1 : i], value=-2)
        found.addcmul_(reward, i / (i + counts), value=-1)
        found = torch.where((i <= n_pos).unsqueeze(1), found, best)
        best = found.cummax(1).values
        torch.gt(best[:, 1:], best[:, :-1], out=rises[i - 1, :, 1:])
    return stride * _way_back(rises, n_pos)


def _way_back(rises: Tensor, n_pos: Tensor) -> Tensor:
    """From the last positive to the first: the place where the maximum up to the place of the next one was reached."""
    n_rows, n_queries, n_places = rises.shape
    place = torch.full((n_queries,), n_places - 1, device=rises.device)
    places = []
    index = torch.arange(n_places, device=rises.device)
    for i in range(n_rows, 0, -1):
        reached = (rises[i - 1] & (index <= place.unsqueeze(1))) * index
        place = torch.where(i <= n_pos, reached.amax(1), place)
        places.append(place)
    return torch.stack(places[::-1], 1)

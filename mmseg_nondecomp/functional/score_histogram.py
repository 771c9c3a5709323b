r"""Histograms of scores, positives and negatives apart: what a ranking leaves behind in constant memory.

Scores may be probabilities or logits, of any size. Cells are equally wide in
:math:`\operatorname{asinh}(s / \delta) + \operatorname{asinh}((s - 1) / \delta)` with :math:`\delta = 10^{-7}`: finer
towards 0 and 1, where most probabilities are, and far from there of a width in proportion to the score. With 65 536
cells it is 2e-10 at 0 and at 1, 0.0006 at a half, and a thousandth of scores above 10.
"""

import math

import torch
from torch import Tensor

WIDTH = 1e-7
"""Down to what distance from 0 and 1 cells become finer."""

LARGEST = 1e9
"""Scores beyond this, and below its opposite, share a cell."""


def score_cells(scores: Tensor, bins: int) -> Tensor:
    """The cell of each score, int64 from 0 to bins - 1 in the order of the scores; ``bins`` if it has no order.

    These are NaN and infinity. What is masked by -infinity is below all others, and has the lowest cell with them.
    """
    scores = scores.double()
    place = (scores / WIDTH).asinh() + ((scores - 1) / WIDTH).asinh()
    end = 2 * math.asinh(LARGEST / WIDTH)
    cells = ((place / end + 1) * (bins / 2)).clamp(0, bins - 1)
    return torch.where(scores < torch.inf, cells, bins).long()


def count_scores(scores: Tensor, is_positive: Tensor, valid: Tensor, bins: int) -> Tensor:
    """How many items have their score in each cell.

    Args:
        scores: The scores of the items in each query, of shape [K, n].
        is_positive: Whether an item is a positive of the query, bool of shape [K, n].
        valid: Whether it counts, bool of shape [K, n].
        bins: The number of cells.

    Returns:
        The counts of negatives and of positives, int64 of shape [K, 2, bins + 1]. The last cell is for what has no
        order.
    """
    place = score_cells(scores, bins) + is_positive * (bins + 1)
    counts = torch.zeros(len(scores), 2 * (bins + 1), dtype=torch.long, device=scores.device)
    return counts.scatter_add_(1, place, valid.long()).unflatten(1, (2, bins + 1))


def average_precisions(counts: Tensor) -> Tensor:
    """The average precision of each query from its counts [K, 2, T + 1], where the items of a cell are ties.

    Returns:
        Of shape [K], float64; 0 for a query without positives, NaN for one with an item that has no order.
    """
    of_cell = counts[:, 1, :-1].flip(1)
    negatives, positives = counts[:, :, :-1].flip(2).cumsum(2).unbind(1)
    precision = positives.double() / (positives + negatives).clamp(min=1)
    average = (precision * of_cell).sum(1) / of_cell.sum(1).clamp(min=1)
    return torch.where((counts[:, :, -1] > 0).any(1), torch.nan, average)


def areas_under_roc(counts: Tensor) -> Tensor:
    """The area under the ROC curve of each query from its counts [K, 2, T + 1]; a pair in one cell counts a half.

    Returns:
        Of shape [K], float64; 0 for a query without positives or negatives, NaN for one with an item without order.
    """
    negatives, positives = counts[:, 0, :-1].double(), counts[:, 1, :-1].double()
    below = negatives.cumsum(1) - negatives / 2
    pairs = positives.sum(1) * negatives.sum(1)
    area = (positives * below).sum(1) / pairs.clamp(min=1)
    return torch.where((counts[:, :, -1] > 0).any(1), torch.nan, area)

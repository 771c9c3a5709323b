r"""Rankings that are good by the scores and bad, or good, by the average precision.

A ranking y of positives and negatives has the score and the loss

.. math:: F(y) = \frac{1}{|P||N|} \sum_{i \in P,\, j \in N} y_{ij} (p_i - n_j), \qquad
   L(y) = 1 - \frac{1}{|P|} \sum_{i \in P} \frac{i}{i + c_i}

where :math:`y_{ij}` is 1 if positive i is above negative j, and -1 otherwise, and :math:`c_i` counts the negatives
above positive i. The ranking that maximises :math:`F \pm \epsilon L` has positives and negatives each in the order of
their scores, so it is told by the :math:`c_i`.

Reference:
    Y. Song, A. G. Schwing, R. S. Zemel, R. Urtasun: Training deep neural networks via direct loss minimization.
    ICML 2016. https://arxiv.org/abs/1511.06411 (equation 5)
"""

import math
import warnings

import torch
from torch import Tensor

from mmseg_nondecomp.functional import ranking_slots, ranking_table

MAX_CELLS = 2**28
"""How many cells the table of the negative update may have: 256 MB."""

DIRECTIONS = ('positive', 'negative')


def loss_augmented_ranking(pos: Tensor, neg: Tensor, epsilon: float, direction: str = 'positive') -> Tensor:
    r"""For each positive in descending order of its score, how many negatives are ranked above it.

    The positive direction, :math:`F + \epsilon L`, costs a sort; the negative one, :math:`F - \epsilon L`, grows with
    the number of pairs of a positive and a negative above it. Beyond 2^28 of them negatives move in blocks of
    neighbours, and a warning says so. Of rankings that are equally good, it is one with the positives as high
    as can be.

    Args:
        pos: The scores of the positives, of shape [P], in any order.
        neg: The scores of the negatives, of shape [N], in any order.
        epsilon: The weight of the loss, not negative.
        direction: ``'positive'`` for the worse ranking, ``'negative'`` for the better one.

    Returns:
        The counts, int64 of shape [P].

    Raises:
        TypeError: If scores are not of floating point.
        ValueError: If a shape, ``epsilon`` or ``direction`` does not fit.

    Example:
        >>> pos, neg = torch.tensor([2.0, 0.0]), torch.tensor([1.0, -1.0])
        >>> loss_augmented_ranking(pos, neg, epsilon=0.0)
        tensor([0, 1])
        >>> loss_augmented_ranking(pos, neg, epsilon=20.0), loss_augmented_ranking(pos, neg, 20.0, 'negative')
        (tensor([2, 2]), tensor([0, 0]))
    """
    for name, scores in (('pos', pos), ('neg', neg)):
        if not scores.is_floating_point():
            raise TypeError(f'Parameter `{name}` should be a floating-point tensor. Found {scores.dtype}.')
        if scores.dim() != 1:
            raise ValueError(f'Parameter `{name}` should be of shape [n]. Found {tuple(scores.shape)}.')
    check_epsilon(epsilon, lowest_is_allowed=True)
    if direction not in DIRECTIONS:
        raise ValueError(f'Parameter `direction` should be one of {DIRECTIONS}. Found {direction!r}.')
    pos, neg = (scores.double().sort(descending=True).values.unsqueeze(0) for scores in (pos, neg))
    n_pos, n_neg = (torch.tensor([scores.shape[1]], device=scores.device) for scores in (pos, neg))
    return best_rankings(pos, neg, n_pos, n_neg, epsilon, direction).squeeze(0)


def best_rankings(pos: Tensor, neg: Tensor, n_pos: Tensor, n_neg: Tensor, epsilon: float, direction: str) -> Tensor:
    """The same for several queries at once, sorted and padded.

    Args:
        pos: The scores of the positives of each query in descending order, float64 of shape [K, P], then -inf.
        neg: Those of the negatives, of shape [K, N].
        n_pos: How many of the positives of a query exist, of shape [K].
        n_neg: The same for the negatives.
        epsilon: The weight of the loss.
        direction: ``'positive'`` or ``'negative'``.

    Returns:
        The counts, int64 of shape [K, P].
    """
    if pos.numel() == 0 or neg.shape[1] == 0:
        return torch.zeros_like(pos, dtype=torch.long)
    if direction == 'positive':
        return ranking_slots.negatives_above(pos, neg, n_pos, n_neg, epsilon)
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
    return ranking_table.negatives_above(pos, neg, n_pos, n_neg, -epsilon, highest, stride)


def check_epsilon(epsilon: float, lowest_is_allowed: bool = False) -> None:
    """Raise unless the weight of the loss is positive, or 0 where it may be."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)):
        raise TypeError(f'Parameter `epsilon` should be a number. Found {epsilon!r}.')
    if not (0 < epsilon < math.inf or (lowest_is_allowed and epsilon == 0)):
        raise ValueError(f'Parameter `epsilon` should be positive and finite. Found {epsilon}.')

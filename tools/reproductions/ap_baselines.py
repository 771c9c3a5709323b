r"""Baselines of the package's average precision losses.

Reference:
    Y. Song, A. G. Schwing, R. S. Zemel, R. Urtasun: Training deep neural networks via direct loss minimization.
    ICML 2016. https://arxiv.org/abs/1511.06411 (figure 2)
"""

import numpy as np
import torch
from torch import Tensor


def cell_by_cell(pos: np.ndarray, neg: np.ndarray, epsilon: float) -> list[int]:
    """Solve the dynamic program of figure 2 cell by cell; a negative epsilon gives the negative update.

    Args:
        pos: Scores of the positives in descending order.
        neg: Scores of the negatives in descending order.
        epsilon: The weight of the loss.

    Returns:
        The number of negatives above each positive.
    """
    n_pos, n_neg = len(pos), len(neg)
    size = n_pos * n_neg
    # Terms of a positive below the first j negatives, and of a negative below the first i positives.
    of_positive = np.zeros((n_pos + 1, n_neg + 1))
    of_negative = np.zeros((n_pos + 1, n_neg + 1))
    of_positive[1:, 1:] = -np.cumsum(pos[:, None] - neg, 1) / size
    of_negative[1:, 1:] = np.cumsum(pos[:, None] - neg, 0) / size
    best = np.zeros((n_pos + 1, n_neg + 1))
    ends_with_positive = np.zeros((n_pos + 1, n_neg + 1), bool)
    for i in range(1, n_pos + 1):
        for j in range(n_neg + 1):
            with_positive = best[i - 1, j] + of_positive[i, j] - epsilon / n_pos * i / (i + j)
            with_negative = best[i, j - 1] + of_negative[i, j] if j else -np.inf
            ends_with_positive[i, j] = with_positive > with_negative
            best[i, j] = max(with_positive, with_negative)
    counts, i, j = [], n_pos, n_neg
    while i > 0:
        if ends_with_positive[i, j]:
            counts.append(j)
            i -= 1
        else:
            j -= 1
    return counts[::-1]


def smooth_ap_loss(scores: Tensor, target: Tensor, temperature: float = 0.01) -> Tensor:
    """Compute one minus a smooth average precision whose ranks are sums of sigmoids over pairs."""
    is_positive = target == 1
    higher = torch.sigmoid((scores - scores[is_positive].unsqueeze(1)) / temperature)
    own = torch.arange(len(scores), device=scores.device) == is_positive.nonzero()
    higher = torch.where(own, 0, higher)
    return 1 - ((1 + higher[:, is_positive].sum(1)) / (1 + higher.sum(1))).mean()

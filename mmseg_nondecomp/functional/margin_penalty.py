r"""What an item adds to the bounds of its rate: the distance to a margin, or a smooth function above it.

Both lie above the step function that they bound, times the margin :math:`\varepsilon`, and scale with it: where score
and margin double, so does the penalty. The linear fractional transformation of F_β needs that.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

SURROGATES = ('hinge', 'logistic')


def margin_penalty(score: Tensor, epsilon: Tensor, surrogate: str) -> Tensor:
    r"""The penalty of a score that should be below :math:`-\varepsilon`.

    .. math:: \max(0, \varepsilon + z) \quad\text{or}\quad \varepsilon \log_2(1 + \exp(z / \varepsilon)).

    Args:
        score: The score z; of a positive, minus its score.
        epsilon: The margin, above 0.
        surrogate: ``'hinge'`` or ``'logistic'``.
    """
    if surrogate == 'hinge':
        return (epsilon + score).clamp(min=0)
    # By default softplus is taken for x from 20 on, with a jump; at 40 the two are the same number.
    return epsilon / math.log(2) * F.softplus(score / epsilon, threshold=40)


def margin_slope(score: Tensor, epsilon: Tensor, surrogate: str) -> Tensor:
    """The derivative of the penalty by the score."""
    if surrogate == 'hinge':
        return (score > -epsilon).to(score.dtype)
    return torch.sigmoid(score / epsilon) / math.log(2)

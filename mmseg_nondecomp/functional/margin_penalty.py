r"""Bounds on the step function: the distance to a margin, or a smooth function above it.

Both are positively homogeneous: :math:`\varepsilon\,\phi(z / \varepsilon)` with
:math:`\phi(x) = \max(0, 1 + x)` or :math:`\log_2(1 + e^x)`. The linear fractional transformation of F_β needs that.
"""

import math

import torch.nn.functional as F
from torch import Tensor

SURROGATES = ('hinge', 'logistic')

SCALE = {'hinge': 1.0, 'logistic': 1 / math.log(2)}
"""The factors that `unit_penalty` and `unit_slope` leave out, so that it is sums that are multiplied by them."""


def margin_penalty(score: Tensor, epsilon: Tensor, surrogate: str) -> Tensor:
    r"""Return the penalty of scores that should be below :math:`-\varepsilon`.

    .. math:: \max(0, \varepsilon + z) \quad\text{or}\quad \varepsilon \log_2(1 + \exp(z / \varepsilon)).

    Args:
        score: The score z; of a positive, minus its score.
        epsilon: The margin, above 0.
        surrogate: ``'hinge'`` or ``'logistic'``.
    """
    return SCALE[surrogate] * epsilon * unit_penalty(score / epsilon, surrogate)


def margin_slope(score: Tensor, epsilon: Tensor, surrogate: str) -> Tensor:
    """Return the derivative of the penalty with respect to the score."""
    return SCALE[surrogate] * unit_slope(score / epsilon, surrogate)


def unit_penalty(x: Tensor, surrogate: str) -> Tensor:
    """Return the penalty of scores in units of the margin, without its factor."""
    # By default softplus returns x from 20 on, with a jump; at 40 the two are the same number.
    return (1 + x).clamp(min=0) if surrogate == 'hinge' else F.softplus(x, threshold=40)


def unit_slope(x: Tensor, surrogate: str) -> Tensor:
    """Return the derivative of `unit_penalty`."""
    return (x > -1).to(x.dtype) if surrogate == 'hinge' else x.sigmoid()

r"""Elementary symmetric polynomials in log space: sums over all k-tuples of many numbers, by a tree of products.

.. math:: \sigma_k(e) = \sum_{|A| = k} \prod_{i \in A} e_i, \qquad \prod_i (1 + e_i z) = \sum_j \sigma_j(e)\, z^j

The product is taken pair by pair, each polynomial cut off behind degree k. All coefficients are positive, so nothing is
subtracted, neither here nor in the derivative (see :mod:`mmseg_nondecomp.functional.polynomial_products`), and no
approximation is needed where the recursion of the paper loses its digits (its section 3.3).

Reference:
    L. Berrada, A. Zisserman, M. P. Kumar: Smooth loss functions for deep top-k classification. ICLR 2018.
    https://arxiv.org/abs/1802.07595
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional.log_sums import log_sums
from mmseg_nondecomp.functional.polynomial_products import Arithmetic, product_tree
from mmseg_nondecomp.functional.topk_settings import check_degree


def log_elementary_symmetric(x: Tensor, k: int) -> Tensor:
    r"""The logarithms of :math:`\sigma_0, \dots, \sigma_k` of :math:`e^x`.

    Cost and memory grow with n k. It can be differentiated any number of times.

    Args:
        x: Logarithms of the numbers, of shape [..., n]; -inf for those that are 0.
        k: The highest degree, at least 0.

    Returns:
        The logarithms, of shape [..., k + 1]; -inf from where on there are fewer numbers than the degree.

    Raises:
        TypeError: If ``x`` is not of floating point, or ``k`` is no integer.
        ValueError: If ``k`` is negative.

    Example:
        >>> numbers = torch.tensor([1.0, 2.0, 3.0])
        >>> log_elementary_symmetric(numbers.log(), 3).exp()
        tensor([ 1.0000,  6.0000, 11.0000,  6.0000])
    """
    check_degree(k)
    if not x.is_floating_point():
        raise TypeError(f'Parameter `x` should be a floating-point tensor. Found {x.dtype}.')
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    if k == 0 or x.shape[-1] == 0:
        return F.pad(x.new_zeros(*x.shape[:-1], 1), (0, k), value=-math.inf)
    return log_sums(_root, x, k)


def _root(leaves: Tensor, k: int, arithmetic: Arithmetic) -> Tensor:
    return product_tree(leaves, k, arithmetic)[-1].squeeze(1)


def highest(scores: Tensor) -> Tensor:
    """The highest of the scores [..., C], of shape [..., 1], as a constant to subtract: 0 where it is not finite."""
    found = scores.detach().amax(-1, keepdim=True)
    return torch.where(found.isfinite(), found, 0)

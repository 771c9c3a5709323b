r"""Elementary symmetric polynomials of all numbers but one, for each of them: the tree of products from above.

What surrounds a leaf of the tree is the product of all siblings on its way from the root. It is made of positive
coefficients, too, where dividing the whole product by one factor would subtract.
"""

import torch
from torch import Tensor

from mmseg_nondecomp.functional.log_sums import log_sums
from mmseg_nondecomp.functional.polynomial_products import Arithmetic, product_tree


def log_leave_one_out(x: Tensor, k: int) -> Tensor:
    r"""The logarithms of :math:`\sigma_0, \dots, \sigma_k` of :math:`e^{x_{\setminus i}}` for each i.

    Args:
        x: Logarithms of the numbers, of shape [..., n] with n at least 1; -inf for those that are 0.
        k: The highest degree, at least 0.

    Returns:
        The logarithms, of shape [..., n, k + 1].
    """
    return torch.zeros_like(x).unsqueeze(-1) if k == 0 else log_sums(_around_leaves, x, k)


def _around_leaves(leaves: Tensor, k: int, arithmetic: Arithmetic) -> Tensor:
    levels = product_tree(leaves, k, arithmetic)
    # Around the root there is nothing: the polynomial 1.
    around = torch.full_like(levels[-1][:1], arithmetic.zero)
    for level in reversed(levels[:-1]):
        first, second = level.chunk(2, 1)
        around = around[:, : first.shape[1]]  # without what was added to make the number even
        around = torch.cat([arithmetic.product(around, second, k), arithmetic.product(around, first, k)], 1)
    return around[:, : leaves.shape[1]]

r"""Elementary symmetric polynomials of all numbers but one, for each of them: the tree of products from above.

What surrounds a leaf of the tree is the product of all siblings on its way from the root. It is made of positive
coefficients, too, where dividing the whole product by one factor would subtract.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional.elementary_symmetric import absent, log_product, product_tree


def log_leave_one_out(x: Tensor, k: int) -> Tensor:
    r"""The logarithms of :math:`\sigma_0, \dots, \sigma_k` of :math:`e^{x_{\setminus i}}` for each i.

    Args:
        x: Logarithms of the numbers, of shape [..., n] with n at least 1; -inf for those that are 0.
        k: The highest degree, at least 0.

    Returns:
        The logarithms, of shape [..., n, k + 1].
    """
    constant = torch.zeros_like(x)
    if k == 0:
        return constant.unsqueeze(-1)
    levels = product_tree(x, k)
    # Around the root there is nothing: the polynomial 1.
    nothing = absent(x, k)
    around = torch.full_like(levels[-1][:1], nothing)
    for level in reversed(levels[:-1]):
        first, second = level.chunk(2, -1)
        around = around[..., : first.shape[-1]]  # without what was added to make the number even
        around = torch.cat([log_product(around, second, k), log_product(around, first, k)], -1)
    around = around[..., : x.shape[-1]].movedim(0, -1)
    around = torch.where(around > nothing / 2, around, torch.where(around.isnan(), around, -math.inf))
    return F.pad(torch.cat([constant.unsqueeze(-1), around], -1), (0, k - around.shape[-1]), value=-math.inf)

"""The logarithms of sums of products: by numbers where they are known to be in range, by logarithms elsewhere."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional.items import can_be_read
from mmseg_nondecomp.functional.polynomial_products import Arithmetic, logarithms, numbers

BLOCK = 2**20
"""How many numbers are worked on at a time: what a cache holds."""


def log_sums(sums: Callable[[Tensor, int, Arithmetic], Tensor], x: Tensor, k: int) -> Tensor:
    """Compute sums of products in the fastest way that is exact.

    Args:
        sums: Takes the polynomials :math:`1 + e_i z`, of shape [1, n, B], the highest degree and the arithmetic; gives
            for each degree from 1 on sums of products of as many :math:`e_i`, of shape [d, *, B].
        x: Logarithms of the numbers e, of shape [..., n] with n at least 1; -inf for those that are 0.
        k: The highest degree, at least 1.

    Returns:
        The logarithms of the sums, of shape [..., *, k + 1]; 0 for degree 0, and -inf for sums without a product.
    """
    columns = x.reshape(-1, x.shape[-1]).t()
    blocks = columns.split(max(1, BLOCK // len(columns)), 1)
    found = torch.cat([_log_sums(sums, block.contiguous(), k) for block in blocks], -1)
    found = found.movedim(0, -1).movedim(-2, 0)
    found = F.pad(F.pad(found, (1, 0)), (0, k - found.shape[-1]), value=-math.inf)
    return found.reshape(*x.shape[:-1], *found.shape[1:])


def _log_sums(sums: Callable[[Tensor, int, Arithmetic], Tensor], x: Tensor, k: int) -> Tensor:
    """The same for [n, B]; of shape [d, *, B]."""
    if not can_be_read(x) or x.numel() == 0:
        return _by_logarithms(sums, x, k)
    # The numbers are scaled to add up to k, with which no sum of products is above e^k.
    scale = x.detach().logsumexp(0) - math.log(k)
    scale = torch.where(scale.isfinite(), scale, 0)
    for dtype in dict.fromkeys((x.dtype, torch.float64)):
        found = sums((x - scale).to(dtype).exp().unsqueeze(0), k, numbers())
        if _is_in_range(found, len(x), k):
            degree = torch.arange(1, len(found) + 1).view(-1, *[1] * (found.dim() - 1))
            return (found.log() + degree * scale).to(x.dtype)
    return _by_logarithms(sums, x.double(), k).to(x.dtype)


def _by_logarithms(sums: Callable[[Tensor, int, Arithmetic], Tensor], x: Tensor, k: int) -> Tensor:
    arithmetic = logarithms(x.dtype, k)
    found = sums(torch.where(x == -math.inf, arithmetic.zero, x).unsqueeze(0), k, arithmetic)
    return torch.where(found > arithmetic.zero / 2, found, torch.where(found.isnan(), found, -math.inf))


def _is_in_range(sums: Tensor, n: int, k: int) -> bool:
    """Whether what was lost below the smallest number cannot be seen, in the sums and in their derivatives.

    A tree of n polynomials takes less than 2 n k² products. Each loses less than the smallest number, and reaches a sum
    times a sum of products of other numbers, which is at most e^k.
    """
    limits = torch.finfo(sums.dtype)
    lost = 2 * n * k**2 * limits.tiny * math.exp(min(k, 700))
    lowest, highest = sums.detach().aminmax()
    return lowest.item() * limits.eps > lost and highest.item() < math.inf

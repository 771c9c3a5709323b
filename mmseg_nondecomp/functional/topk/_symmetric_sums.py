r"""Elementary symmetric polynomials by cumulative sums: sums over all k-tuples of many numbers.

.. math:: \sigma_k(e) = \sum_{|A| = k} \prod_{i \in A} e_i, \qquad
   P_j(i) = \sum_{i' \le i} e_{i'} P_{j-1}(i' - 1), \quad P_0 = 1, \quad \sigma_j = P_j(n)

The derivative is the same recursion from the other end. With :math:`g_j = \partial L / \partial \sigma_j`,

.. math:: T_j(i) = g_j + \sum_{i' > i} e_{i'} T_{j+1}(i'), \qquad
   \frac{\partial L}{\partial e_i} = \sum_j T_j(i)\, P_{j-1}(i - 1).

Nothing is subtracted, so no digits are lost, unlike in the recursion of the paper that `smooth` cites (section 3.3).
For numbers of any range, the k largest are set apart and the others are measured in units of the k-th: a sum of their
products that is too small for the data type is negligible beside the products of the k largest.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional._inputs import at_least_float32, can_be_read, check_floating_point, check_integer

BLOCK = 2**16  # number of elements processed at a time on the CPU, for its cache
LARGEST_DEGREE = 1000  # largest degree of a sum: the number of subsets of this size is in the range of float64


def check_degree(k: int) -> None:
    """Raise ValueError if sums over sets of k numbers may be out of range."""
    if k > LARGEST_DEGREE:
        raise ValueError(f'Parameter `k` should be at most {LARGEST_DEGREE}, for sums over sets of k. Found {k}.')


def log_elementary_symmetric(x: Tensor, k: int) -> Tensor:
    r"""Compute the logarithms of :math:`\sigma_0, \dots, \sigma_k` of :math:`e^x`.

    Cost and memory grow with n k. The result, of shape [..., k + 1], can be differentiated repeatedly. It is -inf for
    degrees above the number of non-zero numbers.

    Args:
        x: Logarithms of the numbers, of shape [..., n]; -inf for a number 0.
        k: The highest degree, at least 0.

    Raises:
        ValueError: If ``k`` is negative, or above 1000 with as many numbers.

    Example:
        >>> numbers = torch.tensor([1.0, 2.0, 3.0])
        >>> log_elementary_symmetric(numbers.log(), 3).exp()
        tensor([ 1.0000,  6.0000, 11.0000,  6.0000])
    """
    check_integer('k', k, lowest=0)
    check_floating_point('x', x)
    x = at_least_float32(x)
    degree = min(k, x.shape[-1])
    check_degree(degree)
    logarithms = _logarithms(x, degree) if degree > 0 else x.new_zeros(*x.shape[:-1], 1)
    return F.pad(logarithms, (0, k - degree), value=-math.inf).to(x.dtype)


def _logarithms(x: Tensor, k: int) -> Tensor:
    """Compute the logarithms [..., k + 1], k <= n, without a shortcut only where it is not exact."""
    for wide in (x, x.double()) if can_be_read(x) else ():
        unit = common_unit(wide, k)
        if unit is not None:
            sums, *_ = _SymmetricSums.apply((wide - unit).exp(), k)
            return sums.log() + unit * torch.arange(k + 1, dtype=wide.dtype)
    return _of_any_range(x.to(sums_dtype(x, k)), k)


def _of_any_range(x: Tensor, k: int) -> Tensor:
    """Compute the logarithms of the sums [..., k + 1] of numbers of any range, with k of them set apart.

    These are added from the smallest to the largest. ``v`` has the logarithms of the sums so far, in units of the
    product of the j largest numbers so far. The units are constants, so a derivative is a part of a sum and no
    difference.
    """
    y, places = x.topk(k)
    is_zero = y == -math.inf
    y = y.masked_fill(is_zero, 0)
    units = y.detach()
    e, log_size = scaled_exp(x.scatter(-1, places, -math.inf) - units[..., -1:], k)
    sums = _SymmetricSums.apply(e, k)[0]
    degrees = torch.arange(k + 1, dtype=x.dtype, device=x.device)
    v = sums.clamp(min=torch.finfo(x.dtype).tiny).log() + degrees * log_size
    # Row l: the numbers after the l-th, over the l-th.
    following = torch.cat([units.masked_fill(is_zero, -math.inf), units[..., -1:].expand_as(y)], -1)
    ratios = following[..., 1:].unfold(-1, k, 1) - units.unsqueeze(-1)
    for l in reversed(range(k)):
        without, with_it = v[..., 1:] + ratios[..., l, :], v[..., :-1] + (y - units)[..., l : l + 1]
        v = torch.cat([v[..., :1], torch.stack([without, with_it]).logsumexp(0)], -1)
    logarithms = F.pad(units.cumsum(-1), (1, 0)) + v
    return logarithms.masked_fill(F.pad(is_zero, (1, 0)), -math.inf)


def common_unit(x: Tensor, k: int, scale: float = 1.0) -> float | None:
    """Return the maximum m of x if it can be read and no sum of exp((x - m) / scale) leaves the range; else None."""
    if not can_be_read(x) or x.numel() == 0:
        return None
    room = 0.9 * math.log(torch.finfo(x.dtype).max)
    lowest, highest = (bound.item() for bound in x.detach().aminmax())
    is_in_range = k * (highest - lowest) < room * scale and _log_count(x.shape[-1], k) < room
    return highest if is_in_range else None


def sums_dtype(x: Tensor, k: int) -> torch.dtype:
    """Return the data type whose range holds the sums of numbers up to 1."""
    return x.dtype if _log_count(x.shape[-1], k) < 0.75 * math.log(torch.finfo(x.dtype).max) else torch.float64


def _log_count(n: int, k: int) -> float:
    """Return the logarithm of the largest number of products in a sum over up to k of n numbers."""
    return math.log(math.comb(n, min(k, n // 2)))


def scaled_exp(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the exponentials of x <= 0, divided to add up to at most k / 2, and the logarithm of the divisor.

    No sum over any k of them is above e^(k/2).
    """
    # 0 in place of subnormal numbers, with which a CPU takes 30 times as long.
    tiny = torch.finfo(x.dtype).tiny
    e = F.threshold(x.clamp(min=math.log(2 * tiny)).exp(), 3 * tiny, 0)
    size = (e.detach().sum(-1, keepdim=True) * (2 / k)).clamp(min=1)
    return e / size, size.log()


def symmetric_sums(e: Tensor, k: int) -> tuple[Tensor, list[Tensor]]:
    r"""Compute :math:`\sigma_0, \dots, \sigma_k` [..., k + 1] of numbers [..., n], n >= k >= 1, and the prefix sums.

    These are :math:`P_1, \dots, P_{k-1}`, with :math:`P_j` of shape [..., n - j + 1]: before the j-th number it is 0.
    """
    terms, prefixes = e, []
    for j in range(1, k):
        prefixes.append(terms.cumsum(-1))
        terms = e[..., j:] * prefixes[-1][..., :-1]
    last = terms.sum(-1)
    return torch.stack([torch.ones_like(last), *(prefix[..., -1] for prefix in prefixes), last], -1), prefixes


def sums_gradient(e: Tensor, prefixes: list[Tensor], seeds: Tensor) -> Tensor:
    r"""Compute :math:`\sum_j g_j\, \partial \sigma_j / \partial e_i` for seeds :math:`g_1, \dots, g_k` [..., k]."""
    k, n, last = seeds.shape[-1], e.shape[-1], seeds[..., -1:]
    if k == 1:
        return last.expand_as(e)
    backwards, suffix, suffixes = e.flip(-1), last, []
    for j in range(k - 1, 0, -1):
        suffix = torch.cat([seeds[..., j - 1 : j], backwards[..., : n - j] * suffix], -1).cumsum(-1)
        suffixes.append(suffix.flip(-1))
    gradient = suffixes.pop()
    for j, factor in enumerate([*reversed(suffixes), last], 1):
        gradient[..., j:].addcmul_(factor, prefixes[j - 1][..., :-1])
    return gradient


class _SymmetricSums(torch.autograd.Function):
    """`symmetric_sums`, as a flat tuple of the sums and the prefix sums."""

    @staticmethod
    def forward(e: Tensor, k: int) -> tuple[Tensor, ...]:
        sums, prefixes = symmetric_sums(e, k)
        return sums, *prefixes

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[0], *output[1:])

    @staticmethod
    def backward(ctx: Any, seeds: Tensor, *_: Tensor) -> tuple[Tensor, None]:
        e, *prefixes = ctx.saved_tensors
        if torch.is_grad_enabled():  # The second derivative goes through the prefix sums.
            prefixes = symmetric_sums(e, seeds.shape[-1] - 1)[1]
        return sums_gradient(e, prefixes, seeds[..., 1:]), None

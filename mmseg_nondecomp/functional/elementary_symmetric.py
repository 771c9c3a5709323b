r"""Elementary symmetric polynomials in log space: sums over all k-tuples of many numbers, by a tree of products.

.. math:: \sigma_k(e) = \sum_{|A| = k} \prod_{i \in A} e_i, \qquad \prod_i (1 + e_i z) = \sum_j \sigma_j(e)\, z^j

The product is taken pair by pair, each polynomial cut off behind degree k. All coefficients are positive, so their
logarithms are added by log-sum-exp alone; nothing is subtracted, neither here nor in the derivative, which hands
to each factor of a product its share of it:

.. math:: \sigma_d = \sum_{i + j = d} a_i b_j, \qquad
   \frac{\partial \log \sigma_d}{\partial \log a_i} = \frac{a_i b_{d - i}}{\sigma_d}.

The shares of a coefficient add up to 1 in floating point too, whatever the size of the numbers. So no approximation is
needed where the recursion of the paper loses its digits (its section 3.3).

Reference:
    L. Berrada, A. Zisserman, M. P. Kumar: Smooth loss functions for deep top-k classification. ICLR 2018.
    https://arxiv.org/abs/1802.07595
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

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
    constant = x.new_zeros(*x.shape[:-1], 1)
    if k == 0:
        return constant
    if x.shape[-1] == 0:
        return F.pad(constant, (0, k), value=-math.inf)
    root = product_tree(x, k)[-1].squeeze(-1).movedim(0, -1)
    root = torch.where(root > absent(x, k) / 2, root, torch.where(root.isnan(), root, -math.inf))
    return F.pad(torch.cat([constant, root], -1), (0, k - root.shape[-1]), value=-math.inf)


def below_highest(scores: Tensor) -> Tensor:
    """Scores [..., C] less the highest of them, in float32 or better: it is the differences that decide."""
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    highest = scores.detach().amax(-1, keepdim=True)
    return scores - torch.where(highest.isfinite(), highest, 0)


def product_tree(x: Tensor, k: int) -> list[Tensor]:
    """The levels of the tree, from the leaves to the root.

    A polynomial is kept as the logarithms of its coefficients from degree 1 to k; that of degree 0 is always 1. Level
    by level, polynomial ``i`` of the first half is multiplied with polynomial ``i`` of the second.

    Args:
        x: Logarithms of the numbers, of shape [..., n].
        k: The highest degree, at least 1.

    Returns:
        The levels, of shape [d, ..., m] with d up to k; all but the root with an even m, for which a 1 is added.
    """
    nothing = absent(x, k)
    level = torch.where(x == -math.inf, nothing, x).unsqueeze(0)
    levels = []
    while level.shape[-1] > 1:
        level = F.pad(level, (0, level.shape[-1] % 2), value=nothing)
        levels.append(level)
        first, second = level.chunk(2, -1)
        level = log_product(first, second, k)
    return [*levels, level]


def absent(x: Tensor, k: int) -> float:
    """What stands for the logarithm of 0 in the tree: so low that k of them are still a number, unlike -inf."""
    return -torch.finfo(x.dtype).max / (4 * k)


def log_product(a: Tensor, b: Tensor, k: int) -> Tensor:
    """The product of polynomials, cut off behind degree k.

    Args:
        a: The logarithms of the coefficients from degree 1 on, of shape [p, ...].
        b: Those of the other factor, of shape [q, ...].
        k: The highest degree.

    Returns:
        Those of the product, of shape [min(p + q, k), ...].
    """
    return _LogProduct.apply(a, b, min(len(a) + len(b), k))


class _LogProduct(torch.autograd.Function):
    """Log-sum-exp along the antidiagonals, with shares that add up to 1 for its derivative."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, n_degrees: int) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.n_degrees = n_degrees
        product = a.new_empty(n_degrees, *a.shape[1:])
        for d in range(1, n_degrees + 1):
            _log_sum_exp([_term(a, b, i, j) for i, j in _degrees(a, b, d)], product[d - 1])
        return product

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b = ctx.saved_tensors
        of_a: list[Any] = [0] * (len(a) + 1)
        of_b: list[Any] = [0] * (len(b) + 1)
        for d in range(1, ctx.n_degrees + 1):
            degrees = _degrees(a, b, d)
            shares = _shares([_term(a, b, i, j) for i, j in degrees], gradient[d - 1])
            for share, (i, j) in zip(shares, degrees, strict=True):
                of_a[i] = of_a[i] + share
                of_b[j] = of_b[j] + share
        return torch.stack(of_a[1:]), torch.stack(of_b[1:]), None


def _log_sum_exp(terms: list[Tensor], out: Tensor) -> None:
    """The logarithm of the sum of the exponentials; what few terms need less work for is most of a tree."""
    if len(terms) == 1:
        out.copy_(terms[0])
    elif len(terms) == 2:
        torch.logaddexp(*terms, out=out)
    else:
        highest = _largest(terms)
        total = (terms[0] - highest).exp_()
        for term in terms[1:]:
            total.add_((term - highest).exp_())
        torch.add(highest, total.log_(), out=out)


def _shares(terms: list[Tensor], whole: Tensor) -> list[Tensor]:
    """What each term has of the whole, by its exponential."""
    if len(terms) == 1:
        return [whole]
    if len(terms) == 2:
        difference = terms[0] - terms[1]
        return [difference.sigmoid() * whole, (-difference).sigmoid() * whole]
    highest = _largest(terms)
    powers = [(term - highest).exp() for term in terms]
    part = whole / sum(powers)
    return [power * part for power in powers]


def _largest(terms: list[Tensor]) -> Tensor:
    highest = terms[0].detach()
    for term in terms[1:]:
        highest = torch.maximum(highest, term.detach())
    return highest


def _degrees(a: Tensor, b: Tensor, d: int) -> list[tuple[int, int]]:
    """The degrees of the coefficients whose products have the degree d."""
    return [(i, d - i) for i in range(max(0, d - len(b)), min(d, len(a)) + 1)]


def _term(a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
    """The product of two coefficients."""
    if i == 0:
        return b[j - 1]
    return a[i - 1] if j == 0 else a[i - 1] + b[j - 1]

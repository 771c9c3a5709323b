r"""Products of polynomials with positive coefficients, cut off behind a degree: as numbers, or by their logarithms.

A polynomial :math:`1 + a_1 z + \dots + a_p z^p` is kept as its coefficients from degree 1 on, in the first dimension.
Nothing is subtracted, neither here nor in the derivative, which hands to each factor of a product its share of it:

.. math:: c_d = \sum_{i + j = d} a_i b_j, \qquad
   \frac{\partial \log c_d}{\partial \log a_i} = \frac{a_i b_{d - i}}{c_d}.

So what is lost is rounding alone. Numbers are several times faster; logarithms have room for any size.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Arithmetic(NamedTuple):
    """How coefficients are kept."""

    product: Callable[[Tensor, Tensor, int], Tensor]
    """Of polynomials [p, ...] and [q, ...], cut off behind a degree."""
    zero: float
    """What stands for a coefficient of 0."""


def numbers() -> Arithmetic:
    """The coefficients as they are."""
    return Arithmetic(_Product.apply, 0.0)


def logarithms(dtype: torch.dtype, k: int) -> Arithmetic:
    """Their logarithms. That of 0 is so low that k of them are still a number, unlike -inf."""
    return Arithmetic(_LogProduct.apply, -torch.finfo(dtype).max / (4 * k))


def product_tree(leaves: Tensor, k: int, arithmetic: Arithmetic) -> list[Tensor]:
    """Multiply pair by pair: polynomial ``i`` of the first half with polynomial ``i`` of the second.

    Args:
        leaves: The polynomials, of shape [p, n, B].
        k: The degree to cut off behind, at least that of the leaves.
        arithmetic: How they are kept.

    Returns:
        The levels from the leaves to the root, of shape [d, m, B] with d up to k; all but the root with an even m, for
        which the polynomial 1 is added.
    """
    level, levels = leaves, []
    while level.shape[1] > 1:
        if level.shape[1] % 2:
            level = torch.cat([level, torch.full_like(level[:, :1], arithmetic.zero)], 1)
        levels.append(level)
        first, second = level.chunk(2, 1)
        level = arithmetic.product(first, second, k)
    return [*levels, level]


class _Product(torch.autograd.Function):
    """The convolution of the coefficients."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, k: int) -> Tensor:
        ctx.save_for_backward(a, b)
        product = a.new_zeros(min(len(a) + len(b), k), *a.shape[1:])
        product[: len(a)] += a
        product[: len(b)] += b
        for d, whole in enumerate(product, 1):
            for i, j in _degrees(a, b, d, lowest=1):
                whole.addcmul_(a[i - 1], b[j - 1])
        return product

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b = ctx.saved_tensors
        of_a, of_b = gradient[: len(a)].clone(), gradient[: len(b)].clone()
        for d, of_whole in enumerate(gradient, 1):
            for i, j in _degrees(a, b, d, lowest=1):
                of_a[i - 1].addcmul_(of_whole, b[j - 1])
                of_b[j - 1].addcmul_(of_whole, a[i - 1])
        return of_a, of_b, None


class _LogProduct(torch.autograd.Function):
    """Log-sum-exp along the antidiagonals, with shares that add up to 1 for its derivative."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, k: int) -> Tensor:
        ctx.save_for_backward(a, b)
        product = a.new_empty(min(len(a) + len(b), k), *a.shape[1:])
        for d, whole in enumerate(product, 1):
            _log_sum_exp([_log_term(a, b, i, j) for i, j in _degrees(a, b, d)], whole)
        return product

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b = ctx.saved_tensors
        of_a, of_b = torch.zeros_like(a), torch.zeros_like(b)
        for d, of_whole in enumerate(gradient, 1):
            degrees = _degrees(a, b, d)
            shares = _shares([_log_term(a, b, i, j) for i, j in degrees], of_whole)
            for share, (i, j) in zip(shares, degrees, strict=True):
                if i > 0:
                    of_a[i - 1] += share
                if j > 0:
                    of_b[j - 1] += share
        return of_a, of_b, None


def _degrees(a: Tensor, b: Tensor, d: int, lowest: int = 0) -> list[tuple[int, int]]:
    """The degrees, from the lowest on, of the coefficients whose products have the degree d."""
    return [(i, d - i) for i in range(max(lowest, d - len(b)), min(d - lowest, len(a)) + 1)]


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


def _log_term(a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
    """The logarithm of the product of two coefficients."""
    if i == 0:
        return b[j - 1]
    return a[i - 1] if j == 0 else a[i - 1] + b[j - 1]

r"""Algorithms of the smooth top-k paper as described there, for batches, as baselines of the package's.

For numbers :math:`e_i = e^{x_i}`, :math:`\sigma_j` is the sum of the products of all subsets of size j, and
:math:`\delta_{j,i} = \partial \sigma_j / \partial e_i` the same for j - 1 without :math:`e_i`. ``x`` has the shape
[..., n], and its polynomials [..., k + 1], for the degrees 0 to k.

Reference:
    L. Berrada, A. Zisserman, M. P. Kumar: Smooth loss functions for deep top-k classification. ICLR 2018, section 4 and
    appendix B. https://arxiv.org/abs/1802.07595
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

UNSTABLE = 1e-5
"""Default relative difference of the subtracted terms below which the recursion is unstable: the rounding that appendix
B.2.2 assumes for single precision. The paper itself gives no threshold."""


def summation(e: Tensor, k: int) -> Tensor:
    """Compute Algorithm 3, number by number: σ_j,i = σ_j,i-1 + e_i σ_j-1,i-1."""
    sigma = torch.ones_like(e[..., :1])
    for number in e.split(1, -1):
        raised = sigma * number
        sigma = torch.cat([sigma[..., :1], sigma[..., 1:] + raised[..., :-1], raised[..., -1:]], -1)[..., : k + 1]
    return sigma


def log_summation(x: Tensor, k: int) -> Tensor:
    """Compute Algorithm 3 for logarithms (appendix B.2.1): products become sums, sums become log-sum-exp."""
    sigma = torch.zeros_like(x[..., :1])
    for number in x.split(1, -1):
        raised = sigma + number
        added = torch.logaddexp(sigma[..., 1:], raised[..., :-1])
        sigma = torch.cat([sigma[..., :1], added, raised[..., -1:]], -1)[..., : k + 1]
    return sigma


def divide_and_conquer(x: Tensor, k: int) -> Tensor:
    """Compute Algorithm 1 for logarithms: σ_j(e) are the first coefficients of σ_n(e) Π_i (X + 1/e_i) (equation 14)."""
    coefficients = multiply_all([-x, torch.zeros_like(x)], k)
    return torch.cat(coefficients, -1) + x.sum(-1, keepdim=True)


def multiply_all(factors: list[Tensor], k: int) -> list[Tensor]:
    """Return the product of m polynomials up to degree k, the first half times the second, level by level.

    Args:
        factors: The logarithms of the coefficients of each degree, from 0 on, of shape [..., m].
        k: The highest degree.

    Returns:
        The logarithms of the coefficients of the product, of shape [..., 1].
    """
    m = factors[0].shape[-1]
    if m == 1:
        return factors
    first, second, odd = zip(*(c.split([m // 2, m // 2, m % 2], -1) for c in factors), strict=True)
    product = multiply_all(multiply(first, second, k), k)
    return multiply(product, odd, k) if m % 2 else product


def multiply(a: Any, b: Any, k: int) -> list[Tensor]:
    """Return the products of pairs of polynomials up to degree k."""
    return [
        reduce(torch.logaddexp, [a[i] + b[d - i] for i in range(max(0, d - len(b) + 1), min(d, len(a) - 1) + 1)])
        for d in range(min(len(a) + len(b) - 1, k + 1))
    ]


def marginals(
    x: Tensor, log_sigma: Tensor, k: int, order: int | None = None, unstable: float = UNSTABLE
) -> dict[int, Tensor]:
    """Compute Algorithm 2 from the results of the forward pass.

    Args:
        x: Logarithms of the numbers.
        log_sigma: Logarithms of their polynomials, up to degree k + order.
        k: The degree to differentiate, at least 1.
        order: The order p of the approximation where the recursion is unstable; None for the recursion alone.
        unstable: The relative difference of the subtracted terms below which the recursion is unstable.

    Returns:
        For the degrees k - 1 and k: the derivatives e_i δ_j,i / σ_j of log σ_j by x_i, of the shape of ``x``.
    """
    found = {k - 1: torch.zeros_like(x)}
    plus, minus = torch.zeros_like(x), torch.full_like(x, -torch.inf)
    for j in range(1, k + 1):
        if j > 1:
            # δ_j,i = σ_j-1 - e_i δ_j-1,i (equation 18), as logarithms of its positive and its negative part.
            plus, minus = torch.logaddexp(log_sigma[..., j - 1 : j], minus.add_(x)), plus.add_(x)
        if j >= k - 1:
            left = (minus - plus).expm1_().neg_()
            found[j] = (x + plus).sub_(log_sigma[..., j : j + 1]).exp_().mul_(left)
            if order is not None:
                where = (~(left > unstable)).nonzero(as_tuple=True)
                found[j][where] = approximation(x[where], log_sigma[where[:-1]], j, order)
    return found


def approximation(x: Tensor, log_sigma: Tensor, k: int, order: int) -> Tensor:
    r"""Return the approximation of order p (equation 60) of the same derivatives, for one number of each polynomial.

    .. math:: \delta_{k,i} \approx \sum_{j=0}^p (-1)^j \frac{\sigma_{k+j}}{e_i^{j+1}}

    The paper prints the power j instead of j + 1; its equations 61 and 62 are correct.
    """
    return sum((-1) ** j * (log_sigma[..., k + j] - log_sigma[..., k] - j * x).exp() for j in range(order + 1))


def with_custom_backward(x: Tensor, k: int) -> Tensor:
    """Return log σ_k-1 and log σ_k by Algorithm 1, differentiated by Algorithm 2 with the approximation."""
    return _CustomBackward.apply(x, k)


class _CustomBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, k: int) -> Tensor:
        ctx.k, ctx.order = k, default_order(k)
        log_sigma = divide_and_conquer(x, k + ctx.order)
        ctx.save_for_backward(x, log_sigma)
        return log_sigma[..., k - 1 : k + 1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        x, log_sigma = ctx.saved_tensors
        of_degree = marginals(x, log_sigma, ctx.k, ctx.order)
        return sum(gradient[..., d : d + 1] * of_degree[ctx.k - 1 + d] for d in range(2)), None


def default_order(k: int) -> int:
    """Return the p recommended by appendix B.2.2, 0.2 k."""
    return max(1, round(0.2 * k))


def loss_by(
    log_sigma: Callable[[Tensor, int], Tensor],
    scores: Tensor,
    target: Tensor,
    k: int = 5,
    tau: float = 1.0,
    margin: float = 1.0,
) -> Tensor:
    """Return the mean loss of a batch [N, n] (equation 10), with the polynomials by one of the algorithms."""
    x = scores / (k * tau)
    label = target.unsqueeze(1)
    # The last replaces the label's own.
    others = x.scatter(1, label, x[:, -1:])[:, :-1]
    polynomials = log_sigma(others, k)
    odds_of_miss = polynomials[:, -1] - polynomials[:, -2] - x.gather(1, label).squeeze(1)
    return tau * F.softplus(margin / tau + odds_of_miss).mean()

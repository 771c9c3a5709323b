r"""Loss max-pooling: the highest loss that a constrained re-weighting of the items can reach.

.. math::
    L_W(\ell) = \max_w \; w \cdot \ell \quad\text{s.t.}\quad \|w\|_p \le \gamma,\; \|w\|_\infty \le \tau,
    \qquad \gamma = n^{-1/q},\; \tau = \gamma\, m^{-1/p},\; \tfrac1p + \tfrac1q = 1

Uniform weights :math:`1/n` are feasible, so the pooled loss is never below the mean. With ``p = inf`` or ``m = n`` it
is the mean; with ``p = 1`` and an integer ``m`` it is the mean of the ``m`` highest losses.

The maximiser is :math:`w^*_i = \tau \min(\ell_i/\alpha^*, 1)^{q-1}`, where :math:`\alpha^*` is the largest root of

.. math:: \sum_i \min(\ell_i/\alpha, 1)^q = m.

Nothing is sorted to find it. A histogram gives a pivot near the :math:`\lceil m\rceil`-th highest loss, and with
:math:`y_i = q \log(\ell_i/\text{pivot})` and :math:`s = q \log(\alpha/\text{pivot})` the equation reads
:math:`K(s) + S(s) = m`, with :math:`K = \#\{y > s\}` and :math:`S = \sum_{y \le s} e^{y-s}`: the scale of the problem
no longer depends on ``q``. Holding the set behind ``K`` fixed, its solution is the Newton step
:math:`s \leftarrow s + \log\frac{S}{m-K}`, which descends monotonically to the largest root from anything above it.

Reference:
    S. Rota Bulò, G. Neuhold, P. Kontschieder: Loss Max-Pooling for Semantic Image Segmentation. CVPR 2017.
    https://arxiv.org/abs/1704.02966
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional.selection import Reduce, upper_bin_edge

NEWTON_STEPS = 7
"""Three reach rounding error on the losses of a network; adversarial sets with ``m`` just above an integer need nine
to gain the last 1e-9."""


class PoolingWeights(NamedTuple):
    """The maximiser of each row, and how many items it keeps at full weight."""

    weights: Tensor
    """w*, of shape [R, P]; 0 for the items left out."""
    support: Tensor
    """Share of the valid items with the full weight τ, of shape [R]."""


def max_pooling_weights(losses: Tensor, p: float, m: float) -> Tensor:
    r"""The weights :math:`w^*` that maximise :math:`w \cdot \ell`, without gradient.

    Args:
        losses: Non-negative losses of ``n`` items, of shape [n].
        p: The norm, from 1 (peaked) to infinity (uniform).
        m: The least number of items that carry weight, real, from 1 to ``n``. With ``p = 1``, equal losses share.

    Returns:
        The weights, of shape [n], in the dtype of ``losses`` (float32 for half precision).

    Raises:
        TypeError: If ``losses`` is not a floating-point tensor.
        ValueError: If a shape or a value is out of range, or a loss is negative or NaN.

    Example:
        >>> max_pooling_weights(torch.tensor([3.0, 1.0, 2.0, 0.0]), p=1, m=2)
        tensor([0.5000, 0.0000, 0.5000, 0.0000])
    """
    check_p(p)
    check_losses(losses)
    if losses.dim() != 1 or losses.numel() == 0:
        raise ValueError(f'Parameter `losses` should be of shape [n] with n >= 1. Found {tuple(losses.shape)}.')
    if not 1 <= m <= losses.numel():
        raise ValueError(f'Parameter `m` should be in [1, {losses.numel()}], the number of losses. Found {m}.')
    valid = torch.ones_like(losses, dtype=torch.bool)[None]
    items = torch.full((1, 1), float(m), dtype=torch.float64, device=losses.device)
    return pooling_weights(losses.detach()[None], valid, p, items).weights[0]


def loss_max_pooling(losses: Tensor, p: float = 1.3, ratio: float = 0.25, mask: Tensor | None = None) -> Tensor:
    r"""The max-pooled loss of one set of items, with ``m = max(1, ratio * n)``. Its gradient is :math:`w^*`.

    Args:
        losses: Non-negative losses of any shape.
        p: The norm, from 1 (peaked) to infinity (the plain mean).
        ratio: The least share of the items that carries weight, in (0, 1].
        mask: Which items belong to the set (bool, of the shape of ``losses``); all when omitted.

    Returns:
        A scalar; 0, attached to the graph, if the set is empty.

    Raises:
        TypeError: If ``losses`` is not a floating-point tensor or ``mask`` not a bool tensor.
        ValueError: If a shape or a value is out of range, or a loss of the set is negative or NaN.

    Example:
        >>> losses = torch.tensor([4.0, 1.0, 1.0, 2.0])
        >>> loss_max_pooling(losses, p=1, ratio=0.25)
        tensor(4.)
        >>> loss_max_pooling(losses, p=math.inf)
        tensor(2.)
    """
    check_p(p)
    check_ratio(ratio)
    if mask is None:
        mask = torch.ones_like(losses, dtype=torch.bool)
    elif mask.dtype != torch.bool or mask.shape != losses.shape:
        raise ValueError(
            f'Parameter `mask` should be a bool tensor of the shape of `losses`, {tuple(losses.shape)}. '
            f'Found {mask.dtype} of shape {tuple(mask.shape)}.'
        )
    check_losses(losses, mask)
    rows, valid = losses.reshape(1, -1), mask.reshape(1, -1)
    weights = pooling_weights(rows.detach(), valid, p, pooled_items(valid, ratio)).weights
    return pool(rows, valid, weights).sum()


def pooled_items(valid: Tensor, ratio: float, reduce: Reduce = lambda count: count) -> Tensor:
    """``m = max(1, ratio * n)`` for each row of the mask [R, P], as float64 of shape [R, 1]."""
    n = reduce(valid.sum(1, keepdim=True))
    return (ratio * n.double()).clamp(min=1)


def pool(losses: Tensor, valid: Tensor, weights: Tensor) -> Tensor:
    """w* · ℓ for each row of [R, P]; what an invalid item holds, even NaN, reaches neither value nor gradient."""
    return (losses.masked_fill(~valid, 0) * weights).sum(1)


@torch.no_grad()
def pooling_weights(
    losses: Tensor, valid: Tensor, p: float, m: Tensor, reduce: Reduce = lambda sums: sums
) -> PoolingWeights:
    """The maximisers for many sets at once, one a row, on one process or on many.

    Nothing is read back to the host and no shape depends on values. A NaN among the losses gives whatever weights, and
    a NaN loss.

    Args:
        losses: Non-negative losses, of shape [R, P].
        valid: Which of them belong to their row's set, bool, of shape [R, P].
        p: The norm, from 1 to infinity.
        m: The least number of items with weight, float64, of shape [R, 1].
        reduce: Sums a small tensor over the processes that share the sets.

    Returns:
        The weights and their support.
    """
    if losses.dtype in (torch.float16, torch.bfloat16):
        losses = losses.float()
    n = reduce(valid.sum(1, keepdim=True)).double().clamp(min=1)
    if p == math.inf:
        weights = valid / n.to(losses.dtype)
        return PoolingWeights(weights, torch.ones_like(n[:, 0], dtype=losses.dtype))
    # Zeros stand in as the smallest normal number, which changes no optimum that float arithmetic can tell apart and
    # spares the logarithm its slow special cases.
    limits = torch.finfo(losses.dtype)
    losses = torch.where(valid, losses, 0)
    magnitudes = losses.clamp(limits.tiny, limits.max).abs_()  # clears the sign of a NaN
    if p == 1:
        weights, full = _top_weights(magnitudes, m, reduce)
    else:
        weights, full = _norm_weights(magnitudes, n, p, m, reduce)
    weights.mul_(losses.sign_())
    return PoolingWeights(weights, (full / n)[:, 0].to(losses.dtype))


def _top_weights(losses: Tensor, m: Tensor, reduce: Reduce) -> tuple[Tensor, Tensor]:
    """Theorem 2: τ = 1/m above the ⌈m⌉-th highest loss, and what is left of the mass shared by its equals."""
    alpha = upper_bin_edge(losses, m, 0, reduce)
    above, equal = losses > alpha, losses == alpha
    n_above, n_equal = reduce(torch.stack([above.sum(1, True), equal.sum(1, True)])).double()
    share = (m - n_above) / n_equal.clamp(min=1)
    weights = torch.where(above, 1, share.to(losses.dtype) * equal) / m.to(losses.dtype)
    return weights, torch.where(share >= 1, n_above + n_equal, n_above)


def _norm_weights(losses: Tensor, n: Tensor, p: float, m: Tensor, reduce: Reduce) -> tuple[Tensor, Tensor]:
    """Theorem 1: τ · min(ℓ/α*, 1)^(q-1), where (q-1)/q = 1/p. Overwrites ``losses``."""
    q = p / (p - 1)
    pivot = upper_bin_edge(losses, m, min(1 / q, 0.5) if q < 1e6 else 0, reduce)
    y = losses.div_(pivot).log_().mul_(q)
    s = torch.zeros_like(m)
    tail, above = torch.empty_like(y), torch.empty_like(y)  # once: fresh memory costs as much as the arithmetic
    for step in range(NEWTON_STEPS):
        torch.sub(y, s.to(y.dtype), out=tail)
        torch.sign(tail, out=above).clamp_(min=0)
        # A term below e^-80 is lost in S anyway, and would be subnormal, which processors compute slowly.
        tail.clamp_(-80, 0).exp_().sub_(above)
        n_above, tail_sum = reduce(torch.stack([above.sum(1, True), tail.sum(1, True)]).double())
        # From below the root a full step may overshoot by far and would have to come back in many: double it instead.
        newton = (tail_sum / (m - n_above)).log().clamp(max=2.0**step)
        s = torch.where(n_above < m, s + newton, s)
    tau = n ** (-1 / q) * m ** (-1 / p)
    return y.sub_(s.to(y.dtype)).clamp_(max=0).div_(p).exp_().mul_(tau.to(y.dtype)), n_above


def check_number(name: str, value: float) -> None:
    """Raise TypeError unless the value is an int or a float."""
    if not isinstance(value, (int, float)):
        raise TypeError(f'Parameter `{name}` should be a number. Found {value!r}.')


def check_p(p: float) -> None:
    """Raise unless p is a number and 1 <= p <= inf."""
    check_number('p', p)
    if not p >= 1:
        raise ValueError(f'Parameter `p` should be in [1, inf]. Found {p}.')


def check_ratio(ratio: float) -> None:
    """Raise unless ratio is a number and 0 < ratio <= 1."""
    check_number('ratio', ratio)
    if not 0 < ratio <= 1:
        raise ValueError(f'Parameter `ratio` should be in (0, 1]. Found {ratio}.')


def check_losses(losses: Tensor, mask: Tensor | None = None) -> None:
    """Raise unless the losses (inside of the mask) are floating-point, non-negative and not NaN."""
    if not losses.is_floating_point():
        raise TypeError(f'Parameter `losses` should be a floating-point tensor. Found {losses.dtype}.')
    bad = ~(losses >= 0) if mask is None else mask & ~(losses >= 0)
    if bad.any():
        raise ValueError(
            f'Parameter `losses` should be non-negative and not NaN. Found {losses[bad][0].item()} '
            f'({int(bad.sum())} such values).'
        )

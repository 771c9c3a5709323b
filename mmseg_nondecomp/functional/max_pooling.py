r"""Loss max-pooling: the highest loss over constrained re-weightings of the items.

.. math::
    L_W(\ell) = \max_w \; w \cdot \ell \quad\text{s.t.}\quad \|w\|_p \le \gamma,\; \|w\|_\infty \le \tau,
    \qquad \gamma = n^{-1/q},\; \tau = \gamma\, m^{-1/p},\; \tfrac1p + \tfrac1q = 1

Uniform weights :math:`1/n` are feasible, so the pooled loss is never below the mean. With ``p = inf`` or ``m = n`` it
is the mean; with ``p = 1`` and an integer ``m`` it is the mean of the ``m`` highest losses.

The maximiser is :math:`w^*_i = \tau \min(\ell_i/\alpha^*, 1)^{q-1}`, where :math:`\alpha^*` is the largest root of

.. math:: \sum_i \min(\ell_i/\alpha, 1)^q = m.

With :math:`a = \alpha^q`, :math:`K = \#\{\ell^q > a\}` and :math:`R = \sum_{\ell^q \le a} \ell^q` it reads
:math:`K + R/a = m`. The left side is concave and piecewise linear in :math:`1/a`, and each piece has the root
:math:`a = R/(m - K)`: Newton's step. It never falls below :math:`a^* = (\alpha^*)^q` and descends from there on, so
:math:`a^*` is the least of the roots of all pieces.

Nothing is sorted. A histogram of the leading bits of the losses gives all pieces of the losses rounded up; Newton's
steps start from the least of their roots. Powers are relative to it. Where :math:`q` is so large that they leave the
range of floats, they are relative to about the :math:`\lceil m\rceil`-th highest loss, and the histogram is of the
powers.

Reference:
    S. Rota Bulò, G. Neuhold, P. Kontschieder: Loss Max-Pooling for Semantic Image Segmentation. CVPR 2017.
    https://arxiv.org/abs/1704.02966
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import (
    Reduce,
    at_least_float32,
    check_floating_point,
    check_number,
    in_one_process,
    is_due,
    refuse,
)
from mmseg_nondecomp.functional._selection import upper_bin_edge

NEWTON_STEPS = 5
"""Number of Newton steps: three reach rounding error on the losses of a network; adversarial sets with ``m`` just above
an integer need five for the last 1e-6."""

LARGEST_EXPONENT = 7  # largest exponent for which powers of float32 numbers, and their sums, are in range of float64
N_BINS = 2040  # number of bins of the non-negative finite float32 numbers: they agree in exponent and 3 mantissa bits
SMALLEST = 1e-300  # a positive number to divide by instead of 0


class SetSizes(NamedTuple):
    """The sizes of sets."""

    n: Tensor  # number of items, float64 of shape [R, 1]
    m: Tensor  # the least number of items with weight, float64 of shape [R, 1]


class PoolingWeights(NamedTuple):
    """Maximiser of each row, and the share of items at full weight."""

    weights: Tensor  # w*, of shape [R, P]; 0 for the items left out
    support: Tensor  # share of the valid items with the full weight τ, of shape [R]


def max_pooling_weights(losses: Tensor, p: float, m: float) -> Tensor:
    r"""Compute the weights :math:`w^*` [n] that maximise :math:`w \cdot \ell`, float32 or better, without gradient.

    Args:
        losses: Non-negative losses of ``n`` items, of shape [n].
        p: The norm, from 1 (peaked) to infinity (uniform).
        m: The least number of items that carry weight, real, from 1 to ``n``. With ``p = 1``, equal losses share.

    Example:
        >>> max_pooling_weights(torch.tensor([3.0, 1.0, 2.0, 0.0]), p=1, m=2)
        tensor([0.5000, 0.0000, 0.5000, 0.0000])
    """
    check_number('p', p, '[1, inf]')
    _check_losses(losses)
    if losses.dim() != 1 or losses.numel() == 0:
        raise ValueError(f'Parameter `losses` should be of shape [n] with n >= 1. Found {tuple(losses.shape)}.')
    if not 1 <= m <= losses.numel():
        raise ValueError(f'Parameter `m` should be in [1, {losses.numel()}], the number of losses. Found {m}.')
    valid = torch.ones_like(losses, dtype=torch.bool)[None]
    n, m_ = (torch.full((1, 1), float(size), dtype=torch.float64, device=losses.device) for size in (losses.numel(), m))
    return pooling_weights(losses.detach()[None], valid, p, SetSizes(n, m_)).weights[0]


def loss_max_pooling(losses: Tensor, p: float = 1.3, ratio: float = 0.25, mask: Tensor | None = None) -> Tensor:
    r"""Compute the max-pooled loss of one set of items, with ``m = max(1, ratio * n)``. Its gradient is :math:`w^*`.

    Args:
        losses: Non-negative losses of any shape.
        p: The norm, from 1 (peaked) to infinity (the plain mean).
        ratio: The least share of the items that carries weight, in (0, 1].
        mask: Which items belong to the set (bool, of the shape of ``losses``); all when omitted. The loss of an
            empty set is 0, attached to the graph.

    Example:
        >>> losses = torch.tensor([4.0, 1.0, 1.0, 2.0])
        >>> loss_max_pooling(losses, p=1, ratio=0.25)
        tensor(4.)
        >>> loss_max_pooling(losses, p=math.inf)
        tensor(2.)
    """
    check_number('p', p, '[1, inf]')
    check_number('ratio', ratio, '(0, 1]')
    if mask is None:
        mask = torch.ones_like(losses, dtype=torch.bool)
    elif mask.dtype != torch.bool or mask.shape != losses.shape:
        raise ValueError(
            f'Parameter `mask` should be a bool tensor of the shape of `losses`, {tuple(losses.shape)}. '
            f'Found {mask.dtype} of shape {tuple(mask.shape)}.'
        )
    _check_losses(losses, mask)
    rows, valid = losses.masked_fill(~mask, 0).reshape(1, -1), mask.reshape(1, -1)
    weights = pooling_weights(rows.detach(), valid, p, pooled_items(valid, ratio)).weights
    return (rows * weights).sum()


def pooled_items(valid: Tensor, ratio: float, reduce: Reduce = in_one_process) -> SetSizes:
    """Return the sizes of the sets in the rows of a mask [R, P], with ``m = max(1, ratio * n)``."""
    n = reduce(valid.sum(1, keepdim=True)).double()
    return SetSizes(n, (ratio * n).clamp(min=1))


@torch.no_grad()
def pooling_weights(
    losses: Tensor, valid: Tensor, p: float, sizes: SetSizes, reduce: Reduce = in_one_process
) -> PoolingWeights:
    """Return the maximisers for losses [R, P], one set a row, on one process or on many.

    ``valid`` masks the losses that belong to their row's set. No value is read back to the host and no shape depends on
    values. With a NaN among the losses the weights are arbitrary and the loss is NaN.
    """
    losses = at_least_float32(losses)
    n, m = sizes.n.clamp(min=1), sizes.m
    if p == math.inf:
        return PoolingWeights(valid / n.to(losses.dtype), torch.ones_like(n[:, 0]))
    limits = torch.finfo(losses.dtype)
    losses = torch.where(valid, losses, 0).nan_to_num_(posinf=limits.max)
    # The smallest normal number stands in for 0: the same optimum to float precision, without slow logarithms.
    magnitudes = losses.clamp(min=limits.tiny)
    weights, n_full = _top_weights(magnitudes, m, reduce) if p == 1 else _norm_weights(magnitudes, n, p, m, reduce)
    return PoolingWeights(weights.mul_(losses.sign_()), (n_full / n)[:, 0])


def _top_weights(losses: Tensor, m: Tensor, reduce: Reduce) -> tuple[Tensor, Tensor]:
    """Compute theorem 2: τ = 1/m above the ⌈m⌉-th highest loss; losses equal to it share the rest of the mass."""
    alpha = upper_bin_edge(losses, m, 0, reduce)
    above, equal = losses > alpha, losses == alpha
    n_above, n_equal = reduce(torch.stack([above.sum(1, True), equal.sum(1, True)])).double()
    share = (m - n_above) / n_equal.clamp(min=1)
    weights = torch.where(above, 1, share.to(losses.dtype) * equal) / m.to(losses.dtype)
    return weights, torch.where(share >= 1, n_above + n_equal, n_above)


def _norm_weights(losses: Tensor, n: Tensor, p: float, m: Tensor, reduce: Reduce) -> tuple[Tensor, Tensor]:
    """Compute theorem 1: τ · min(ℓ/α*, 1)^(q-1), where (q-1)/q = 1/p. Overwrites ``losses``."""
    q = p / (p - 1)
    in_range = q <= LARGEST_EXPONENT and losses.dtype == torch.float32
    if in_range:
        bound = _upper_bound(losses, q, m, reduce)
        pivot = bound.clamp(max=torch.finfo(losses.dtype).max).to(losses.dtype)
    else:
        pivot = upper_bin_edge(losses, m, min(1 / q, 0.5) if q < 1e6 else 0, reduce)
    y = losses.div_(pivot).log_().mul_(q)
    powers = y.clamp(-80, 80).exp_()
    start = (bound / pivot).pow(q) if in_range else _upper_bound(powers.float(), 1, m, reduce)
    root, n_above = _newton(powers, start.to(y.dtype), m, reduce)
    tau = n ** (-1 / q) * m ** (-1 / p)
    # Not below e^-64 τ: subnormal numbers are slow.
    return y.sub_(root.log()).div_(p).clamp_(-64, 0).exp_().mul_(tau.to(y.dtype)), n_above


def _upper_bound(losses: Tensor, q: float, m: Tensor, reduce: Reduce) -> Tensor:
    r"""Return α* of float32 losses rounded up to 3 bits of mantissa: an upper bound, at most 1/8 too large.

    It is the largest of the linear pieces' roots in :math:`t = \alpha^{-q}`, one for each number they are rounded to.
    """
    ends = torch.arange((1 << 20) - 1, N_BINS << 20, 1 << 20, dtype=torch.int32, device=losses.device)
    place = (losses.view(torch.int32) >> 20).long()
    counts = torch.zeros(len(losses), N_BINS, dtype=torch.int32, device=losses.device)
    one = torch.ones((), dtype=torch.int32, device=losses.device)
    counts = reduce(counts.scatter_add_(1, place, one.expand_as(place)))
    tails = counts * ends.view(torch.float32).double().pow(q)
    tails = tails.log_().logcumsumexp(1).exp_().clamp_(min=SMALLEST)  # a deterministic cumsum, on CUDA too
    up_to = counts.cumsum(1)
    t = (m - up_to[:, -1:] + up_to) / tails
    return t.amax(1, keepdim=True).pow(-1 / q)


def _newton(powers: Tensor, root: Tensor, m: Tensor, reduce: Reduce) -> tuple[Tensor, Tensor]:
    """Return the largest root a of K + R/a = m, and K, starting from an upper bound."""
    above, tail = sides = powers.new_empty(2, *powers.shape)  # once: fresh memory costs as much as the arithmetic
    for _ in range(NEWTON_STEPS):
        torch.gt(powers, root, out=above)
        torch.addcmul(powers, powers, above, value=-1, out=tail)
        n_above, tail_sum = reduce(sides.sum(2, keepdim=True).double())
        # The clamp applies where rounding leaves no room for the tail: the root is exact there.
        root = torch.minimum(root, (tail_sum / (m - n_above).clamp(min=SMALLEST)).to(root.dtype))
    return root, n_above


def _check_losses(losses: Tensor, mask: Tensor | None = None) -> None:
    """Raise unless the losses inside the mask are floating-point, non-negative and not NaN."""
    check_floating_point('losses', losses)
    if is_due(losses, 'losses', losses.dim()):
        bad = ~(losses >= 0) if mask is None else mask & ~(losses >= 0)
        refuse(bad, 'Parameter `losses` should be non-negative and not NaN.', losses)

r"""The odds that a label is left out of the top-k set.

The set A of k labels is drawn with weight :math:`\prod_{j \in A} e_j`, :math:`e = e^{s / k \tau}`; for
:math:`\tau \to 0` it is that of the highest scores. Then

.. math:: \log \frac{P(y \notin A)}{P(y \in A)}
   = \log \frac{\sigma_k(e_{\setminus y})}{e_y\, \sigma_{k-1}(e_{\setminus y})}.

In units of the k-th largest, let z be the reciprocals of the k largest numbers, and r the others. Both are at most 1.
Over the product of the k largest,

.. math:: \sigma_k(e) \propto \sum_a \sigma_a(z)\, \sigma_a(r), \qquad
   \sigma_{k-1}(e) \propto \sum_a \sigma_{a+1}(z)\, \sigma_a(r).
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional.elementary_symmetric import (
    BLOCK,
    common_unit,
    scaled_exp,
    sums_dtype,
    sums_gradient,
    symmetric_sums,
)
from mmseg_nondecomp.functional.items import can_be_read
from mmseg_nondecomp.functional.topk_settings import check_k, check_summable

FEW = 8
"""Largest k for which each of the k highest is left out in turn: fewer operations, but memory grows with its cube."""
SMALL_TEMPERATURE = 1e-20
"""Scores divided by less than this may be beyond the range of float32."""


def log_odds_of_miss(scores: Tensor, target: Tensor, k: int, tau: float) -> Tensor:
    """Return the logarithm of the odds against labels.

    Where there are fewer than k others, it is -inf: the label is in each set. There the gradient is not 0, but what is
    finite of -inf has none.

    Args:
        scores: The scores, of shape [N, *, C].
        target: The labels [N, *], or soft labels [N, *, C], for which the odds against each label are computed.
        k: The size of the set.
        tau: The temperature.

    Returns:
        The logarithms, of the shape of the target.
    """
    check_k(k, scores.shape[-1])
    check_summable(k)
    if k * tau < SMALL_TEMPERATURE:
        scores = scores.double()
    rows = scores.reshape(-1, scores.shape[-1])
    if target.is_floating_point():
        return _odds_of_all(rows, k, k * tau).view_as(scores)
    needs_gradient = scores.requires_grad and torch.is_grad_enabled()
    return _LogOdds.apply(rows, target.reshape(-1, 1), k, k * tau, needs_gradient)[0].view_as(target)


class _LogOdds(torch.autograd.Function):
    """The odds of rows [N, C] against their labels [N, 1]. The gradient is computed in the forward pass."""

    @staticmethod
    def forward(
        scores: Tensor, target: Tensor, k: int, scale: float, needs_gradient: bool
    ) -> tuple[Tensor, Tensor | None]:
        rows = max(1, BLOCK // scores.shape[-1])
        if not can_be_read(scores) or len(scores) <= rows:
            return _odds(scores, target, k, scale, needs_gradient)
        odds = scores.new_empty(len(scores))
        gradient = torch.empty_like(scores) if needs_gradient else None
        for start in range(0, len(scores), rows):
            block = slice(start, start + rows)
            found = _odds(scores[block], target[block], k, scale, needs_gradient)
            for whole, part in zip((odds, gradient), found, strict=True):
                if whole is not None and part is not None:
                    whole[block] = part
        return odds, gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor | None]) -> None:
        scores, target, ctx.k, ctx.scale, _ = inputs
        if output[1] is not None:
            ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scores, target, output[1])

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if upstream is None:
            return None, None, None, None, None
        scores, target, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # The derivative of the derivative.
            gradient = _odds(scores, target, ctx.k, ctx.scale, True)[1]
        return gradient * (upstream / ctx.scale).unsqueeze(-1), None, None, None, None


def _odds(scores: Tensor, target: Tensor, k: int, scale: float, needs_gradient: bool) -> tuple[Tensor, Tensor | None]:
    """The odds [N] of scores [N, C] against the labels [N, 1], and their gradient by the scores over the scale."""
    unit = common_unit(scores, k, scale)
    if unit is None:
        return _odds_of_any_range(scores, target, k, scale, needs_gradient)
    e = (scores - unit).div_(scale).exp_()
    own, e = e.gather(-1, target), e.scatter(-1, target, 0)
    sums, prefixes = symmetric_sums(e, k)
    beside, without = sums[:, k - 1 : k], sums[:, k:]
    odds = (without / (beside * own)).log().squeeze(-1)
    if not needs_gradient:
        return odds, None
    seeds = F.pad(torch.cat([-1 / beside, 1 / without], -1), (k - 2, 0))
    return odds, (sums_gradient(e, prefixes, seeds) * e).scatter_(-1, target, -1)


def _odds_of_any_range(
    scores: Tensor, target: Tensor, k: int, scale: float, needs_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    dtype = sums_dtype(scores, k)
    others = scores.scatter(-1, target, -math.inf).to(dtype)
    y, places = others.topk(k)
    is_certain = y.amin(-1, keepdim=True) == -math.inf
    y = y.masked_fill(is_certain, 0)
    unit = (y[:, -1:] + 0 * y[:, :1]).detach()  # NaN beside inf
    e, log_size = scaled_exp((others.scatter(-1, places, -math.inf) - unit) / scale, k)
    sums, prefixes = symmetric_sums(e, k)
    z = ((unit - y) / scale).exp()
    some = z.unsqueeze(-2)
    if k <= FEW:  # Row l is without the l-th, the last row with all.
        some = some.masked_fill(torch.eye(k + 1, k, dtype=torch.bool, device=z.device), 0)
    of_some, prefixes_of_some = symmetric_sums(some, k)
    of_z = of_some[:, -1].clamp(min=torch.finfo(dtype).tiny)
    weights, log_unit = _weights(of_z, log_size)
    shares = weights * sums.unsqueeze(-2)
    totals = shares.sum(-1, keepdim=True)
    without, beside = (totals.log() + log_unit).unbind(-2)
    odds = without - beside + (unit - scores.gather(-1, target)) / scale
    odds = odds.masked_fill(is_certain, -math.inf).squeeze(-1).to(scores.dtype)
    if not needs_gradient:
        return odds, None
    weights, shares = weights / totals, shares / totals
    of_rest = sums_gradient(e, prefixes, weights[:, 0, 1:] - weights[:, 1, 1:]) * e
    parts = (shares[:, 1, :-1] - shares[:, 0, 1:]) / of_z[:, 1:]
    if k <= FEW:
        of_largest = (of_some[:, :-1, :-1] * parts.unsqueeze(-2)).sum(-1)
    else:
        of_largest = sums_gradient(z, [prefix[:, -1] for prefix in prefixes_of_some], parts)
    return odds, of_rest.scatter(-1, places, of_largest * z).scatter(-1, target, -1).to(scores.dtype)


def _weights(of_z: Tensor, log_size: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the factors of :math:`\sigma_a(r)` in the sums for k and for k - 1, and the logarithms of their units.

    Args:
        of_z: :math:`\sigma_0, \dots, \sigma_k` of z, of shape [N, k + 1].
        log_size: The logarithm of what r was divided by, of shape [N, 1].

    Returns:
        The factors, of shape [N, 2, k + 1], the largest of which is 1, and the logarithms, of shape [N, 2, 1].
    """
    degrees = torch.arange(of_z.shape[-1], device=of_z.device)
    logarithms = F.pad(of_z.log(), (0, 1), value=-math.inf).unfold(-1, len(degrees), 1)
    logarithms = logarithms + (degrees * log_size).unsqueeze(-2)
    log_unit = logarithms.detach().amax(-1, keepdim=True)
    return (logarithms - log_unit).exp(), log_unit


def _odds_of_all(scores: Tensor, k: int, scale: float) -> Tensor:
    """The odds of scores [N, C] against each label in turn, [N, C].

    The others of a label that is not among the k highest have the same k highest. The others of one that is have the
    next one instead, in units of which r is measured here.
    """
    dtype = sums_dtype(scores, k)
    values, places = scores.to(dtype).topk(k + 1)
    y, following = values.split((k, 1), -1)
    places = places[:, :k]
    is_certain, is_last = (value.amin(-1, keepdim=True) == -math.inf for value in (y, values))
    y = y.masked_fill(is_certain, 0)
    highest = (y[:, -1:] + 0 * y[:, :1]).detach()  # NaN beside inf
    unit = torch.where(is_last, highest, following).detach()
    e, log_size = scaled_exp((scores.to(dtype).scatter(-1, places, -math.inf) - unit) / scale, k)
    sums, prefixes = symmetric_sums(e, k + 1)
    tiny = torch.finfo(dtype).tiny

    of_z = symmetric_sums(((highest - y) / scale).exp(), k)[0].clamp(min=tiny)
    gap = ((unit - highest) / scale).clamp(min=-torch.finfo(dtype).max / (k + 1))
    weights, log_unit = _weights(of_z, log_size + gap)
    found = sums_gradient(e.unsqueeze(-2), [prefix.unsqueeze(-2) for prefix in prefixes], weights).log() + log_unit
    odds = (found[:, 0] - found[:, 1] + (highest - scores) / scale).masked_fill(is_certain, -math.inf)

    z = ((unit - y) / scale).exp().unsqueeze(-2)
    of_z = (
        symmetric_sums(z.masked_fill(torch.eye(k, dtype=torch.bool, device=z.device), 0), k)[0][..., :k]
        .clamp(min=tiny)
        .log()
    )
    rest = (sums.clamp(min=tiny).log() + torch.arange(k + 2, device=z.device) * log_size).unsqueeze(-2)
    without, beside = (of_z + rest[..., 1 : k + 1]).logsumexp(-1), (of_z + rest[..., :k]).logsumexp(-1)
    of_highest = (without - beside + (unit - y) / scale).masked_fill(is_last, -math.inf)
    return odds.scatter(-1, places, of_highest).to(scores.dtype)

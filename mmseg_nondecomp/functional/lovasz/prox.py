r"""The proximal operator of the Lovász hinge, exactly.

.. math:: \mathrm{prox}(m) = \arg\min_u \; \bar\Delta(\max(u, 0)) + \tfrac\lambda2 \|u - m\|^2

Algorithm C.1 of the paper follows the path of steepest descent and never separates pixels that have met. A foreground
pixel above a background pixel may have to pass it, so the minimum is computed in another way.

:math:`\bar\Delta(\max(u, 0))` is the integral over :math:`t > 0` of the Jaccard loss of the set :math:`\{u \ge t\}`.
Each set of the minimiser therefore minimises

.. math:: \Delta(A) - \lambda \sum_{i \in A} (m_i - t),

and are nested in :math:`t`. :math:`\Delta` depends on the numbers :math:`a` of foreground and :math:`b` of background
pixels alone, so the best set of those numbers has the largest margins of each kind, and for a given :math:`b` the best
:math:`a` is known: another foreground pixel costs :math:`1 / (n + b)` whatever :math:`a` is. One pass over :math:`b`
solves a level. Fujishige's decomposition finds the levels that matter by divide and conquer: take the level at which a
segment of the order would be a single block; if no part of it has a lower cost, it is a block, else split it there.

Reference:
    M. Berman, A. Rannen Triki, M. B. Blaschko: The Lovász-Softmax loss. CVPR 2018, appendix C.
    https://arxiv.org/abs/1705.08790
    S. Fujishige: Lexicographically optimal base of a polymatroid with respect to a weight vector. 1980.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import ClassLosses
from mmseg_nondecomp.functional._inputs import Inputs, check_floating_point, check_number, check_zero_or_one
from mmseg_nondecomp.functional.lovasz.extension import lovasz_extension


def prox_lovasz_hinge(margins: Tensor, foreground: Tensor, lam: float) -> Tensor:
    r"""Compute the point :math:`u` that minimises :math:`\bar\Delta(\max(u, 0)) + \frac\lambda2 \|u - m\|^2`.

    Args:
        margins: The margins before the hinge, :math:`m_i = 1 - y_i F_i`, of shape [P].
        foreground: Which pixels are foreground (bool, or 0 and 1), of the same shape.
        lam: The weight :math:`\lambda > 0` of the distance.

    Returns:
        The minimiser, of the shape and dtype of ``margins`` (float32 for half precision), without gradient.

    Raises:
        ValueError: If the shapes differ, ``lam`` is not positive and finite, or a margin is not finite.

    Example:
        >>> margins = torch.tensor([1.5, 1.0, 0.4, -2.0])
        >>> foreground = torch.tensor([True, False, False, True])
        >>> prox_lovasz_hinge(margins, foreground, lam=1.0)
        tensor([ 1.0000, 0.8333, 0.3167, -2.0000])
    """
    check_floating_point('margins', margins)
    if margins.dim() != 1 or margins.shape != foreground.shape:
        raise ValueError(
            'Parameters `margins` and `foreground` should have the same shape [P]. '
            f'Found {tuple(margins.shape)} and {tuple(foreground.shape)}.'
        )
    check_zero_or_one('foreground', foreground)
    check_number('lam', lam, '(0, inf)')
    if not margins.isfinite().all():
        raise ValueError('Parameter `margins` should be finite. Found NaN or infinity.')
    dtype = torch.promote_types(margins.dtype, torch.float32)
    return _prox(margins.detach().double(), foreground.bool(), float(lam)).to(dtype)


class MoreauEnvelope(torch.autograd.Function):
    r""":math:`\min_u \bar\Delta(\max(u, 0)) + \frac\lambda2 \|u - m\|^2`, with its gradient :math:`\lambda (m - u)`."""

    @staticmethod
    def forward(ctx: Any, margins: Tensor, foreground: Tensor, lam: float) -> Tensor:
        """Return the envelope at margins [P]."""
        finite = torch.nan_to_num(margins.detach().double())
        step = finite - _prox(finite, foreground, lam)
        ctx.save_for_backward((lam * step).to(margins.dtype))
        value = lovasz_extension((finite - step).clamp(min=0), foreground) + lam / 2 * step.square().sum()
        # A margin that is not finite makes the value not finite.
        return torch.where(margins.isfinite().all(), value.to(margins.dtype), margins.sum())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Return the proximal step: gradient descent with the step size 1 / λ takes it."""
        (step,) = ctx.saved_tensors
        return gradient * step, None, None


def envelopes(inputs: Inputs, top: float, per_image: bool, lam: float) -> ClassLosses:
    r"""Compute the Moreau envelope of the Lovász hinge of each class in each set; with ``per_image``, an image is one.

    Scores are one more than the logits, targets and weights 0 and 1; ``lam`` is the :math:`\lambda` of the distance.
    """
    if inputs.is_soft and not bool(((inputs.target == 0) | (inputs.target == 1)).all()):
        raise ValueError('Parameter `target` should hold 0 and 1 with `proximal`. Found shares of classes.')
    if inputs.weight is not None and not bool(((inputs.weight == 0) | (inputs.weight == 1)).all()):
        raise ValueError('Parameter `weight` should hold 0 and 1 with `proximal`. Found other weights.')
    foreground, counted = inputs.one_hot() > 0, inputs.valid
    margins = torch.where(foreground, top - inputs.scores, inputs.scores)
    if not per_image:
        margins, foreground = (part.movedim(0, 1).flatten(1).unsqueeze(0) for part in (margins, foreground))
        counted = counted.reshape(1, -1)
    losses = [
        torch.stack([MoreauEnvelope.apply(m[inside], f[inside], lam) for m, f in zip(*rows, strict=True)])
        for *rows, inside in zip(margins, foreground, counted, strict=True)
    ]
    return ClassLosses(torch.stack(losses), (foreground & counted.unsqueeze(1)).any(2), counted.any(1))


class _Side(NamedTuple):
    """Pixels of one kind with a positive margin, from the largest margin down."""

    margins: Tensor
    place: Tensor  # their places in the input
    sums: Tensor  # sum of the first k margins, for k from 0


def _side(margins: Tensor, chosen: Tensor) -> _Side:
    place = (chosen & (margins > 0)).nonzero().squeeze(1)
    descending, order = margins[place].sort(descending=True)
    return _Side(descending, place[order], torch.cat([descending.new_zeros(1), descending.cumsum(0)]))


@torch.no_grad()
def _prox(margins: Tensor, foreground: Tensor, lam: float) -> Tensor:
    n = int(foreground.sum())
    fg, bg = _side(margins, foreground), _side(margins, ~foreground)
    u = margins.clone()
    if len(fg.margins) + len(bg.margins) == 0:
        return u

    def delta(a: Tensor, b: Tensor) -> Tensor:
        return (a + b).double() / (n + b).clamp(min=1)

    def cost(a: Tensor, b: Tensor, level: Tensor) -> Tensor:
        return delta(a, b) - lam * (fg.sums[a] - a * level + bg.sums[b] - b * level)

    # Segments of both orders: from (a, b) pixels at the top to (a, b) at the bottom.
    top = torch.zeros(1, 2, dtype=torch.long, device=margins.device)
    bottom = torch.tensor([[len(fg.margins), len(bg.margins)]], device=margins.device)
    while len(top):
        (a0, b0), (a1, b1) = top.unbind(1), bottom.unbind(1)
        total = fg.sums[a1] - fg.sums[a0] + bg.sums[b1] - bg.sums[b0]
        level = (total - (delta(a1, b1) - delta(a0, b0)) / lam) / (a1 - a0 + b1 - b0)
        cut = _best_cut(top, bottom, level, fg.margins, n, lam, cost)
        whole = ((cut == top).all(1)) | ((cut == bottom).all(1))
        for side, start, end in ((fg, a0, a1), (bg, b0, b1)):
            lengths = (end - start)[whole]
            inside = _ranges(start[whole], lengths)
            u[side.place[inside]] = level[whole].repeat_interleave(lengths).clamp(min=0)
        top, bottom = torch.cat([top[~whole], cut[~whole]]), torch.cat([cut[~whole], bottom[~whole]])
    return u


def _best_cut(
    top: Tensor, bottom: Tensor, level: Tensor, margins: Tensor, n: int, lam: float, cost: Callable[..., Tensor]
) -> Tensor:
    """Return the best cut of each segment, [S, 2]; its top if no cut is better than none."""
    lengths = bottom[:, 1] - top[:, 1] + 1
    segment = torch.arange(len(top), device=top.device).repeat_interleave(lengths)
    b = _ranges(top[:, 1], lengths)
    at = level[segment]
    # A foreground pixel reduces the cost while λ (m - level) exceeds 1 / (n + b), its step of the Jaccard loss.
    worth = at + 1 / (lam * (n + b).clamp(min=1).double())
    a = len(margins) - torch.searchsorted(margins.flip(0), worth, right=True)
    a = torch.minimum(torch.maximum(a, top[segment, 0]), bottom[segment, 0])
    gain = cost(top[:, 0], top[:, 1], level)[segment] - cost(a, b, at)
    best = torch.zeros(len(top), dtype=gain.dtype, device=top.device).scatter_reduce_(0, segment, gain, 'amax')
    rounding = 1e-14 * (1 + lam * margins.abs().sum() if len(margins) else 1)
    candidate = torch.where(gain >= best[segment], torch.arange(len(b), device=top.device), len(b))
    first = torch.full((len(top),), len(b), device=top.device).scatter_reduce_(0, segment, candidate, 'amin')
    first = first.clamp(max=len(b) - 1)
    cut = torch.stack([a[first], b[first]], 1)
    return torch.where((best > rounding).unsqueeze(1), cut, top)


def _ranges(start: Tensor, lengths: Tensor) -> Tensor:
    """Concatenate ranges of integers that begin at ``start`` and have these lengths."""
    before = lengths.cumsum(0) - lengths
    return torch.arange(int(lengths.sum()), device=start.device) + (start - before).repeat_interleave(lengths)

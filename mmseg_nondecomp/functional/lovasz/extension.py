r"""The Lovász extension of the Jaccard loss: the price of an error, and the exact extension by sorting.

The Jaccard loss of a set of mispredicted pixels that holds the foreground mass ``a`` and the background mass ``b`` of a
class with the foreground mass ``n`` is

.. math:: \Delta(a, b) = 1 - \frac{n - a}{n + b}, \qquad \Delta(0, b) = 1 \text{ for } n = 0,\ b > 0.

Its Lovász extension is the tightest convex function of the errors :math:`m \ge 0` that equals :math:`\Delta` on every
set of mispredictions, errors of 0 and 1:

.. math:: \bar\Delta(m) = \sum_i m_i\, g_i(m), \qquad
    g_i(m) = \Delta(\{\pi_1, \dots, \pi_i\}) - \Delta(\{\pi_1, \dots, \pi_{i-1}\}),
    \qquad m_{\pi_1} \ge m_{\pi_2} \ge \dots

The vector :math:`g` is its gradient: the step of :math:`\Delta` when a pixel enters the set. With the intersection
:math:`I` and the union :math:`U` reached before it,

- a foreground pixel of mass :math:`a` causes the step :math:`a / U`,
- a background pixel of mass :math:`b` causes the step :math:`I b / (U (U + b))`.

Neither is the difference of two numbers near 1. A bin of a histogram holds many pixels whose order is unknown. Its
step is shared out along the straight path :math:`(I - a t, U + b t)`, :math:`t \in [0, 1]`: the Aumann-Shapley price.
The shares add up to the exact step, and no subset is charged more than it would cost alone. So they are a subgradient
of the Lovász extension of any errors that agree within each bin.

Reference:
    M. Berman, A. Rannen Triki, M. B. Blaschko: The Lovász-Softmax loss. CVPR 2018, equations 6 to 9 and Algorithm 1.
    https://arxiv.org/abs/1705.08790
"""

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmseg_nondecomp._utils.versions import is_compiling
from mmseg_nondecomp.functional._averaging import ClassLosses
from mmseg_nondecomp.functional._inputs import (
    Inputs,
    at_least_float32,
    check_floating_point,
    check_zero_or_one,
    is_due,
    refuse,
)

NOTHING = 1e-100  # a mass that is negligible beside any other and whose square is a normal number
BINS_AT_A_TIME = 1 << 15  # number of bins that a CPU processes at a time: intermediate results stay in its cache


def lovasz_extension(errors: Tensor, foreground: Tensor) -> Tensor:
    r"""Compute the Lovász extension :math:`\bar\Delta` of the Jaccard loss. Its gradient is :math:`g`.

    Args:
        errors: Non-negative errors of the pixels of a class, of shape [..., P]; each row is a set with an extension.
        foreground: Which pixels belong to the class (bool, or 0 and 1), of the same shape. The extension of a row
            without any is the largest error.

    Raises:
        ValueError: If the shapes differ, ``foreground`` is neither 0 nor 1, or an error is negative.

    Example:
        >>> errors = torch.tensor([0.9, 0.2, 0.6, 0.0])
        >>> foreground = torch.tensor([True, True, False, False])
        >>> lovasz_extension(errors, foreground)
        tensor(0.6167)
    """
    check_floating_point('errors', errors)
    if errors.dim() == 0 or errors.shape != foreground.shape:
        raise ValueError(
            'Parameters `errors` and `foreground` should have the same shape [..., P]. '
            f'Found {tuple(errors.shape)} and {tuple(foreground.shape)}.'
        )
    if is_due(errors, 'errors', errors.dim()):
        refuse(errors < 0, 'Parameter `errors` should not be negative.', errors)
    check_zero_or_one('foreground', foreground)
    errors, foreground = at_least_float32(errors), foreground.bool()
    shares = shares_by_sorting(errors.detach(), foreground.int(), (~foreground).int())
    return (errors * shares).sum(-1)


def sorted_losses(inputs: Inputs, top: float, per_image: bool) -> ClassLosses:
    """Compute the exact extension of each class; with ``per_image``, each image is a set.

    The error of an item is its score, or ``top`` minus its score on its own class.
    """
    scores, target, mass = inputs.scores, inputs.target, inputs.mass
    if not per_image and len(scores) > 1:
        # [N, *, P] as [1, *, N P]
        scores, target, mass = (part.movedim(0, -2).flatten(-2).unsqueeze(0) for part in (scores, target, mass))
    losses = _Sorted.apply(scores, target, mass, top)
    if inputs.is_soft:
        present = ((target > 0) & (mass > 0).unsqueeze(1)).any(2)
    else:  # an ignored item has the label C
        present = torch.zeros(len(scores), scores.shape[1] + 1, dtype=torch.bool, device=scores.device)
        present = present.scatter_(1, target, torch.ones_like(target, dtype=torch.bool))[:, :-1]
    return ClassLosses(losses, present, (mass > 0).any(1))


class _Sorted(torch.autograd.Function):
    """The extension [R, C] of each class in each set of scores [R, C, P], by sorting its errors."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, target: Tensor, mass: Tensor, top: float) -> Tensor:
        n_classes = scores.shape[1]
        if scores.device.type == 'cpu' and not is_compiling():  # one row is sorted faster than many
            slopes, losses = torch.empty_like(scores), scores.new_empty(scores.shape[:2])
            for r, c in itertools.product(range(len(scores)), range(n_classes)):
                part = target[r, c] if target.is_floating_point() else target[r] == c
                losses[r, c], slopes[r, c] = _loss_and_slope(scores[r, c], part, mass[r], top)
        else:
            classes = torch.arange(n_classes, device=scores.device).view(1, -1, 1)
            part = target if target.is_floating_point() else target.unsqueeze(1) == classes
            losses, slopes = _loss_and_slope(scores, part, mass.unsqueeze(1).expand(part.shape), top)
        ctx.save_for_backward(slopes)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (slopes,) = ctx.saved_tensors
        return slopes * gradient.unsqueeze(2), None, None, None


def _loss_and_slope(scores: Tensor, label: Tensor, mass: Tensor, top: float) -> tuple[Tensor, Tensor]:
    """Return the extension [...] of scores [..., P] and its derivative.

    Labels are bool, whether items belong to the class, or soft; the mass of items is int32 or float64.
    """
    scores = torch.where(mass > 0, scores, 0)
    if label.dtype == torch.bool:
        errors = torch.where(label, top - scores, scores).clamp_(min=0)
        shares = shares_by_sorting(errors, mass * label, mass * ~label)
        slopes = torch.where(label, -shares, shares)
        if top != 1:  # the slope of a hinge at 0 is 0
            slopes.masked_fill_(errors == 0, 0)
        return (errors * shares).sum(-1), slopes
    # Each item as two: one of the other classes, one of the class.
    both = torch.cat([scores, scores], -1)
    belongs = torch.cat([torch.zeros_like(label), torch.ones_like(label)], -1).bool()
    losses, slopes = _loss_and_slope(both, belongs, torch.cat([(1 - label) * mass, label * mass], -1), top)
    absent, present = slopes.chunk(2, -1)
    return losses, absent + present


@torch.no_grad()
def shares_by_sorting(errors: Tensor, foreground: Tensor, background: Tensor) -> Tensor:
    """Compute the gradient of the extension with respect to errors [..., P], among which a NaN may be.

    ``foreground`` has the mass of the pixels of the class, ``background`` that of others, int32 or float64; 0
    elsewhere.
    """
    if errors.dtype == torch.float64:  # quotients of integers are float32
        foreground, background = foreground.double(), background.double()
    order = descending_order(errors)
    shares = shares_in_order(foreground.gather(-1, order), background.gather(-1, order)).to(errors.dtype)
    return torch.empty_like(shares).scatter_(-1, order, shares)


def descending_order(values: Tensor) -> Tensor:
    """Return the order that sorts non-negative floats from the largest down.

    Their bit patterns sort alike, and a single row of integers is sorted digit by digit, many times faster.
    """
    if values.dim() > 1:
        return values.argsort(-1, descending=True)
    integer, infinity = (torch.int64, 0x7FF << 52) if values.dtype == torch.float64 else (torch.int32, 0xFF << 23)
    values = values.contiguous() + 0  # turns a negative zero into a positive one
    return (infinity - values.view(integer)).argsort()


def shares_in_order(foreground: Tensor, background: Tensor) -> Tensor:
    """Compute the steps [..., P] that pixels cause, given their masses in descending order of the errors.

    They are float64 for floating-point masses and float32 for integers, which are exact.
    """
    total = foreground.sum(-1, keepdim=True, dtype=foreground.dtype)
    intersection = total - foreground.cumsum(-1, dtype=foreground.dtype)
    before = total + _before(background)
    union = before + background
    of_foreground = foreground / union
    # The first pixel to enter an empty union brings the whole loss.
    of_background = torch.where(before > 0, intersection / before, 1) * (background / union)
    return torch.where(background > 0, of_background, torch.where(foreground > 0, of_foreground, 0))


def shares_of_bins(mass: Tensor) -> Tensor:
    """Compute the step of each bin of a histogram, shared out along the straight path, per unit of mass.

    Mass and shares are [..., 2, T], the background first, errors ascending; shares are float64.
    """
    rows = mass.reshape(-1, *mass.shape[-2:])
    n_rows = max(1, BINS_AT_A_TIME // mass.shape[-1])
    if mass.device.type != 'cpu' or is_compiling() or len(rows) <= n_rows:
        return _shares_of_bins(mass)
    return torch.cat([_shares_of_bins(part) for part in rows.split(n_rows)]).view(mass.shape)


def _shares_of_bins(mass: Tensor) -> Tensor:
    background, foreground = mass.unbind(-2)
    intersection = foreground.cumsum(-1).double()  # integers are added as integers
    # An absent class gets so little foreground that the first non-empty bin brings the whole loss.
    total = intersection[..., -1:]
    intersection += total.clamp(min=NOTHING) - total
    union = intersection[..., -1:] + _before(background.flip(-1)).flip(-1)
    r = (background / union).clamp_(min=1e-300)
    # log(1 + r) / r, and (log(1 + r) - r / (1 + r)) / r², by its series where the difference would cancel.
    phi = torch.log1p(r).div_(r)
    left = (1 + r).reciprocal_()
    psi = torch.where(r < 1e-4, torch.rsub(r, 0.5, alpha=2 / 3), (phi - left).div_(r))
    of_background = torch.addcmul(left.mul_(intersection), foreground, psi, value=-1).div_(union).div_(union)
    return torch.stack([of_background, phi.div_(union)], -2)


def _before(mass: Tensor) -> Tensor:
    """Return the mass before each place; not as a difference, which would lose a small mass beside a large one."""
    return F.pad(mass[..., :-1].cumsum(-1, dtype=mass.dtype), (1, 0))

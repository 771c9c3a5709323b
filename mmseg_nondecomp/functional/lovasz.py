r"""The Lovász extension of the Jaccard loss for each class of a prediction, by sorting or by a histogram.

The histogram knows the errors of a pixel only up to its cell. The extension moves by no more than the error of any
pixel does, so cells of the width :math:`1 / (2B)` give the loss within :math:`1 / (2B)`.
"""

import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmseg_nondecomp._utils.versions import is_compiling
from mmseg_nondecomp.functional.error_cells import Cells
from mmseg_nondecomp.functional.error_histogram import error_histogram
from mmseg_nondecomp.functional.items import Items
from mmseg_nondecomp.functional.jaccard_shares import shares_of_cells
from mmseg_nondecomp.functional.lovasz_extension import shares_by_sorting


def side_by_side(images: Tensor) -> Tensor:
    """[N, *, P] as [1, *, N P]."""
    return images.movedim(0, -2).flatten(-2).unsqueeze(0)


class ClassLosses(NamedTuple):
    """The loss of each class in each set."""

    losses: Tensor
    """Of shape [R, C]."""
    present: Tensor
    """Which classes have any foreground, bool, of shape [R, C]."""
    filled: Tensor
    """Which sets have any item, bool, of shape [R]."""


def sorted_losses(items: Items, top: float, per_image: bool) -> ClassLosses:
    """The exact extension of each class; an item's error is its score, or ``top`` less its score on its own class."""
    scores, target, mass = items
    n_images, n_classes, _ = scores.shape
    if not per_image and n_images > 1:
        scores, target, mass = (side_by_side(part) for part in items)
    losses = _Sorted.apply(scores, target, mass, top)
    if target.is_floating_point():
        present = ((target > 0) & (mass > 0).unsqueeze(1)).any(2)
    else:
        counted = torch.where(mass > 0, target, n_classes)
        present = torch.zeros(len(scores), n_classes + 1, dtype=torch.bool, device=scores.device)
        present = present.scatter_(1, counted, torch.ones_like(counted, dtype=torch.bool))[:, :n_classes]
    return ClassLosses(losses, present, (mass > 0).any(1))


class _Sorted(torch.autograd.Function):
    """The extension of each class in each set, by sorting its errors."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, target: Tensor, mass: Tensor, top: float) -> Tensor:
        """The losses [R, C] of scores [R, C, P], and their slopes."""
        n_classes = scores.shape[1]
        classes = torch.arange(n_classes, device=scores.device)
        if scores.device.type == 'cpu' and not is_compiling():  # A row is sorted faster than many.
            slopes, losses = torch.empty_like(scores), scores.new_empty(scores.shape[:2])
            for r, c in itertools.product(range(len(scores)), range(n_classes)):
                share = target[r, c] if target.is_floating_point() else target[r] == c
                losses[r, c], slopes[r, c] = _loss_and_slope(scores[r, c], share, mass[r], top)
        else:
            share = target if target.is_floating_point() else target.unsqueeze(1) == classes.view(1, -1, 1)
            losses, slopes = _loss_and_slope(scores, share, mass.unsqueeze(1).expand(share.shape), top)
        ctx.save_for_backward(slopes)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """The slopes."""
        (slopes,) = ctx.saved_tensors
        return slopes * gradient.unsqueeze(2), None, None, None


def _loss_and_slope(scores: Tensor, share: Tensor, mass: Tensor, top: float) -> tuple[Tensor, Tensor]:
    """The extension [...] of scores [..., P] and its derivative.

    Args:
        scores: The scores.
        share: Which items belong to the class (bool), or how much of each.
        mass: How much each item counts, int32 or float64.
        top: The score that is no error on an item of the class.
    """
    scores = torch.where(mass > 0, scores, 0)
    if share.dtype == torch.bool:
        errors = torch.where(share, top - scores, scores).clamp_(min=0)
        weights = shares_by_sorting(errors, mass * share, mass * ~share)
        slopes = torch.where(share, -weights, weights)
        if top != 1:  # A hinge at 0 stays there.
            slopes.masked_fill_(errors == 0, 0)
        return (errors * weights).sum(-1), slopes
    # Each item as two: one of the others, one of the class.
    both = torch.cat([scores, scores], -1)
    belongs = torch.cat([torch.zeros_like(share), torch.ones_like(share)], -1).bool()
    losses, slopes = _loss_and_slope(both, belongs, torch.cat([(1 - share) * mass, share * mass], -1), top)
    absent, present = slopes.chunk(2, -1)
    return losses, absent + present


def binned_losses(items: Items, cells: Cells, per_image: bool) -> ClassLosses:
    """The extension of each class with errors that are known up to their cells."""
    histogram = error_histogram(*items, cells, per_image)
    shares = shares_of_cells(histogram.mass)
    return ClassLosses((histogram.errors * shares).sum((2, 3)).to(items.scores.dtype), *occupancy(histogram.mass))


def occupancy(mass: Tensor) -> tuple[Tensor, Tensor]:
    """Which classes are present in which set [R, C], and which sets have any item [R], from a histogram."""
    occupied = mass.sum(3) > 0
    return occupied[:, :, 1], occupied.flatten(1).any(1)

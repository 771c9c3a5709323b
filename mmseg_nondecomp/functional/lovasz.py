r"""The Lovász extension of the Jaccard loss for each class of a prediction, by sorting or by a histogram.

The histogram knows the errors of a pixel only up to its cell. The extension moves by no more than the error of any
pixel does, so cells of the width :math:`1 / (2B)` give the loss within :math:`1 / (2B)`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional.error_histogram import Cells, error_histogram
from mmseg_nondecomp.functional.items import Items
from mmseg_nondecomp.functional.jaccard_shares import shares_of_cells
from mmseg_nondecomp.functional.lovasz_extension import extension_by_sorting


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
    n_classes = scores.shape[1]
    mass = mass.unsqueeze(1)
    if target.is_floating_point():  # Each item as two: one of the class, one of the others.
        errors = torch.cat([scores, top - scores], 2).clamp(min=0)
        foreground = torch.cat([torch.zeros_like(scores), torch.ones_like(scores)], 2).bool()
        mass = torch.cat([(1 - target) * mass, target * mass], 2)
    else:
        classes = torch.arange(n_classes, device=scores.device).view(1, -1, 1)
        foreground = target.unsqueeze(1) == classes
        errors = torch.where(foreground, top - scores, scores).clamp(min=0)
    if not per_image:
        errors, foreground, mass = (part.movedim(0, 1).flatten(1).unsqueeze(0) for part in (errors, foreground, mass))
    return ClassLosses(
        extension_by_sorting(errors, foreground, mass), (foreground & (mass > 0)).any(2), (mass > 0).any(2).any(1)
    )


def binned_losses(items: Items, cells: Cells, per_image: bool) -> ClassLosses:
    """The extension of each class with errors that are known up to their cells."""
    histogram = error_histogram(*items, cells, per_image)
    shares = shares_of_histogram(histogram.mass)
    return ClassLosses((histogram.errors * shares).sum((2, 3)).to(items.scores.dtype), *occupancy(histogram.mass))


def shares_of_histogram(mass: Tensor) -> Tensor:
    """What a unit of mass in each cell [R, C, 2, T] has of the loss; of the same shape."""
    background, foreground = mass.unbind(2)
    of_foreground, of_background = shares_of_cells(foreground, background)
    return torch.stack([of_background, of_foreground], 2)


def occupancy(mass: Tensor) -> tuple[Tensor, Tensor]:
    """Which classes are present in which set [R, C], and which sets have any item [R], from a histogram."""
    background, foreground = mass.sum(3).unbind(2)
    return foreground > 0, (foreground + background > 0).any(1)

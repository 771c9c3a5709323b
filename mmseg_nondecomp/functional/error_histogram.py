r"""Histograms of errors, class by class: the sufficient statistic of the sort-free Lovász extension.

For each class, foreground and background apart, each cell keeps the mass and the sum of the errors that fall into it.
Histograms add up, over images, over processes and over time, and cost one pass over the pixels.

An error comes from a score :math:`s`: it is :math:`\max(s, 0)` on a class that is absent from the pixel and
:math:`\max(\mathrm{top} - s, 0)` on one that is present. With ``top = 1`` scores are probabilities, with ``top = 2``
they are one more than the logit of a hinge.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmseg_nondecomp.compat import is_compiling

ELEMENTS_AT_A_TIME = 1 << 19
"""How many scores the CPU works on at a time: so few that what is computed of them stays in its cache."""


@dataclass(frozen=True)
class ProbabilityCells:
    r"""Cells for errors in [0, 1], no wider than 1 / (2 bins) and ever finer towards 0 and 1, where most errors are.

    Cells are equally wide in :math:`\sqrt e - \sqrt{1 - e}`. The first is for errors of 0 alone.
    """

    bins: int
    top = 1.0

    @property
    def number(self) -> int:
        """How many cells there are."""
        return 3 * self.bins + 1

    def of(self, errors: Tensor) -> Tensor:
        """The cell of each error, of a small integer type; that of a NaN is any."""
        half = (self.number - 1) / 2
        place = errors * half**2
        place = place.sqrt().sub_((half**2 - place).clamp_(min=0).sqrt_())
        return place.add_(half).ceil_().to(_narrow(self.number)).clamp_(0, self.number - 1)

    def centres(self, device: torch.device) -> Tensor:
        """The error in the middle of each cell, float64, of shape [T]."""
        place = torch.arange(self.number, dtype=torch.float64, device=device).sub(0.5).clamp(min=0)
        difference = place * (2 / (self.number - 1)) - 1
        return (difference / 2**0.5).asin().add(torch.pi / 4).sin().square()


@dataclass(frozen=True)
class MarginCells:
    r"""Cells for errors of a hinge up to a million: about as fine as the logit :math:`e - 1` is small.

    Cells are equally wide in :math:`\operatorname{asinh}(100\,(e - 1))`, so neither an outlier nor a network that has
    yet to say anything makes them coarse. The first is for errors of 0 (to 1e-5), the last for all beyond the range.
    """

    bins: int
    top = 2.0
    lowest = math.asinh(-100) + 1e-5  # a little inside, so that rounding leaves an error of 0 in the first cell
    highest = math.asinh(1e8)

    @property
    def number(self) -> int:
        """How many cells there are."""
        return 3 * self.bins + 1

    @property
    def per_unit(self) -> float:
        """How many cells there are in a unit of the inverse hyperbolic sine."""
        return (self.number - 1) / (self.highest - self.lowest)

    def of(self, errors: Tensor) -> Tensor:
        """The cell of each error, of a small integer type; that of a NaN is any."""
        place = errors.sub(1).mul_(100).asinh_().sub_(self.lowest).mul_(self.per_unit)
        return place.clamp_(-1, self.number - 1).ceil_().to(_narrow(self.number)).clamp_(0, self.number - 1)

    def centres(self, device: torch.device) -> Tensor:
        """The error in the middle of each cell, float64, of shape [T]."""
        place = torch.arange(self.number, dtype=torch.float64, device=device).sub(0.5).clamp(min=0)
        return torch.where(place > 0, (place / self.per_unit + self.lowest).sinh() / 100 + 1, 0)


Cells = ProbabilityCells | MarginCells


def _narrow(number: int) -> torch.dtype:
    """The smallest type for the places in both rows of cells: what is kept for the backward pass costs half a float."""
    return torch.int16 if 2 * number < 2**15 else torch.int32


class ErrorHistogram(NamedTuple):
    """What is kept of a set of pixels. In the third dimension the background is first, the foreground second."""

    mass: Tensor
    """How many pixels, or what mass of them, have their error in a cell; float64 of shape [R, C, 2, T]."""
    errors: Tensor
    """The sum of their errors, differentiable; of the same shape."""


def error_histogram(scores: Tensor, target: Tensor, mass: Tensor, cells: Cells, per_image: bool) -> ErrorHistogram:
    """The histogram of the errors that scores make.

    Args:
        scores: The scores, of shape [N, C, P].
        target: The class of each pixel, int64 of shape [N, P], with C for none of them; or the share of each pixel that
            belongs to each class, of shape [N, C, P].
        mass: How much each pixel counts, of shape [N, P]; 0 for those that do not exist.
        cells: The cells.
        per_image: Whether each image has a histogram of its own.

    Returns:
        The histogram, with R = N or R = 1.
    """
    if not per_image and len(scores) > 1 and scores.shape[2] < cells.number:  # Many small images make one large one.
        scores, target, mass = (side_by_side(part) for part in (scores, target, mass))
    return ErrorHistogram(*_Histogram.apply(scores, target, mass, cells, per_image))


def side_by_side(images: Tensor) -> Tensor:
    """[N, *, P] as [1, *, N P]."""
    return images.movedim(0, -2).flatten(-2).unsqueeze(0)


class Role(NamedTuple):
    """One way in which scores count: as background, as foreground, or each as the one that it is."""

    cell: Tensor
    """The place in a histogram that has both rows of cells in one, of shape [n, C, p]."""
    mass: Tensor
    """How much it counts, float64, broadcast to the same shape."""
    errors: Tensor
    """The errors times the mass, float64, of the same shape."""


def _roles(scores: Tensor, target: Tensor, mass: Tensor, cells: Cells) -> list[Role]:
    """In which cells the scores [n, C, p] count, and for how much."""
    mass = mass.unsqueeze(1)
    exists = mass != 0
    absent = torch.where(exists, scores, 0)  # what does not exist may be NaN
    if cells.top != 1:  # Probabilities are not negative.
        absent.clamp_(min=0)
    if target.is_floating_point():
        present = torch.where(exists, cells.top - scores, 0).clamp_(min=0)
        return [
            _role(cells.of(absent), (1 - target) * mass, torch.where(target < 1, absent, 0)),
            _role(cells.of(present) + cells.number, target * mass, torch.where(target > 0, present, 0)),
        ]
    n_classes = scores.shape[1]
    label = target.unsqueeze(1).clamp(max=n_classes - 1)
    is_class = (target.unsqueeze(1) < n_classes) & exists
    present = (cells.top - scores.gather(1, label)).clamp_(min=0)
    cell = cells.of(absent)
    cell.scatter_(1, label, torch.where(is_class, cells.of(present) + cells.number, cell.gather(1, label)))
    errors = absent.scatter_(1, label, torch.where(is_class, present, absent.gather(1, label)))
    return [_role(cell, mass.expand_as(errors), errors)]


def _role(cell: Tensor, mass: Tensor, errors: Tensor) -> Role:
    errors = errors.double()
    # A mass of integers is 1 where the error has not been set to 0.
    return Role(cell, mass.double(), errors.mul_(mass) if mass.is_floating_point() else errors)


def _blocks(scores: Tensor, per_image: bool) -> list[tuple[slice, slice]]:
    """Images and pixels to work on at a time: on the CPU what its cache holds, elsewhere all that share a histogram."""
    n_images, n_classes, n_pixels = scores.shape
    if scores.device.type != 'cpu' or is_compiling():
        return [(slice(None), slice(None))] if per_image else [(slice(i, i + 1), slice(None)) for i in range(n_images)]
    step = max(1, ELEMENTS_AT_A_TIME // max(1, n_classes))
    return [
        (slice(image, image + 1), slice(start, start + step))
        for image in range(n_images)
        for start in range(0, n_pixels, step)
    ]


class _Histogram(torch.autograd.Function):
    """Counting, and its adjoint: looking up."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, target: Tensor, mass: Tensor, cells: Cells, per_image: bool
    ) -> tuple[Tensor, Tensor]:
        shape = (len(scores) if per_image else 1, scores.shape[1], 2 * cells.number)
        counts = torch.zeros(shape, dtype=torch.float64, device=scores.device)
        sums = torch.zeros_like(counts)
        n_roles = 2 if target.is_floating_point() else 1
        kept = [torch.empty_like(scores, dtype=_narrow(cells.number)) for _ in range(n_roles)]
        for images, pixels in _blocks(scores, per_image):
            rows = images if per_image else slice(None)
            parts = _roles(scores[images, :, pixels], target[images, ..., pixels], mass[images, pixels], cells)
            for cells_of_role, part in zip(kept, parts, strict=True):
                cells_of_role[images, :, pixels] = part.cell
                place = part.cell.long()
                counts[rows].scatter_add_(2, place, part.mass.expand_as(place))
                sums[rows].scatter_add_(2, place, part.errors)
        ctx.save_for_backward(target, mass, *kept)
        ctx.cells, ctx.per_image, ctx.dtype = cells, per_image, scores.dtype
        counts, sums = (part.unflatten(2, (2, cells.number)) for part in (counts, sums))
        ctx.mark_non_differentiable(counts)
        return counts, sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        target, mass, *kept = ctx.saved_tensors
        mass = mass.to(ctx.dtype)
        # Where the class is present, the error falls as the score grows. A hinge at 0 stays there.
        table = torch.stack([gradient[:, :, 0], -gradient[:, :, 1]], 2).to(ctx.dtype)
        if ctx.cells.top != 1:
            table[..., 0].zero_()
        table = table.flatten(2)
        found = torch.empty_like(kept[0], dtype=ctx.dtype)
        for images, pixels in _blocks(found, ctx.per_image):
            cells = [cell[images, :, pixels].long() for cell in kept]
            rows = (table[images] if ctx.per_image else table).expand(len(cells[0]), -1, -1)
            of_pixel = mass[images, pixels].unsqueeze(1)
            if len(cells) == 1:
                found[images, :, pixels] = rows.gather(2, cells[0]).mul_(of_pixel)
            else:
                absent, present = (rows.gather(2, cell) for cell in cells)
                share = target[images, :, pixels]
                found[images, :, pixels] = torch.lerp(absent, present, share) * of_pixel
        return found, None, None, None, None

"""Cells of errors: how finely a histogram tells errors apart."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ProbabilityCells:
    r"""Cells for errors in [0, 1], no wider than 1 / (2 bins) and ever finer towards 0 and 1, where most errors are.

    Cells are equally wide in :math:`\sqrt e - \sqrt{1 - e}`. The first is for errors of 0 alone.
    """

    bins: int
    top = 1.0

    @property
    def number(self) -> int:
        """Number of cells."""
        return 3 * self.bins + 1

    def of(self, errors: Tensor) -> Tensor:
        """Return the cell of each error, int32; any cell for a NaN."""
        half = (self.number - 1) / 2
        place = errors.sqrt().sub_((1 - errors).clamp_(min=0).sqrt_())
        return _scaled(place, half, half).ceil_().int().clamp_(0, self.number - 1)

    def centres(self, device: torch.device) -> Tensor:
        """Return the error in the middle of each cell, float64, of shape [T]."""
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
        """Number of cells."""
        return 3 * self.bins + 1

    @property
    def per_unit(self) -> float:
        """Number of cells in a unit of the inverse hyperbolic sine."""
        return (self.number - 1) / (self.highest - self.lowest)

    def of(self, errors: Tensor) -> Tensor:
        """Return the cell of each error, int32; any cell for a NaN."""
        place = _scaled(errors, 100, -100).asinh_()
        place = _scaled(place, self.per_unit, -self.per_unit * self.lowest)
        return place.clamp_(-1, self.number - 1).ceil_().int().clamp_(0, self.number - 1)

    def centres(self, device: torch.device) -> Tensor:
        """Return the error in the middle of each cell, float64, of shape [T]."""
        place = torch.arange(self.number, dtype=torch.float64, device=device).sub(0.5).clamp(min=0)
        return torch.where(place > 0, (place / self.per_unit + self.lowest).sinh() / 100 + 1, 0)


Cells = ProbabilityCells | MarginCells


def _scaled(values: Tensor, factor: float, shift: float) -> Tensor:
    """Return the values times a factor plus a shift, in one pass."""
    return torch.add(values.new_full((), shift), values, alpha=factor)

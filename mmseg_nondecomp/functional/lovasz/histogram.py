r"""The Lovász extension by histograms of errors: no sort, and sums that processes and mini-batches can add.

For each class, foreground and background apart, the pixels in each bin of errors are counted. Counts add up over
images, over processes and over time, and take one pass over the pixels. Where each pixel counts once they are integers
and do not depend on the order of the pixels. A quantity that is computed for each bin returns to the pixels by a
look-up.

An error comes from a score :math:`s`: it is :math:`\max(s, 0)` on a class that is absent from the pixel and
:math:`\max(\mathrm{top} - s, 0)` on one that is present. With ``top = 1`` scores are probabilities, with ``top = 2``
they are one more than the logit of a hinge.

The histogram gives an error up to its bin. The extension changes by no more than the largest change of an error, so
bins of the width :math:`1 / (2B)` give the loss within :math:`1 / (2B)`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmseg_nondecomp._utils.versions import is_compiling
from mmseg_nondecomp.functional._averaging import ClassLosses
from mmseg_nondecomp.functional._inputs import Activation, Inputs, Reduce, activate, in_one_process, pull_back
from mmseg_nondecomp.functional.lovasz.extension import shares_of_bins, sorted_losses

BLOCK = 1 << 17
"""Number of scores that a CPU processes at a time, four times as many with several threads: intermediate results stay
in its caches, and threads seldom wait for each other, which takes milliseconds where cores are shared."""


@dataclass(frozen=True)
class Bins:
    """Bins of errors: the resolution of a histogram."""

    bins: int
    top = 1.0  # score that is no error where the class is present

    @property
    def number(self) -> int:
        """Number of binning."""
        return 3 * self.bins + 1

    def of(self, errors: Tensor) -> Tensor:
        """Return the bin of each error, int32; any bin for a NaN."""
        raise NotImplementedError

    def centres(self, device: torch.device) -> Tensor:
        """Return the error in the middle of each bin, float64, of shape [T]."""
        raise NotImplementedError


class ProbabilityBins(Bins):
    r"""Bins for errors in [0, 1], no wider than 1 / (2 bins) and ever finer towards 0 and 1, where most errors are.

    Bins are equally wide in :math:`\sqrt e - \sqrt{1 - e}`. The first is for errors of 0 alone.
    """

    def of(self, errors: Tensor) -> Tensor:
        """Return the bin of each error."""
        half = (self.number - 1) / 2
        place = errors.sqrt().sub_((1 - errors).clamp_(min=0).sqrt_())
        return _scaled(place, half, half).ceil_().int().clamp_(0, self.number - 1)

    def centres(self, device: torch.device) -> Tensor:
        """Return the error in the middle of each bin."""
        place = torch.arange(self.number, dtype=torch.float64, device=device).sub(0.5).clamp(min=0)
        difference = place * (2 / (self.number - 1)) - 1
        return (difference / 2**0.5).asin().add(torch.pi / 4).sin().square()


class MarginBins(Bins):
    r"""Bins for errors of a hinge up to a million: about as fine as the logit :math:`e - 1` is small.

    Bins are equally wide in :math:`\operatorname{asinh}(100\,(e - 1))`, so that neither an outlier nor an untrained
    network makes them coarse. The first is for errors of 0 (to 1e-5), the last for all beyond the range.
    """

    top = 2.0
    lowest = math.asinh(-100) + 1e-5  # a little inside, so that rounding leaves an error of 0 in the first bin
    highest = math.asinh(1e8)

    @property
    def per_unit(self) -> float:
        """Number of bins in a unit of the inverse hyperbolic sine."""
        return (self.number - 1) / (self.highest - self.lowest)

    def of(self, errors: Tensor) -> Tensor:
        """Return the bin of each error."""
        place = _scaled(errors, 100, -100).asinh_()
        place = _scaled(place, self.per_unit, -self.per_unit * self.lowest)
        return place.clamp_(-1, self.number - 1).ceil_().int().clamp_(0, self.number - 1)

    def centres(self, device: torch.device) -> Tensor:
        """Return the error in the middle of each bin."""
        place = torch.arange(self.number, dtype=torch.float64, device=device).sub(0.5).clamp(min=0)
        return torch.where(place > 0, (place / self.per_unit + self.lowest).sinh() / 100 + 1, 0)


def _scaled(values: Tensor, factor: float, shift: float) -> Tensor:
    """Return the values times a factor plus a shift, in one pass."""
    return torch.add(values.new_full((), shift), values, alpha=factor)


def lovasz_losses(
    inputs: Inputs,
    binning: type[Bins],
    bins: int | None,
    per_image: bool,
    activation: Activation = None,
    past: Callable[[Tensor], Tensor] | None = None,
    reduce: Reduce = in_one_process,
) -> tuple[ClassLosses, Tensor | None]:
    """Compute the Lovász extension of the Jaccard loss of each class, and this mini-batch's histogram [R, C, 2, T].

    Without ``bins``, the resolution of the bins, errors are sorted, on one process. With an activation, the inputs
    hold logits; with ``per_image``, each image is a set. ``past`` returns the mass of earlier mini-batches that belong
    to the set, given that of this one.
    """
    if bins is None:
        scores = activate(inputs.scores, activation)
        return sorted_losses(inputs._replace(scores=scores), binning.top, per_image), None
    histogram = error_histogram(inputs, binning(bins), per_image, activation)
    # Counts of one process are in the range of int32.
    mass = histogram.mass
    if reduce is not in_one_process:
        mass = reduce(mass if mass.is_floating_point() else mass.long())
    before = None if past is None else past(mass)
    whole = mass if before is None else mass + before
    shares = shares_of_bins(whole)
    losses = reduce(loss_of_bins(histogram.errors, shares))
    if before is not None:  # the errors of the past are given up to their bins
        losses = losses + loss_of_bins(before * binning(bins).centres(before.device), shares)
    occupied = whole.sum(3) > 0
    return ClassLosses(losses.to(inputs.scores.dtype), occupied[:, :, 1], occupied.flatten(1).any(1)), mass


class ErrorHistogram(NamedTuple):
    """Counts and errors of a set of pixels. In the third dimension the background is first, the foreground second."""

    mass: Tensor  # number of pixels in each bin, int32 of shape [R, C, 2, T]; or their mass, float64
    errors: Tensor  # sum of their errors, differentiable; float64 of the same shape


def loss_of_bins(errors: Tensor, shares: Tensor) -> Tensor:
    """Return the extension [...] from the sums of errors and the shares of the bins, both of shape [..., 2, T]."""
    return (errors * shares).sum((-2, -1))


def error_histogram(inputs: Inputs, binning: Bins, per_image: bool, activation: Activation = None) -> ErrorHistogram:
    """Compute the histograms of the errors of scores: one, or one for each image.

    With an activation, the inputs hold logits. The scores are then not kept for the backward pass.
    """
    return ErrorHistogram(*_Histogram.apply(inputs.scores, inputs.target, inputs.mass, binning, per_image, activation))


class _Histogram(torch.autograd.Function):
    """Counting in the forward pass; its adjoint, a look-up, in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, target: Tensor, mass: Tensor, binning: Bins, per_image: bool, activation: Activation
    ) -> tuple[Tensor, Tensor]:
        n_images, n_classes, _ = scores.shape
        rows, width = n_images if per_image else 1, 2 * binning.number + 1
        weighted = mass.is_floating_point() or target.is_floating_point()
        sums = torch.zeros(rows * n_classes, width, dtype=torch.float64, device=scores.device)
        counts = torch.zeros_like(sums, dtype=torch.float64 if weighted else torch.int32)
        first = torch.arange(0, sums.numel(), width, dtype=torch.int32, device=scores.device)
        first = first.view(rows, n_classes, 1, 1).expand(n_images, -1, -1, -1)

        def count(images: slice, pixels: slice) -> Tensor:
            part = activate(scores[images, :, pixels], activation), target[images, ..., pixels], mass[images, pixels]
            errors, place = _of_classes(*part, binning) if target.is_floating_point() else _of_labels(*part, binning)
            errors, amount = errors.double(), _amounts(*part[1:]) if weighted else counts.new_ones(())
            if weighted:
                errors.mul_(amount)
            index = _index(place, first[images], sums)
            for table, values in ((counts, amount.expand(place.shape)), (sums, errors)):
                if index.dim() > 1:
                    table.scatter_add_(1, index, values[0].flatten(1))
                else:
                    table.view(-1).index_add_(0, index, values.reshape(-1))
            return place

        place = _in_blocks(count, scores, torch.int16 if width < 2**15 else torch.int32)
        ctx.save_for_backward(scores, place, first, *((target, mass) if weighted else ()))
        ctx.binning, ctx.activation = binning, activation
        counts, sums = (
            part.view(rows, n_classes, width)[..., :-1].unflatten(2, (2, binning.number)) for part in (counts, sums)
        )
        ctx.mark_non_differentiable(counts)
        ctx.set_materialize_grads(False)
        return counts, sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None, gradient: Tensor | None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return (None,) * 6
        scores, place, first, *weights = ctx.saved_tensors
        # Where the class is present, the error falls as the score grows. The slope of a hinge at 0 is 0.
        table = F.pad(gradient.flatten(2).to(scores.dtype), (0, 1))
        table[..., ctx.binning.number :].neg_()
        if ctx.binning.top != 1:
            table[..., :: ctx.binning.number].zero_()
        table = table.flatten(0, 1)

        def pulled_back(images: slice, pixels: slice) -> Tensor:
            part = place[images, ..., pixels]
            index = _index(part, first[images], table)
            slope = table.gather(1, index) if index.dim() > 1 else table.view(-1).index_select(0, index)
            slope = slope.view(part.shape)
            if weights:
                target, mass = weights[0][images, ..., pixels], weights[1][images, pixels]
                if target.is_floating_point():
                    absent, present = slope.split(1, 2)
                    slope = torch.lerp(absent, present, target.unsqueeze(2))
                slope = slope * mass[:, None, None].to(slope.dtype)
            activated = activate(scores[images, :, pixels], ctx.activation)
            return pull_back(slope.squeeze(2), activated, ctx.activation).unsqueeze(2)

        return _in_blocks(pulled_back, scores, scores.dtype).squeeze(2), None, None, None, None, None


def _index(place: Tensor, first: Tensor, table: Tensor) -> Tensor:
    """Return the indices of places [n, C, K, p] in a table [R C, 2 T + 1] whose rows begin at ``first``.

    On a CPU, for a single image of a single set, they are indices in each row, int64 of shape [C, K p]: rows are
    processed on all threads. Otherwise they are indices in the flattened table, int32 of shape [n C K p].
    """
    if place.device.type == 'cpu' and not is_compiling() and len(place) == 1 and len(table) == place.shape[1]:
        return place[0].flatten(1).long()
    return (place + first).flatten()


def _in_blocks(function: Callable[[slice, slice], Tensor], scores: Tensor, dtype: torch.dtype) -> Tensor:
    """Apply a function to blocks of images and pixels that fit into the cache of a CPU; on a device, to all at once.

    The function computes a tensor [n, C, K, p] for slices of the images and of the pixels of scores [N, C, P]. The
    result has the shape [N, C, K, P], of this dtype if there are several blocks.
    """
    if scores.device.type != 'cpu' or is_compiling() or scores.numel() <= BLOCK:
        return function(slice(None), slice(None))
    n_images, n_classes, n_pixels = scores.shape
    block = BLOCK if torch.get_num_threads() == 1 else 4 * BLOCK
    step = max(1, block // n_classes)
    images = max(1, step // n_pixels)
    whole = scores.new_empty(0)
    for i in range(0, n_images, images):
        for start in range(0, n_pixels, step):
            part = function(slice(i, i + images), slice(start, start + step))
            if whole.numel() == 0:
                whole = part.new_empty((n_images, n_classes, part.shape[2], n_pixels), dtype=dtype)
            whole[i : i + images, ..., start : start + step] = part
    return whole


def _of_labels(scores: Tensor, target: Tensor, mass: Tensor, binning: Bins) -> tuple[Tensor, Tensor]:
    """Return the errors of scores [n, C, p] with a label for each pixel, and their places in the row of their class."""
    is_valid = _validity(mass)
    label = target.unsqueeze(1)
    is_class = is_valid * (label < scores.shape[1])
    label = label.clamp(max=scores.shape[1] - 1)
    errors = _zero_unless(is_valid, scores)
    own = errors.gather(1, label)
    if binning.top == 1:  # probabilities need no clamping
        errors.scatter_(1, label, torch.add(own, is_class, alpha=-1).abs_())
    else:
        errors.scatter_(1, label, torch.where(is_class > 0, binning.top - own, own)).clamp_(min=0)
    place = binning.of(errors)
    place.scatter_add_(1, label, is_class * binning.number)
    # The error of an ignored pixel is 0, in the first bin; move it to the last.
    place.add_(torch.rsub(is_valid, 2 * binning.number, alpha=2 * binning.number))
    return errors.unsqueeze(2), place.unsqueeze(2)


def _of_classes(scores: Tensor, target: Tensor, mass: Tensor, binning: Bins) -> tuple[Tensor, Tensor]:
    """Return the same for soft labels: each pixel counts as background and as foreground, [n, C, 2, p]."""
    scores = _zero_unless(_validity(mass), scores)
    errors = torch.stack([scores, binning.top - scores], 2).clamp_(min=0)
    errors.masked_fill_(torch.stack([target == 1, target == 0], 2), 0)  # also where it is infinite
    place = binning.of(errors)
    place[:, :, 1] += binning.number
    return errors, place


def _amounts(target: Tensor, mass: Tensor) -> Tensor:
    """Return the mass of each pixel, float64 of shape [n, C, 2, p] for soft labels, else [n, 1, 1, p]."""
    mass = mass.double().unsqueeze(1).unsqueeze(1)
    return torch.stack([1 - target, target], 2) * mass if target.is_floating_point() else mass


def _validity(mass: Tensor) -> Tensor:
    """Return 1 for pixels that count and 0 for ignored ones, int32 of shape [n, 1, p]."""
    return (mass != 0 if mass.is_floating_point() else mass).int().unsqueeze(1)


def _zero_unless(is_valid: Tensor, scores: Tensor) -> Tensor:
    """Set the scores of ignored pixels to 0, even NaN: several times faster on a CPU than `torch.where`."""
    integer = torch.int64 if scores.dtype == torch.float64 else torch.int32
    return (scores.view(integer) & -is_valid).view(scores.dtype)

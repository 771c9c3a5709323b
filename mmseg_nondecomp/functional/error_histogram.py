r"""Histograms of errors, class by class: the sufficient statistic of the sort-free Lovász extension.

For each class, foreground and background apart, the pixels in each cell of errors are counted. Counts add up over
images, over processes and over time, and take one pass over the pixels. Where each pixel counts once they are integers
and do not depend on the order of the pixels. A quantity that is computed for each cell returns to the pixels by a
look-up.

An error comes from a score :math:`s`: it is :math:`\max(s, 0)` on a class that is absent from the pixel and
:math:`\max(\mathrm{top} - s, 0)` on one that is present. With ``top = 1`` scores are probabilities, with ``top = 2``
they are one more than the logit of a hinge.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmseg_nondecomp._utils.versions import is_compiling
from mmseg_nondecomp.functional.activations import Activation, activate, pull_back
from mmseg_nondecomp.functional.error_cells import Cells

BLOCK = 1 << 17
"""Number of scores that a CPU processes at a time, four times as many with several threads: intermediate results stay
in its caches, and threads seldom wait for each other, which takes milliseconds where cores are shared."""


class ErrorHistogram(NamedTuple):
    """Counts and errors of a set of pixels. In the third dimension the background is first, the foreground second."""

    mass: Tensor
    """Number of pixels in each cell, int32 of shape [R, C, 2, T]; or their mass, float64."""
    errors: Tensor
    """Sum of their errors, differentiable; float64 of the same shape."""


def error_histogram(
    scores: Tensor, target: Tensor, mass: Tensor, cells: Cells, per_image: bool, activation: Activation = None
) -> ErrorHistogram:
    """Compute the histogram of the errors that scores make.

    Args:
        scores: The scores, of shape [N, C, P], or the logits that have them.
        target: The class of each pixel, int64 of shape [N, P], with C for none of them; or the share of each pixel that
            belongs to each class, of shape [N, C, P].
        mass: Weight of each pixel, of shape [N, P]: float64, or int32 where all are 1; 0 for ignored pixels.
        cells: The cells.
        per_image: Whether each image has a histogram of its own.
        activation: How scores are computed from logits. They are not kept for the backward pass.

    Returns:
        The histogram, with R = N or R = 1.
    """
    return ErrorHistogram(*_Histogram.apply(scores, target, mass, cells, per_image, activation))


class _Histogram(torch.autograd.Function):
    """Counting, and its adjoint: looking up."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        target: Tensor,
        mass: Tensor,
        cells: Cells,
        per_image: bool,
        activation: Activation,
    ) -> tuple[Tensor, Tensor]:
        n_images, n_classes, _ = scores.shape
        rows, width = n_images if per_image else 1, 2 * cells.number + 1
        weighted = mass.is_floating_point() or target.is_floating_point()
        sums = torch.zeros(rows * n_classes, width, dtype=torch.float64, device=scores.device)
        counts = torch.zeros_like(sums, dtype=torch.float64 if weighted else torch.int32)
        first = torch.arange(0, sums.numel(), width, dtype=torch.int32, device=scores.device)
        first = first.view(rows, n_classes, 1, 1).expand(n_images, -1, -1, -1)

        def count(images: slice, pixels: slice) -> Tensor:
            part = activate(scores[images, :, pixels], activation), target[images, ..., pixels], mass[images, pixels]
            errors, place = _of_classes(*part, cells) if target.is_floating_point() else _of_labels(*part, cells)
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
        ctx.cells, ctx.activation = cells, activation
        counts, sums = (
            part.view(rows, n_classes, width)[..., :-1].unflatten(2, (2, cells.number)) for part in (counts, sums)
        )
        ctx.mark_non_differentiable(counts)
        ctx.set_materialize_grads(False)
        return counts, sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None, gradient: Tensor | None) -> tuple[Tensor | None, None, None, None, None, None]:
        if gradient is None:
            return None, None, None, None, None, None
        scores, place, first, *weights = ctx.saved_tensors
        # Where the class is present, the error falls as the score grows. A hinge at 0 stays there.
        table = F.pad(gradient.flatten(2).to(scores.dtype), (0, 1))
        table[..., ctx.cells.number :].neg_()
        if ctx.cells.top != 1:
            table[..., :: ctx.cells.number].zero_()
        table = table.flatten(0, 1)

        def pulled_back(images: slice, pixels: slice) -> Tensor:
            part = place[images, ..., pixels]
            index = _index(part, first[images], table)
            found = table.gather(1, index) if index.dim() > 1 else table.view(-1).index_select(0, index)
            found = found.view(part.shape)
            if weights:
                target, mass = weights[0][images, ..., pixels], weights[1][images, pixels]
                if target.is_floating_point():
                    absent, present = found.split(1, 2)
                    found = torch.lerp(absent, present, target.unsqueeze(2))
                found = found * mass[:, None, None].to(found.dtype)
            activated = activate(scores[images, :, pixels], ctx.activation)
            return pull_back(found.squeeze(2), activated, ctx.activation).unsqueeze(2)

        return _in_blocks(pulled_back, scores, scores.dtype).squeeze(2), None, None, None, None, None


def _index(place: Tensor, first: Tensor, table: Tensor) -> Tensor:
    """Return where places [n, C, K, p] are in a table [R C, 2 T + 1], whose rows begin at ``first``.

    For a single image of a single set a CPU takes them row by row, on all threads: int64 of shape [C, K p]. Otherwise
    they are those in the flattened table: int32 of shape [n C K p].
    """
    if place.device.type == 'cpu' and not is_compiling() and len(place) == 1 and len(table) == place.shape[1]:
        return place[0].flatten(1).long()
    return (place + first).flatten()


def _in_blocks(function: Callable[[slice, slice], Tensor], scores: Tensor, dtype: torch.dtype) -> Tensor:
    """Apply a function to blocks of images and pixels that fit into the cache of a CPU; on a device, to all at once.

    Args:
        function: Computes a tensor [n, C, K, p] for slices of the images and of the pixels.
        scores: A tensor of the shape of the scores, [N, C, P].
        dtype: The type in which the results of several blocks are kept.

    Returns:
        The results, of shape [N, C, K, P].
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


def _of_labels(scores: Tensor, target: Tensor, mass: Tensor, cells: Cells) -> tuple[Tensor, Tensor]:
    """Return the errors of scores [n, C, p] with a label for each pixel, and their places in the row of their class."""
    exists = _existence(mass)
    label = target.unsqueeze(1)
    is_class = exists * (label < scores.shape[1])
    label = label.clamp(max=scores.shape[1] - 1)
    errors = _zero_unless(exists, scores)
    own = errors.gather(1, label)
    if cells.top == 1:  # Probabilities need no cut.
        errors.scatter_(1, label, torch.add(own, is_class, alpha=-1).abs_())
    else:
        errors.scatter_(1, label, torch.where(is_class > 0, cells.top - own, own)).clamp_(min=0)
    place = cells.of(errors)
    place.scatter_add_(1, label, is_class * cells.number)
    # The error of a pixel that does not exist is 0, in the first cell; from there to the last.
    place.add_(torch.rsub(exists, 2 * cells.number, alpha=2 * cells.number))
    return errors.unsqueeze(2), place.unsqueeze(2)


def _of_classes(scores: Tensor, target: Tensor, mass: Tensor, cells: Cells) -> tuple[Tensor, Tensor]:
    """Return the same for shares of classes: each pixel counts as background and as foreground, [n, C, 2, p]."""
    scores = _zero_unless(_existence(mass), scores)
    errors = torch.stack([scores, cells.top - scores], 2).clamp_(min=0)
    errors.masked_fill_(torch.stack([target == 1, target == 0], 2), 0)  # an infinite one, too
    place = cells.of(errors)
    place[:, :, 1] += cells.number
    return errors, place


def _amounts(target: Tensor, mass: Tensor) -> Tensor:
    """Return the mass with which each pixel counts, float64 of shape [n, C, 2, p] for shares, else [n, 1, 1, p]."""
    mass = mass.double().unsqueeze(1).unsqueeze(1)
    return torch.stack([1 - target, target], 2) * mass if target.is_floating_point() else mass


def _existence(mass: Tensor) -> Tensor:
    """Return 1 for pixels that exist and 0 for others, int32 of shape [n, 1, p]."""
    return (mass != 0 if mass.is_floating_point() else mass).int().unsqueeze(1)


def _zero_unless(exists: Tensor, scores: Tensor) -> Tensor:
    """Set the scores of pixels that do not exist to 0, even NaN: several times faster on a CPU than `torch.where`."""
    integer = torch.int64 if scores.dtype == torch.float64 else torch.int32
    return (scores.view(integer) & -exists).view(scores.dtype)

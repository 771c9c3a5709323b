r"""Several classes without overlap: coordinate ascent on the sum of the classes' expected measures.

Each pixel is decided for one class, and the sum over classes has no maximiser in closed form. One part of the image
after another is decided anew: each of its pixels goes to the class to which it adds most, given all other decisions.
Then the sums of the classes are updated. There are 64 parts, each spread over the whole image, so that the sums change
little at once. The change by a pixel of probability p is approximately affine in p: see `Value`.
"""

import torch
from torch import Tensor

from mmseg_nondecomp.functional.decisions._expectations import Goal, Sums, expected_value

PARTS = 64
SWEEPS = 2  # number of times that each part is decided; a third adds less than 0.1 % to the objective
RUN = 64  # number of neighbouring pixels in the same part of a large image, for the cache
LARGE = 1 << 16  # number of pixels of a large image


def decide_classes(probs: Tensor, goal: Goal, min_probability: Tensor) -> Tensor:
    """Return the decided class of each pixel, int64 of shape [N, P], for probabilities [N, C, P] and limits [N, 1].

    A pixel with a NaN goes to the class of its first NaN.
    """
    n_images, n_classes, _ = probs.shape
    labels = torch.empty_like(probs[:, 0], dtype=torch.int64)
    parts = list(zip(_parts(probs), _parts(labels), strict=True))
    barred = _barred(parts, min_probability)
    totals, absent = _totals(parts, goal)
    decided = probs.new_zeros(3, n_images, n_classes, dtype=torch.float64)
    for part, label in parts:
        label.copy_(_highest(part, 1.0, barred))
        decided += _decided_sums(part, label)
    first, value_of_first = labels.clone(), _values(decided, totals, absent, goal).sum(1)
    for sweep in range(SWEEPS):
        if sweep > 0 and goal.zero_division:
            # A class whose decided set is worse than none is left out.
            barred = _unless_all(
                barred.isinf() | (_values(decided, totals, absent, goal) < goal.zero_division * absent)
            )
        for part, label in parts:
            price = expected_value(Sums(*decided, *totals), goal)
            decided -= _decided_sums(part, label)
            label.copy_(_highest(part, price.slope, price.offset + barred))
            decided += _decided_sums(part, label)
    is_better = _values(decided, totals, absent, goal).sum(1) >= value_of_first
    return torch.where(is_better.unsqueeze(1), labels, first)


def _values(decided: Tensor, totals: Tensor, absent: Tensor, goal: Goal) -> Tensor:
    """Return the expected measure of each class, [N, C]."""
    values = expected_value(Sums(*decided, *totals), goal).value
    return torch.where(decided[0] > 0.5, values, goal.zero_division * absent)


def _parts(values: Tensor) -> list[Tensor]:
    """Return views of parts of the last dimension, which together are all of it."""
    n = values.shape[-1]
    if n < LARGE:
        return [values[..., start::PARTS] for start in range(min(n, PARTS))]
    end = n - n % (PARTS * RUN)
    runs = values[..., :end].unflatten(-1, (-1, PARTS, RUN))
    parts = [runs[..., part, :] for part in range(PARTS)]
    return parts if end == n else [*parts, values[..., end:]]


def _barred(parts: list[tuple[Tensor, Tensor]], min_probability: Tensor) -> Tensor:
    """Return -inf for classes whose highest probability in an image is below its limit, else 0, of shape [N, C]."""
    highest = torch.stack([part.flatten(2).nan_to_num(0).amax(2) for part, _ in parts]).amax(0)
    return _unless_all(highest < min_probability)


def _unless_all(barred: Tensor) -> Tensor:
    """Return -inf where a class is barred, and 0 elsewhere and in images all of whose classes are barred."""
    barred = barred & ~barred.all(1, keepdim=True)
    return torch.zeros_like(barred, dtype=torch.float64).masked_fill_(barred, -torch.inf)


def _totals(parts: list[tuple[Tensor, Tensor]], goal: Goal) -> tuple[Tensor, Tensor]:
    """Return the mean and the variance of the number of pixels of each class, [2, N, C], and P(it is 0), [N, C]."""
    rows = []
    for part, _ in parts:
        probs = part.flatten(2).nan_to_num(0).clamp_(max=1)
        sums = [probs.sum(2), probs.square().sum(2)]
        rows.append(torch.stack([*sums, torch.log1p(-probs).sum(2)] if goal.zero_division else sums).double())
    mean, square, *log_absent = torch.stack(rows).sum(0)
    return torch.stack([mean, mean - square]), log_absent[0].exp() if log_absent else torch.zeros_like(mean)


def _highest(part: Tensor, slope: Tensor | float, offset: Tensor) -> Tensor:
    """Return the class with the highest slope * p + offset for each pixel of a part."""
    shape = (*offset.shape, *[1] * (part.dim() - 2))
    if isinstance(slope, Tensor):
        part = torch.addcmul(offset.to(part.dtype).view(shape), part, slope.to(part.dtype).view(shape))
    else:
        part = part + offset.to(part.dtype).view(shape)
    # On the CPU, argmax takes several times longer.
    return part.max(1).indices


def _decided_sums(part: Tensor, label: Tensor) -> Tensor:
    """Return the first three of `Sums`, of shape [3, N, C]."""
    own = part.gather(1, label.unsqueeze(1)).flatten(1).nan_to_num(0).clamp_(max=1).double()
    values = torch.stack([torch.ones_like(own), own, own * (1 - own)])
    index = label.flatten(1).expand_as(values)
    return values.new_zeros(3, *part.shape[:2]).scatter_add_(2, index, values)

r"""Several classes without overlap: coordinate ascent on the sum of the classes' expected measures.

Each pixel is decided for one class, and the sum over classes has no maximiser in closed form. One part of the image
after another is decided anew: each of its pixels goes to the class to which it adds most, given all other decisions.
Then the sums of the classes are updated. There are 32 parts, each spread over the whole image, so that the sums change
little at once. The change by a pixel of probability p is approximately affine in p: see `Value`.
"""

import torch
from torch import Tensor

from mmseg_nondecomp.functional.decisions._expectations import Goal, Sums, expected_value

PARTS = 32
SWEEPS = 2  # number of times that each part is decided; a third adds less than 0.1 % to the objective
LONGEST_RUN = 1024  # number of neighbouring pixels in the same part of a large image, for the cache
RUNS = 16  # number of runs in a part, at least


def decide_classes(probs: Tensor, goal: Goal, min_probability: Tensor) -> Tensor:
    """Return the decided class of each pixel, int64 of shape [N, P], for probabilities [N, C, P] and limits [N, 1].

    A pixel with a NaN goes to the class of its first NaN.
    """
    mean = probs.sum(2).double()
    if mean.isnan().any():
        decided = decide_classes(probs.nan_to_num(0), goal, min_probability)
        return torch.where(probs.isnan().any(1), probs.max(1).indices, decided)
    totals = torch.stack([mean, mean - torch.linalg.vector_norm(probs, dim=2).double().square()])
    absent = torch.log1p(-probs.clamp(max=1)).sum(2).double().exp() if goal.zero_division else torch.zeros_like(mean)
    barred = torch.zeros_like(mean)
    if min_probability.any():
        barred = _unless_all(probs.amax(2) < min_probability)
    labels = torch.empty_like(probs[:, 0], dtype=torch.int64)
    parts = list(zip(_parts(probs), _parts(labels), strict=True))
    sums = []
    for part, label in parts:
        label.copy_(_highest(part + _as_scores(barred, part) if min_probability.any() else part))
        sums.append(_decided_sums(part, label))
    decided = torch.stack(sums).sum(0)
    first, value_of_first = labels.clone(), _values(decided, totals, absent, goal).sum(1)
    for sweep in range(SWEEPS):
        if sweep > 0 and goal.zero_division:
            # A class whose decided set is worse than none is left out.
            is_void = _values(decided, totals, absent, goal) < goal.zero_division * absent
            barred = _unless_all(barred.isinf() | is_void)
        for i, (part, label) in enumerate(parts):
            price = expected_value(Sums(*decided, *totals), goal)
            slope, offset = _as_scores(price.slope, part), _as_scores(price.offset + barred, part)
            label.copy_(_highest(torch.addcmul(offset, part, slope)))
            before, sums[i] = sums[i], _decided_sums(part, label)
            decided = decided + (sums[i] - before)
    is_worse = _values(decided, totals, absent, goal).sum(1) < value_of_first
    labels[is_worse] = first[is_worse]
    return labels


def _values(decided: Tensor, totals: Tensor, absent: Tensor, goal: Goal) -> Tensor:
    """Return the expected measure of each class, [N, C]."""
    values = expected_value(Sums(*decided, *totals), goal).value
    return torch.where(decided[0] > 0.5, values, goal.zero_division * absent)


def _parts(values: Tensor) -> list[Tensor]:
    """Return views of parts of the last dimension, which together are all of it."""
    n = values.shape[-1]
    run = min(LONGEST_RUN, n // (PARTS * RUNS))
    if run < 2:
        return [values[..., start::PARTS] for start in range(min(n, PARTS))]
    end = n - n % (PARTS * run)
    runs = values[..., :end].unflatten(-1, (-1, PARTS, run))
    parts = [runs[..., part, :] for part in range(PARTS)]
    return parts if end == n else [*parts, values[..., end:]]


def _unless_all(barred: Tensor) -> Tensor:
    """Return -inf where a class is barred, and 0 elsewhere and in images all of whose classes are barred."""
    barred = barred & ~barred.all(1, keepdim=True)
    return torch.zeros_like(barred, dtype=torch.float64).masked_fill_(barred, -torch.inf)


def _as_scores(of_classes: Tensor, part: Tensor) -> Tensor:
    """Return values of classes [N, C] in the dtype and with the dimensions of a part."""
    return of_classes.to(part.dtype).view(*of_classes.shape, *[1] * (part.dim() - 2))


def _highest(scores: Tensor) -> Tensor:
    """Return the class with the highest score, the first of equal ones, as a small integer.

    On the CPU it takes half the time of ``max``, and a fifth of that of ``argmax``.
    """
    n_classes = scores.shape[1]
    dtype = torch.uint8 if n_classes < 256 else torch.int32
    codes = torch.arange(n_classes, 0, -1, dtype=dtype, device=scores.device).view(1, -1, *[1] * (scores.dim() - 2))
    is_highest = scores >= scores.amax(1, keepdim=True)
    is_highest = is_highest.view(dtype) if dtype == torch.uint8 else is_highest.to(dtype)
    return n_classes - is_highest.mul_(codes).amax(1)


def _decided_sums(part: Tensor, label: Tensor) -> Tensor:
    """Return the first three of `Sums`, of shape [3, N, C]."""
    own = part.gather(1, label.unsqueeze(1)).flatten(1)
    values = torch.ones(3, *own.shape, dtype=torch.float64, device=own.device)
    values[1].copy_(own)
    torch.addcmul(values[1], values[1], values[1], value=-1, out=values[2])
    return values.new_zeros(3, *part.shape[:2]).scatter_add_(2, label.flatten(1).expand_as(values), values)

"""The Jaccard index of decisions image by image, and the other averages that are called mIoU."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import jaccard_counts
from mmseg_nondecomp.functional._inputs import check_number
from mmseg_nondecomp.metrics.functional._inputs import Layout, decided_inputs, layout_of
from mmseg_nondecomp.metrics.functional._jaccard import is_ignored_class


def jaccard_index_by_image(
    preds: Tensor,
    target: Tensor,
    num_classes: int,
    ignore_index: int | None = None,
    worst: float = 0.05,
    mode: str | None = None,
    from_logits: bool | None = None,
    zero_division: float | None = None,
) -> dict[str, Tensor]:
    """Compute five averages of the Jaccard index of the same decisions.

    Arguments are those of :class:`mmseg_nondecomp.metrics.JaccardIndexByImage`; this is its value for a single batch.

    Example:
        >>> decided = torch.tensor([[0, 1, 1, 1], [0, 0, 0, 1]])
        >>> true = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0]])
        >>> values = jaccard_index_by_image(decided, true, num_classes=2)
        >>> {name: round(value.item(), 3) for name, value in values.items()}
        {'image': 0.479, 'class': 0.479, 'dataset': 0.583, 'batch': 0.583, 'worst': 0.375}
    """
    layout = layout_of(num_classes, mode, from_logits, ignore_index)
    check_averages(worst, zero_division)
    counts, batch = counts_of_images(preds, target, layout, zero_division)
    return averages(counts, batch, worst, zero_division)


def check_averages(worst: float, zero_division: float | None) -> None:
    """Raise unless these are a share of the images and an index."""
    check_number('worst', worst, '(0, 1]')
    if zero_division is not None:
        check_number('zero_division', zero_division, '[0, 1]')


def counts_of_images(
    preds: Tensor, target: Tensor, layout: Layout, zero_division: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return the counts of each image [N, 2, C] or [N, 3, C]; and the index of the batch, and 1 if it has one.

    Counts are intersections and unions and, with a ``zero_division``, the number of valid pixels, the same for all
    classes. They are 0 for an ignored class.
    """
    num_classes, ignore_index = layout.num_classes, layout.ignore_index
    decided, label, mass = decided_inputs(preds, target, layout)
    if layout.mode == 'multilabel':
        parts = (decided & label, decided | label, label)
        hit, union, true = ((part * mass.unsqueeze(1)).sum(2) for part in parts)
        counts, is_true = torch.stack([hit, union], 1), true.sum(0) > 0
    else:
        counts = jaccard_counts(decided, label, mass, num_classes)
        true = mass.new_zeros(num_classes + 1).scatter_add_(0, label.flatten(), mass.flatten())
        is_true = true[:-1] > 0
    if zero_division is not None:
        n_valid = mass.sum(1).view(-1, 1, 1).expand(-1, 1, num_classes)
        counts = torch.cat([counts, n_valid], 1)
    if is_ignored_class(num_classes, ignore_index):
        counts[:, :, ignore_index] = 0
    of_batch = counts.sum(0)
    if zero_division is None:  # only classes that are true in the batch count in its average
        of_batch = of_batch * is_true
    index = class_indices(of_batch, zero_division).nanmean()
    return counts, torch.stack([index.nan_to_num(), (~index.isnan()).double()])


def class_indices(counts: Tensor, zero_division: float | None) -> Tensor:
    """Return the index of each class, float64 [..., C], from its counts [..., 2 or 3, C]; NaN if it does not count."""
    hit, union, *n_valid = counts.unbind(-2)
    index = hit.double() / union
    return index if zero_division is None else torch.where((union == 0) & (n_valid[0] > 0), zero_division, index)


def averages(counts: Tensor, batches: Tensor, worst: float, zero_division: float | None) -> dict[str, Tensor]:
    """Return the five averages, from the counts of all images, and the sum and the number of the batches' indices."""
    counts = counts.double()
    indices = class_indices(counts, zero_division)
    of_images = indices.nanmean(1)
    of_images = of_images[~of_images.isnan()]
    # In decimals: 0.28 of 25 images are 7, in floating-point numbers slightly more than 7.
    n_worst = math.ceil(Fraction(str(worst)) * len(of_images))
    total, number = batches.double().unbind()
    values = {
        'image': of_images.mean(),
        'class': indices.nanmean(0).nanmean(),
        'dataset': class_indices(counts.sum(0), zero_division).nanmean(),
        'batch': total / number,
        'worst': of_images.sort().values[:n_worst].mean(),
    }
    return {name: value.float() for name, value in values.items()}

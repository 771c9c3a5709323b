"""The Jaccard index of decisions image by image, and the other averages that are called mIoU."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import jaccard_counts, mean_jaccard
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
    check_worst(worst)
    return averages(*counts_of_images(preds, target, layout), worst)


def check_worst(worst: float) -> None:
    """Raise unless this is a share of the images."""
    check_number('worst', worst, '(0, 1]')


def counts_of_images(preds: Tensor, target: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Return intersections and unions of each image [N, 2, C]; and the index of the batch, and 1 if it has one."""
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
    if is_ignored_class(num_classes, ignore_index):
        counts[:, :, ignore_index] = 0
    # Only classes that are true in the batch count in its average.
    index = mean_jaccard(counts.sum(0) * is_true)
    return counts, torch.stack([index.nan_to_num(), (~index.isnan()).double()])


def averages(counts: Tensor, batches: Tensor, worst: float) -> dict[str, Tensor]:
    counts = counts.double()
    of_images = mean_jaccard(counts)
    # Of a single class: an image in which it is neither true nor decided does not count.
    of_images = of_images[~of_images.isnan()]
    seen = counts[:, 1] > 0
    index = torch.where(seen, counts[:, 0] / counts[:, 1].clamp(min=1), 0)
    of_classes = index.sum(0) / seen.sum(0)
    # In decimals: 0.28 of 25 images are 7, in floating-point numbers slightly more than 7.
    n_worst = math.ceil(Fraction(str(worst)) * len(of_images))
    total, number = batches.double().unbind()
    values = {
        'image': of_images.mean(),
        'class': of_classes.nanmean(),
        'dataset': mean_jaccard(counts.sum(0)),
        'batch': total / number,
        'worst': of_images.sort().values[:n_worst].mean(),
    }
    return {name: value.float() for name, value in values.items()}

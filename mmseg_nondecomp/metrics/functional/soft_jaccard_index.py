"""The soft Jaccard index of predictions, averaged over classes."""

import torch
from torch import Tensor

from mmseg_nondecomp.functional.class_average import Classes
from mmseg_nondecomp.functional.soft_iou import soft_sums
from mmseg_nondecomp.metrics.functional.jaccard_average import check_jaccard_arguments, count_decided, jaccard_average
from mmseg_nondecomp.metrics.segmentation import probability_items, type_of_value


def soft_jaccard_index(
    preds: Tensor,
    target: Tensor,
    num_classes: int,
    classes: Classes = 'seen',
    average: str | None = 'macro',
    ignore_index: int | None = None,
) -> Tensor:
    r"""The ratio of soft intersection and soft union of all pixels, averaged over classes.

    See :class:`mmseg_nondecomp.metrics.SoftJaccardIndex`, of which this is the value for a single batch, and
    :func:`mmseg_nondecomp.functional.soft_iou`, the loss.

    Args:
        preds: Probabilities, or logits, of shape [N, C, *]; or decided classes, integers of shape [N, *].
        target: Class indices, of shape [N, *], or a share for each class, of shape [N, C, *].
        num_classes: The number of classes; with 1, labels are 0 and 1, and 1 is the class.
        classes: Which classes are averaged: ``'seen'`` (true or decided on any pixel), ``'present'`` (true on any
            pixel), ``'all'``, or a list of indices.
        average: ``'macro'`` for the mean over classes, ``None`` for the value of each, NaN where it does not count.
        ignore_index: The label that takes a pixel out. By default 255, where it cannot be a class. A class that is
            ignored counts only if ``classes`` lists it.

    Returns:
        A scalar, or a value for each class, of shape [C].

    Raises:
        TypeError: If an argument is of a wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
        >>> soft_jaccard_index(probs, torch.tensor([0, 1, 1]), num_classes=2)
        tensor(0.4605)
    """
    check_jaccard_arguments(num_classes, classes, average, ignore_index)
    state = _soft_jaccard_index_update(preds, target, num_classes, ignore_index)
    return _soft_jaccard_index_compute(*state, classes, average, ignore_index).to(type_of_value(preds))


def _soft_jaccard_index_update(
    preds: Tensor, target: Tensor, num_classes: int, ignore_index: int | None
) -> tuple[Tensor, Tensor]:
    """Intersection, union, foreground and mass of each class [C, 4], and how many pixels are decided for it [C]."""
    items = probability_items(preds, target, num_classes, ignore_index)
    return torch.stack(soft_sums(items, per_image=False), 2)[0], count_decided(preds, items)


def _soft_jaccard_index_compute(
    sums: Tensor, decided: Tensor, classes: Classes, average: str | None, ignore_index: int | None
) -> Tensor:
    intersection, union, foreground, _ = sums.double().unbind(1)
    empty = union == 0
    index = torch.where(empty, 1, intersection / torch.where(empty, 1, union))
    return jaccard_average(index, foreground > 0, decided, classes, average, ignore_index)

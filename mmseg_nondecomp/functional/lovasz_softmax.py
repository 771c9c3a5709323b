"""The Lovász-Softmax loss: the mean over classes of the Lovász extension of the Jaccard loss."""

from collections.abc import Sequence

from torch import Tensor

from mmseg_nondecomp.functional.class_average import Classes, check_classes, class_average, class_weights
from mmseg_nondecomp.functional.error_cells import ProbabilityCells
from mmseg_nondecomp.functional.items import class_items, number_of_classes, valid_items
from mmseg_nondecomp.functional.lovasz import binned_losses, sorted_losses


def lovasz_softmax(
    probs: Tensor,
    target: Tensor,
    classes: Classes = 'present',
    per_image: bool = False,
    ignore_index: int | None = None,
    class_weight: Tensor | Sequence[float] | None = None,
    bins: int | None = None,
) -> Tensor:
    r"""The Lovász-Softmax loss (equation 13 of the paper).

    The error of a pixel for class :math:`c` is :math:`1 - f(c)` if it belongs to the class and :math:`f(c)` if not. The
    loss of the class is the Lovász extension of :math:`1 - \mathrm{IoU}_c` at these errors: on one-hot predictions it
    is that loss itself.

    A pixel with a share for each class counts as that much of a pixel of each of them. This is the expected labelling,
    right for mixed images; its best prediction is the most probable class, not the shares, so for labels that
    are to be matched (smoothing, distillation) use :func:`soft_iou`.

    Args:
        probs: Probabilities, of shape [N, C, *]. With C = 1, those of the foreground, which is label 1.
        target: Class indices, of shape [N, *], or a share for each class, or several labels, of shape [N, C, *].
        classes: Which classes are averaged: those ``'present'`` in the set, ``'all'``, or a list. The loss of a class
            that is absent is the highest probability that any pixel gives it.
        per_image: Whether each image is a set (and the sets are averaged), or all of them are one.
        ignore_index: The label of the pixels that do not exist. By default 255, where it cannot be a class.
        class_weight: Makes the mean over classes a weighted one.
        bins: How finely errors are told apart, B, without sorting; the loss is within 1 / (2 B) of the exact one.
            ``None`` sorts, and is exact.

    Returns:
        A scalar in [0, 1]; 0, attached to the graph, if no class counts.

    Raises:
        TypeError: If a dtype does not fit.
        ValueError: If a shape or a value is out of range.

    Example:
        >>> import torch
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
        >>> lovasz_softmax(probs, torch.tensor([0, 1, 1]))
        tensor(0.4333)
        >>> lovasz_softmax(probs, torch.tensor([0, 1, 1]), bins=1024)
        tensor(0.4333)

    Reference:
        M. Berman, A. Rannen Triki, M. B. Blaschko: The Lovász-Softmax loss. CVPR 2018.
        https://arxiv.org/abs/1705.08790
    """
    check_classes(classes)
    check_bins(bins)
    n_classes = number_of_classes(probs, 'probs')
    valid = valid_items(probs, target, None, ignore_index, max(n_classes, 2), 'probs')
    items = class_items(probs, target, valid, None, zero_is_class=False)
    if bins is None:
        losses = sorted_losses(items, 1.0, per_image)
    else:
        losses = binned_losses(items, ProbabilityCells(bins), per_image)
    return class_average(*losses, classes, class_weights(class_weight, items.scores.dtype))


def check_bins(bins: int | None) -> None:
    """Raise unless ``bins`` is a positive integer or None."""
    if bins is None:
        return
    if not isinstance(bins, int) or isinstance(bins, bool):
        raise TypeError(f'Parameter `bins` should be an integer, or None to sort. Found {bins!r}.')
    if bins < 1:
        raise ValueError(f'Parameter `bins` should be at least 1. Found {bins}.')

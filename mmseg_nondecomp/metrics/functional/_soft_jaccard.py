"""The soft Jaccard index of predictions, averaged over classes."""

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Classes
from mmseg_nondecomp.functional.overlap import SoftSums, losses_of_sums, soft_sums
from mmseg_nondecomp.metrics.functional._inputs import probability_inputs, value_dtype
from mmseg_nondecomp.metrics.functional._jaccard_average import check_jaccard_arguments, count_decided, jaccard_average


def soft_jaccard_index(
    preds: Tensor,
    target: Tensor,
    num_classes: int,
    classes: Classes = 'seen',
    average: str | None = 'macro',
    ignore_index: int | None = None,
) -> Tensor:
    """Compute the ratio of soft intersection and soft union of all pixels, averaged over classes.

    This is the value of :class:`mmseg_nondecomp.metrics.SoftJaccardIndex` for a single batch.

    Args:
        preds: Probabilities, or logits, of shape [N, C, *]; or decided classes, integers of shape [N, *].
        target: Class indices, of shape [N, *], or soft labels, of shape [N, C, *].
        num_classes: The number of classes, as for the class; so are the other arguments.
        classes: The classes that are averaged.
        average: ``'macro'`` or ``None``.
        ignore_index: The label of the pixels to ignore.

    Returns:
        A scalar, or a value for each class, of shape [C].

    Raises:
        TypeError: If an argument is of a wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
        >>> soft_jaccard_index(probs, torch.tensor([0, 1, 1]), num_classes=2)
        tensor(0.4605)
    """
    check_jaccard_arguments(num_classes, classes, average, ignore_index)
    state = _soft_jaccard_index_update(preds, target, num_classes, ignore_index)
    return _soft_jaccard_index_compute(*state, classes, average, ignore_index).to(value_dtype(preds))


def _soft_jaccard_index_update(
    preds: Tensor, target: Tensor, num_classes: int, ignore_index: int | None
) -> tuple[Tensor, Tensor]:
    """Return intersection, union, foreground and mass of each class [C, 4], and the number of pixels decided for it."""
    inputs = probability_inputs(preds, target, num_classes, ignore_index)
    return torch.stack(soft_sums(inputs, per_image=False), 2)[0], count_decided(preds, inputs)


def _soft_jaccard_index_compute(
    sums: Tensor, decided: Tensor, classes: Classes, average: str | None, ignore_index: int | None
) -> Tensor:
    losses, present, _ = losses_of_sums(SoftSums(*sums.double().unsqueeze(0).unbind(2)))
    return jaccard_average(1 - losses[0], present[0], decided, classes, average, ignore_index)

"""One minus the Lovász-Softmax loss of predictions, averaged over classes."""

from torch import Tensor

from mmseg_nondecomp.functional.class_average import Classes
from mmseg_nondecomp.functional.error_cells import ProbabilityCells
from mmseg_nondecomp.functional.error_histogram import error_histogram
from mmseg_nondecomp.functional.jaccard_shares import shares_of_cells
from mmseg_nondecomp.functional.lovasz_softmax import check_bins
from mmseg_nondecomp.metrics.functional.jaccard_average import check_jaccard_arguments, count_decided, jaccard_average
from mmseg_nondecomp.metrics.segmentation import probability_items, type_of_value


def lovasz_jaccard_index(
    preds: Tensor,
    target: Tensor,
    num_classes: int,
    classes: Classes = 'seen',
    average: str | None = 'macro',
    ignore_index: int | None = None,
    bins: int = 1024,
) -> Tensor:
    r"""One minus the Lovász-Softmax loss of all pixels.

    See :class:`mmseg_nondecomp.metrics.LovaszJaccardIndex`, of which this is the value for a single batch, and
    :func:`mmseg_nondecomp.functional.lovasz_softmax`, the loss.

    Args:
        preds: Probabilities, or logits, of shape [N, C, *]; or decided classes, integers of shape [N, *].
        target: Class indices, of shape [N, *], or a share for each class, of shape [N, C, *].
        num_classes: The number of classes; with 1, labels are 0 and 1, and 1 is the class.
        classes: Which classes are averaged: ``'seen'`` (true or decided on any pixel), ``'present'`` (true on any
            pixel), ``'all'``, or a list of indices.
        average: ``'macro'`` for the mean over classes, ``None`` for the value of each, NaN where it does not count.
        ignore_index: The label that takes a pixel out. By default 255, where it cannot be a class. A class that is
            ignored counts only if ``classes`` lists it.
        bins: How finely errors are told apart.

    Returns:
        A scalar, or a value for each class, of shape [C].

    Raises:
        TypeError: If an argument is of a wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
        >>> lovasz_jaccard_index(probs, torch.tensor([0, 1, 1]), num_classes=2)
        tensor(0.5667)
    """
    _lovasz_jaccard_index_arg_validation(num_classes, classes, average, ignore_index, bins)
    state = _lovasz_jaccard_index_update(preds, target, num_classes, ignore_index, bins)
    return _lovasz_jaccard_index_compute(*state, classes, average, ignore_index).to(type_of_value(preds))


def _lovasz_jaccard_index_arg_validation(
    num_classes: int, classes: Classes, average: str | None, ignore_index: int | None, bins: int
) -> None:
    check_jaccard_arguments(num_classes, classes, average, ignore_index)
    if bins is None:
        raise TypeError('Parameter `bins` should be an integer. Found None.')
    check_bins(bins)


def _lovasz_jaccard_index_update(
    preds: Tensor, target: Tensor, num_classes: int, ignore_index: int | None, bins: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The mass and the sum of errors in each cell [C, 2, T], and how many pixels are decided for each class [C]."""
    items = probability_items(preds, target, num_classes, ignore_index)
    histogram = error_histogram(*items, ProbabilityCells(bins), per_image=False)
    return histogram.mass[0], histogram.errors[0], count_decided(preds, items)


def _lovasz_jaccard_index_compute(
    mass: Tensor, errors: Tensor, decided: Tensor, classes: Classes, average: str | None, ignore_index: int | None
) -> Tensor:
    mass = mass.double()
    losses = (errors * shares_of_cells(mass)).sum((1, 2))
    return jaccard_average(1 - losses, mass[:, 1].sum(1) > 0, decided, classes, average, ignore_index)

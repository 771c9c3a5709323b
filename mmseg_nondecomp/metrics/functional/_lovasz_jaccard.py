"""One minus the Lovász-Softmax loss of predictions, averaged over classes."""

from torch import Tensor

from mmseg_nondecomp.functional._inputs import Classes, check_integer
from mmseg_nondecomp.functional.lovasz.extension import shares_of_cells
from mmseg_nondecomp.functional.lovasz.histogram import ProbabilityCells, error_histogram, loss_of_cells
from mmseg_nondecomp.metrics.functional._inputs import probability_inputs, value_dtype
from mmseg_nondecomp.metrics.functional._jaccard_average import check_jaccard_arguments, count_decided, jaccard_average


def lovasz_jaccard_index(
    preds: Tensor,
    target: Tensor,
    num_classes: int,
    classes: Classes = 'seen',
    average: str | None = 'macro',
    ignore_index: int | None = None,
    bins: int = 1024,
) -> Tensor:
    """Compute one minus the Lovász-Softmax loss of all pixels.

    This is the value of :class:`mmseg_nondecomp.metrics.LovaszJaccardIndex` for a single batch.

    Args:
        preds: Probabilities, or logits, of shape [N, C, *]; or decided classes, integers of shape [N, *].
        target: Class indices, of shape [N, *], or soft labels, of shape [N, C, *].
        num_classes: The number of classes, as for the class; so are the other arguments.
        classes: The classes that are averaged.
        average: ``'macro'`` or ``None``.
        ignore_index: The label of the pixels to ignore.
        bins: The resolution of the errors.

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
    return _lovasz_jaccard_index_compute(*state, classes, average, ignore_index).to(value_dtype(preds))


def _lovasz_jaccard_index_arg_validation(
    num_classes: int, classes: Classes, average: str | None, ignore_index: int | None, bins: int
) -> None:
    check_jaccard_arguments(num_classes, classes, average, ignore_index)
    check_integer('bins', bins, lowest=1)


def _lovasz_jaccard_index_update(
    preds: Tensor, target: Tensor, num_classes: int, ignore_index: int | None, bins: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return mass and sum of errors in each cell [C, 2, T], and the number of pixels decided for each class [C]."""
    inputs = probability_inputs(preds, target, num_classes, ignore_index)
    histogram = error_histogram(inputs, ProbabilityCells(bins), per_image=False)
    return histogram.mass[0], histogram.errors[0], count_decided(preds, inputs)


def _lovasz_jaccard_index_compute(
    mass: Tensor, errors: Tensor, decided: Tensor, classes: Classes, average: str | None, ignore_index: int | None
) -> Tensor:
    mass = mass.double()
    losses = loss_of_cells(errors, shares_of_cells(mass))
    return jaccard_average(1 - losses, mass[:, 1].sum(1) > 0, decided, classes, average, ignore_index)

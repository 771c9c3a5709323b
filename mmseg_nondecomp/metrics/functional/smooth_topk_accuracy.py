"""The smooth top-k accuracy of scores."""

import torch
from torch import Tensor

from mmseg_nondecomp.functional.items import valid_items
from mmseg_nondecomp.functional.label_losses import Labelled, expected_loss, label_loss
from mmseg_nondecomp.functional.topk_odds import log_odds_of_miss
from mmseg_nondecomp.functional.topk_settings import check_k, check_temperature
from mmseg_nondecomp.metrics.segmentation import check_ignore_index, check_num_classes, type_of_value


def smooth_topk_accuracy(
    preds: Tensor, target: Tensor, num_classes: int, k: int = 5, tau: float = 1.0, ignore_index: int | None = None
) -> Tensor:
    r"""The mean probability that the label is in the top-k set.

    See :class:`mmseg_nondecomp.metrics.SmoothTopKAccuracy`, of which this is the value for a single batch, and
    :func:`mmseg_nondecomp.functional.smooth_topk_loss`, the loss.

    Args:
        preds: Scores, of shape [N, C, *].
        target: Class indices, of shape [N, *], or a share for each class, of shape [N, C, *].
        num_classes: The number of classes.
        k: How many labels a prediction has, below the number of classes.
        tau: The temperature.
        ignore_index: The label that takes an item out. By default 255, where it cannot be a class.

    Returns:
        A scalar; NaN if no item counts.

    Raises:
        TypeError: If an argument is of a wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> smooth_topk_accuracy(torch.tensor([[3.0, 2.0, 1.0, 0.0]]), torch.tensor([1]), num_classes=4, k=2)
        tensor(0.5891)
    """
    _smooth_topk_accuracy_arg_validation(num_classes, k, tau, ignore_index)
    total, count = _smooth_topk_accuracy_update(preds, target, num_classes, k, tau, ignore_index)
    return _smooth_topk_accuracy_compute(total, count).to(type_of_value(preds))


def _smooth_topk_accuracy_arg_validation(num_classes: int, k: int, tau: float, ignore_index: int | None) -> None:
    check_num_classes(num_classes)
    check_k(k, num_classes)
    check_temperature(tau)
    check_ignore_index(ignore_index)


def _smooth_topk_accuracy_update(
    preds: Tensor, target: Tensor, num_classes: int, k: int, tau: float, ignore_index: int | None
) -> tuple[Tensor, Tensor]:
    """The sum of the probabilities, float64, and how many there are."""
    if preds.dim() < 2 or preds.shape[1] != num_classes:
        raise ValueError(
            f'Parameter `preds` should hold scores of shape [N, {num_classes}, *]. '
            f'Found {preds.dtype} of shape {tuple(preds.shape)}.'
        )

    def hits(items: Labelled) -> Tensor:
        found = torch.sigmoid(-log_odds_of_miss(items.scores, items.target, k, tau))
        if items.target.is_floating_point():
            found = expected_loss(found, items.target)
        return found.double()

    total = label_loss(hits, preds, target, None, ignore_index, 'sum', 'preds')
    return total, valid_items(preds, target, None, ignore_index, num_classes, 'preds').sum()


def _smooth_topk_accuracy_compute(total: Tensor, count: Tensor) -> Tensor:
    return total.double() / count

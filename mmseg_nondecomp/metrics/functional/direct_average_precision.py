"""The average precision of scores, with the gradient of direct loss minimisation."""

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import check_bins
from mmseg_nondecomp.functional.direct_ap_loss import direct_ap_losses
from mmseg_nondecomp.functional.items import IGNORED_BY_DEFAULT, can_be_read, valid_items
from mmseg_nondecomp.functional.loss_augmented_ranking import check_epsilon
from mmseg_nondecomp.functional.score_histogram import average_precisions, count_scores
from mmseg_nondecomp.metrics.segmentation import check_ignore_index, check_num_classes


def direct_average_precision(
    preds: Tensor,
    target: Tensor,
    num_classes: int | None = None,
    epsilon: float = 0.1,
    mode: str = 'positive',
    ignore_index: int | None = None,
    bins: int | None = None,
) -> Tensor:
    r"""The average precision, averaged over the classes that have positives.

    See :class:`mmseg_nondecomp.metrics.DirectAveragePrecision`, of which this is the value for a single batch, and
    :func:`mmseg_nondecomp.functional.direct_ap_loss`, which has the same gradient of the opposite sign.

    Args:
        preds: Scores, of shape [N, C, *]; of a single class, [N, \*] will do.
        target: 1 for positives and 0 for negatives, or shares, of the shape of ``preds``; or class indices, of shape
            [N, \*]. Of a single class, labels are 0 and 1 and 1 is the class.
        num_classes: The number of classes; ``None``, as 1, for one ranking.
        epsilon: The weight of the loss in the ranking that is compared: how far the gradient looks.
        mode: ``'positive'`` or ``'negative'``, the update that the gradient is of.
        ignore_index: The label that takes an item out. By default 255, where it cannot be a class.
        bins: The number of cells of a histogram of the scores, of which the value is; ``None`` sorts them.

    Returns:
        A scalar; NaN if there are no positives.

    Raises:
        TypeError: If an argument is of a wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> scores = torch.tensor([2.0, 1.0, 0.0])
        >>> direct_average_precision(scores, torch.tensor([0, 1, 0]))
        tensor(0.5000)
    """
    _direct_average_precision_arg_validation(num_classes, epsilon, mode, ignore_index, bins)
    scores, labels = _direct_average_precision_update(preds, target, num_classes, ignore_index)
    if bins is None:
        return _direct_average_precision_compute(scores, labels, epsilon, mode)
    value = _direct_average_precision_binned_compute(_direct_average_precision_count(scores, labels, bins))
    return _with_gradient_of_ranking(value, scores, labels, epsilon, mode)


def _direct_average_precision_arg_validation(
    num_classes: int | None, epsilon: float, mode: str, ignore_index: int | None, bins: int | None
) -> None:
    if num_classes is not None:
        check_num_classes(num_classes)
    check_epsilon(epsilon)
    if mode not in ('positive', 'negative'):
        raise ValueError(
            "Parameter `mode` should be 'positive' or 'negative', the updates whose value is the average "
            f'precision. Found {mode!r}.'
        )
    check_ignore_index(ignore_index)
    check_bins(bins)


def _direct_average_precision_update(
    preds: Tensor, target: Tensor, num_classes: int | None, ignore_index: int | None
) -> tuple[Tensor, Tensor]:
    """Return the scores of each class and their labels: 1 for positives, 0 for negatives, -1 for neither; [n, C]."""
    if num_classes in (None, 1):
        scores, target = _of_one_class(preds, target)
    else:
        scores = preds
    n_classes = num_classes or 1
    if scores.dim() < 2 or scores.shape[1] != n_classes:
        raise ValueError(
            f'Parameter `preds` should hold scores of shape [N, {n_classes}, *]. '
            f'Found {preds.dtype} of shape {tuple(preds.shape)}.'
        )
    if target.shape == scores.shape:
        labels = _rows(_of_each_class(scores, target, ignore_index))
    else:
        valid = valid_items(scores, target, None, ignore_index, max(n_classes, 2), 'preds')
        is_class = target.reshape(-1, 1) == torch.arange(n_classes, device=target.device)
        labels = is_class.float().masked_fill_(~valid.reshape(-1, 1), -1)
    return _rows(scores.to(torch.promote_types(scores.dtype, torch.float32))), labels


def _direct_average_precision_compute(scores: Tensor, labels: Tensor, epsilon: float, mode: str) -> Tensor:
    is_positive = labels.t() == 1
    losses = direct_ap_losses(scores.t(), is_positive, labels.t() >= 0, epsilon, mode)
    return _mean_of_present(1 - losses, is_positive.any(1))


def _direct_average_precision_count(scores: Tensor, labels: Tensor, bins: int) -> Tensor:
    labels = labels.t()
    return count_scores(scores.detach().t(), labels == 1, labels >= 0, bins)


def _direct_average_precision_binned_compute(counts: Tensor) -> Tensor:
    return _mean_of_present(average_precisions(counts), counts[:, 1].any(1)).float()


def _with_gradient_of_ranking(value: Tensor, scores: Tensor, labels: Tensor, epsilon: float, mode: str) -> Tensor:
    """The value of a histogram, with the gradient of the scores as they are."""
    if not (torch.is_grad_enabled() and scores.requires_grad):
        return value
    exact = _direct_average_precision_compute(scores, labels, epsilon, mode)
    return value + (exact - exact.detach()).to(value.dtype)


def _of_each_class(scores: Tensor, target: Tensor, ignore_index: int | None) -> Tensor:
    """Return 1 for positives, 0 for negatives, -1 for what is ignored, of the shape of the scores [N, C, *]."""
    if not scores.is_floating_point():
        raise TypeError(f'Parameter `preds` should be a floating-point tensor. Found {scores.dtype}.')
    ignored = target == (IGNORED_BY_DEFAULT if ignore_index is None else ignore_index)
    if can_be_read(target):
        allowed = (target >= 0) & (target <= 1)
        if not (allowed | ignored).all():
            raise ValueError(
                'Parameter `target` should hold 0 and 1, shares in [0, 1] or the ignored label. '
                f'Found {target[~(allowed | ignored)][0].item()}.'
            )
    return (target > 0.5).float().masked_fill_(ignored, -1)


def _of_one_class(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and labels of a single class, of shape [N, 1]."""
    if preds.shape != target.shape and (preds.dim() < 2 or (preds.shape[0], *preds.shape[2:]) != target.shape):
        raise ValueError(
            'Parameter `target` should hold labels of the shape of `preds`, or of [N, *] for [N, 1, *]. '
            f'Found {tuple(target.shape)} for {tuple(preds.shape)}.'
        )
    if preds.shape != target.shape and preds.shape[1] != 1:
        raise ValueError(
            'Parameter `preds` should hold scores of shape [N, 1, *] or [N, *], or `num_classes` be given. '
            f'Found {preds.dtype} of shape {tuple(preds.shape)}.'
        )
    return preds.reshape(-1, 1), target.reshape(-1, 1)


def _mean_of_present(values: Tensor, present: Tensor) -> Tensor:
    """The mean of the values [C] of the classes that are present, bool of shape [C]; NaN if none is."""
    return torch.where(present, values, 0).sum() / present.sum()


def _rows(values: Tensor) -> Tensor:
    """Values [N, C, *] item by item, of shape [n, C]."""
    return values.movedim(1, -1).flatten(0, -2)

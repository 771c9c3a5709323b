"""Average precision of scores, with the gradient of direct loss minimisation."""

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import average_precisions, count_scores
from mmseg_nondecomp.functional._inputs import (
    IGNORED_BY_DEFAULT,
    at_least_float32,
    can_be_read,
    check_bins,
    check_floating_point,
    check_ignore_index,
    check_integer,
    check_number,
    check_option,
    read_inputs,
)
from mmseg_nondecomp.functional.direct.average_precision import direct_ap_losses


def direct_average_precision(
    preds: Tensor,
    target: Tensor,
    num_classes: int | None = None,
    epsilon: float = 0.1,
    mode: str = 'positive',
    ignore_index: int | None = None,
    bins: int | None = None,
) -> Tensor:
    r"""Compute the average precision of a single batch, averaged over the classes that have positives.

    Inputs, arguments, value and gradient are those of :class:`mmseg_nondecomp.metrics.DirectAveragePrecision`.

    Example:
        >>> scores = torch.tensor([2.0, 1.0, 0.0])
        >>> direct_average_precision(scores, torch.tensor([0, 1, 0]))
        tensor(0.5000)
    """
    check_settings(num_classes, epsilon, mode, ignore_index, bins)
    rankings = class_rankings(preds, target, num_classes, ignore_index)
    if bins is None:
        return mean_of_scores(*rankings, epsilon, mode)
    return with_gradient_of_scores(mean_of_counts(counts_of(*rankings, bins)), *rankings, epsilon, mode)


def check_settings(
    num_classes: int | None, epsilon: float, mode: str, ignore_index: int | None, bins: int | None
) -> None:
    """Raise unless the settings are valid."""
    if num_classes is not None:
        check_integer('num_classes', num_classes, lowest=1)
    check_number('epsilon', epsilon, '(0, inf)')
    check_option('mode', mode, ('positive', 'negative'))  # the value of the others is a bound
    check_ignore_index(ignore_index)
    check_bins(bins)


def class_rankings(
    preds: Tensor, target: Tensor, num_classes: int | None, ignore_index: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores of items for each class, whether these are positives, and whether they count, of shape [n, C]."""
    scores, target = _of_one_class(preds, target) if num_classes in (None, 1) else (preds, target)
    n_classes = num_classes or 1
    if scores.dim() < 2 or scores.shape[1] != n_classes:
        raise ValueError(
            f'Parameter `preds` should hold scores of shape [N, {n_classes}, *]. '
            f'Found {preds.dtype} of shape {tuple(preds.shape)}.'
        )
    if target.shape == scores.shape:
        is_positive, valid = map(_rows, _of_each_class(scores, target, ignore_index))
    else:
        inputs = read_inputs(scores, target, None, ignore_index, name='preds')
        is_positive = inputs.target.reshape(-1, 1) == torch.arange(n_classes, device=target.device)
        valid = inputs.valid.reshape(-1, 1).expand_as(is_positive)
    return _rows(at_least_float32(scores)), is_positive, valid


def mean_of_scores(scores: Tensor, is_positive: Tensor, valid: Tensor, epsilon: float, mode: str) -> Tensor:
    """Return the mean average precision of rankings, with a gradient."""
    losses = direct_ap_losses(scores.t(), is_positive.t(), valid.t(), epsilon, mode)
    return _mean_of_present(1 - losses, is_positive.any(0))


def counts_of(scores: Tensor, is_positive: Tensor, valid: Tensor, bins: int) -> Tensor:
    """Return the histograms of the scores of negatives and positives, int64 of shape [C, 2, bins + 1]."""
    return count_scores(scores.detach().t(), is_positive.t(), valid.t(), bins)


def mean_of_counts(counts: Tensor) -> Tensor:
    """Return the mean average precision of histograms."""
    return _mean_of_present(average_precisions(counts), counts[:, 1].any(1)).float()


def with_gradient_of_scores(
    value: Tensor, scores: Tensor, is_positive: Tensor, valid: Tensor, epsilon: float, mode: str
) -> Tensor:
    """Return the value of a histogram, with the gradient of the exact scores."""
    if not (torch.is_grad_enabled() and scores.requires_grad):
        return value
    exact = mean_of_scores(scores, is_positive, valid, epsilon, mode)
    return value + (exact - exact.detach()).to(value.dtype)


def _of_each_class(scores: Tensor, target: Tensor, ignore_index: int | None) -> tuple[Tensor, Tensor]:
    """Return whether labels are positive, and whether they count, of the shape of the scores [N, C, *]."""
    check_floating_point('preds', scores)
    valid = target != (IGNORED_BY_DEFAULT if ignore_index is None else ignore_index)
    if can_be_read(target):
        wrong = valid & ~((target >= 0) & (target <= 1))
        if wrong.any():
            raise ValueError(
                'Parameter `target` should hold 0 and 1, soft labels in [0, 1] or the ignored label. '
                f'Found {target[wrong][0].item()}.'
            )
    return valid & (target > 0.5), valid


def _of_one_class(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores and labels of a single class, of shape [N, 1]."""
    is_single = preds.dim() > 1 and preds.shape[1] == 1 and (preds.shape[0], *preds.shape[2:]) == target.shape
    if preds.shape != target.shape and not is_single:
        raise ValueError(
            'Parameter `preds` should be of the shape of `target`, or [N, 1, *] for [N, *], or `num_classes` be given. '
            f'Found {preds.dtype} of shape {tuple(preds.shape)} for {tuple(target.shape)}.'
        )
    return preds.reshape(-1, 1), target.reshape(-1, 1)


def _mean_of_present(values: Tensor, present: Tensor) -> Tensor:
    """Return the mean of the values [C] of the classes that are present, bool of shape [C]; NaN if none is."""
    return torch.where(present, values, 0).sum() / present.sum()


def _rows(values: Tensor) -> Tensor:
    """Return values [N, C, *] item by item, of shape [n, C]."""
    return values.movedim(1, -1).flatten(0, -2)

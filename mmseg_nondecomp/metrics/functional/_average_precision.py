"""Average precision of scores, with the gradient of direct loss minimisation."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import average_precisions, count_scores
from mmseg_nondecomp.functional._inputs import (
    Reading,
    check_bins,
    check_ignore_index,
    check_integer,
    check_number,
    check_option,
    check_tensor,
    read_inputs,
)
from mmseg_nondecomp.functional.direct.average_precision import direct_ap_losses
from mmseg_nondecomp.metrics.functional._inputs import checked_by_functions


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
    preds: Tensor,
    target: Tensor,
    num_classes: int | None,
    ignore_index: int | None,
    checked: dict[Any, int] = checked_by_functions,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores of items for each class, whether these are positives, and whether they count, of shape [n, C]."""
    check_tensor('preds', preds)
    check_tensor('target', target)
    n_classes = num_classes or 1
    _check_shapes(preds, target, n_classes)
    if n_classes > 1 and target.shape == preds.shape:  # each label counts or is ignored by itself
        preds, target = _rows(preds).flatten(), _rows(target).flatten()
    reading = Reading('binary' if n_classes == 1 or preds.dim() == 1 else 'multiclass')
    inputs = read_inputs(preds, target, None, ignore_index, reading, 'preds', checked)
    is_positive = inputs.one_hot() > 0.5 if inputs.is_soft else inputs.one_hot()
    parts = inputs.scores, is_positive, inputs.valid.unsqueeze(1).expand_as(is_positive)
    scores, is_positive, valid = (_rows(part).reshape(-1, n_classes) for part in parts)
    return scores, is_positive, valid


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


def _check_shapes(preds: Tensor, target: Tensor, n_classes: int) -> None:
    """Raise ValueError if predictions are not those of the classes."""
    shape = tuple(preds.shape)
    if n_classes > 1:
        if shape[1:2] != (n_classes,):
            raise ValueError(
                f'Parameter `preds` should hold scores of shape [N, {n_classes}, *]. '
                f'Found {preds.dtype} of shape {shape}.'
            )
    elif shape[1:2] not in ((), (1,)) and target.shape not in (shape, (shape[0], 1, *shape[1:])):
        raise ValueError(
            'Parameter `preds` should be of the shape of `target`, or [N, 1, *] for [N, *], or `num_classes` be given. '
            f'Found {preds.dtype} of shape {shape} for {tuple(target.shape)}.'
        )


def _mean_of_present(values: Tensor, present: Tensor) -> Tensor:
    """Return the mean of the values [C] of the classes that are present, bool of shape [C]; NaN if none is."""
    return torch.where(present, values, 0).sum() / present.sum()


def _rows(values: Tensor) -> Tensor:
    """Return values [N, C, *] item by item, of shape [n, C]."""
    return values.movedim(1, -1).flatten(0, -2)

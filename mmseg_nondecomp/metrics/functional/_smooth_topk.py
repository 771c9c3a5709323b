"""Smooth top-k accuracy of scores."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import (
    Reading,
    check_ignore_index,
    check_integer,
    check_k,
    check_tensor,
    read_inputs,
)
from mmseg_nondecomp.functional.topk.smooth import (
    check_temperature,
    expected_loss,
    item_rows,
    item_terms,
    log_odds_of_miss,
)
from mmseg_nondecomp.metrics.functional._inputs import checked_by_functions


def smooth_topk_accuracy(
    preds: Tensor, target: Tensor, num_classes: int, k: int = 5, tau: float = 1.0, ignore_index: int | None = None
) -> Tensor:
    """Compute the mean probability that the label is in the top-k set.

    It is the value of :class:`mmseg_nondecomp.metrics.SmoothTopKAccuracy`, with the same arguments, for a single batch;
    NaN if no item counts.

    Example:
        >>> smooth_topk_accuracy(torch.tensor([[3.0, 2.0, 1.0, 0.0]]), torch.tensor([1]), num_classes=4, k=2)
        tensor(0.5891)
    """
    check_settings(num_classes, k, tau, ignore_index)
    total, count = sum_of_probabilities(preds, target, num_classes, k, tau, ignore_index)
    return (total / count).to(torch.promote_types(preds.dtype, torch.float32))


def check_settings(num_classes: int, k: int, tau: float, ignore_index: int | None) -> None:
    check_integer('num_classes', num_classes, lowest=1)
    check_k(k, num_classes)
    check_temperature(tau)
    check_ignore_index(ignore_index)


def sum_of_probabilities(
    preds: Tensor,
    target: Tensor,
    num_classes: int,
    k: int,
    tau: float,
    ignore_index: int | None,
    checked: dict[Any, int] = checked_by_functions,
) -> tuple[Tensor, Tensor]:
    """Return the sum of the probabilities, float64, and the number of items."""
    check_tensor('preds', preds)
    if preds.dim() < 2 or preds.shape[1] != num_classes:
        raise ValueError(
            f'Parameter `preds` should hold scores of shape [N, {num_classes}, *]. '
            f'Found {preds.dtype} of shape {tuple(preds.shape)}.'
        )
    inputs = read_inputs(preds, target, None, ignore_index, Reading('multiclass'), 'preds', checked)
    scores, labels = item_rows(inputs)
    hits = torch.sigmoid(-log_odds_of_miss(scores, labels, k, tau))
    return item_terms(expected_loss(hits, labels).double(), inputs).sum(), inputs.valid.sum()

"""Checks, masks and reductions of losses that each item has by itself, given its scores and its label or soft label."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional.items import can_be_read, number_of_classes, valid_items

REDUCTIONS = ('mean', 'sum', 'none')


class Labelled(NamedTuple):
    """Items with the classes in the last dimension."""

    scores: Tensor
    """Of shape [N, *, C], float32 or better; 0 for items that do not count."""
    target: Tensor
    """The class of each item, int64 of shape [N, *], or the shares of classes, [N, *, C]."""
    valid: Tensor
    """Which items count, bool, of shape [N, *]."""


def label_loss(
    loss: Callable[[Labelled], Tensor],
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int | None,
    reduction: str,
    name: str = 'scores',
) -> Tensor:
    """Compute a loss for each item that counts, and reduce.

    Args:
        loss: Gives the loss of each item, of shape [N, *].
        scores: Of shape [N, C, *].
        target: Class indices of shape [N, *], or shares of classes of shape [N, C, *].
        weight: A factor for each item, of shape [N, *]; 0 removes it.
        ignore_index: The label that removes an item. By default 255, where it cannot be a class.
        reduction: ``'mean'`` over the items that count, ``'sum'``, or ``'none'``.
        name: What the user calls ``scores``.

    Raises:
        TypeError: If a dtype does not fit.
        ValueError: If a shape, a label or a share does not fit (shares are looked at on the CPU only), or the
            reduction is another.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f'Parameter `reduction` should be one of {REDUCTIONS}. Found {reduction!r}.')
    valid = valid_items(scores, target, weight, ignore_index, number_of_classes(scores, name), name)
    ignored = None if can_be_read(valid) and valid.all() else ~valid
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    scores = _without(ignored, scores).movedim(1, -1)
    if target.is_floating_point():
        labels = _without(ignored, target).movedim(1, -1).to(scores.dtype)
    else:
        labels = _without(ignored, target).long()
    losses = _without(ignored, loss(Labelled(scores, labels, valid)))
    if weight is not None:
        losses = losses * _without(ignored, weight)
    if reduction == 'none':
        return losses
    n_valid = max(1, valid.numel()) if ignored is None else valid.sum().clamp(min=1)
    return losses.sum() if reduction == 'sum' else losses.sum() / n_valid


def _without(ignored: Tensor | None, values: Tensor) -> Tensor:
    """Set the values [N, *] or [N, C, *] of the ignored items to 0."""
    if ignored is None:
        return values
    return values.masked_fill(ignored if ignored.dim() == values.dim() else ignored.unsqueeze(1), 0)


def expected_loss(losses: Tensor, shares: Tensor) -> Tensor:
    """The losses [..., C] that items would have with each label, averaged by the shares of their labels."""
    return (losses * shares).masked_fill(shares == 0, 0).sum(-1)

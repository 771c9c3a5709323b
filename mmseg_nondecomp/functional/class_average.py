"""Which classes count in a loss that is computed class by class, and their weighted mean."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmseg_nondecomp.functional.items import can_be_read

Classes = str | Sequence[int]


def check_classes(classes: Classes) -> None:
    """Raise unless the classes are ``'present'``, ``'all'`` or a list of class indices."""
    if isinstance(classes, str):
        if classes not in ('present', 'all'):
            raise ValueError(
                f"Parameter `classes` should be 'present', 'all' or a list of class indices. Found {classes!r}."
            )
        return
    if not isinstance(classes, Sequence) or not all(isinstance(c, int) and not isinstance(c, bool) for c in classes):
        raise TypeError(
            f"Parameter `classes` should be 'present', 'all' or a list of class indices. Found {classes!r}."
        )
    if len(classes) == 0 or any(int(c) < 0 for c in classes) or len(set(classes)) < len(classes):
        raise ValueError(f'Parameter `classes` should list class indices from 0 on, each once. Found {list(classes)}.')


def class_weights(values: Tensor | Sequence[float] | None, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """The weights of classes as a tensor; an exception unless they are non-negative numbers."""
    if values is None:
        return None
    if isinstance(values, str):
        raise TypeError(f'Parameter `class_weight` should be a list of numbers. Found {values!r}.')
    weights = torch.as_tensor(values, dtype=dtype)
    if weights.dim() != 1 or (can_be_read(weights) and not bool((weights >= 0).all())):
        raise ValueError(f'Parameter `class_weight` should hold non-negative numbers. Found {values}.')
    return weights


def class_average(
    losses: Tensor, present: Tensor, filled: Tensor, classes: Classes, class_weight: Tensor | None = None
) -> Tensor:
    """The mean over the sets that have any pixel of the weighted mean over the classes that count.

    Args:
        losses: The loss of each class in each set, of shape [R, C].
        present: Which classes have foreground in which set, bool, of shape [R, C].
        filled: Which sets have any pixel, bool, of shape [R].
        classes: Which classes count: those ``'present'`` in the set, ``'all'``, or those listed.
        class_weight: The weight of each class, of shape [C]; all alike when omitted.

    Returns:
        A scalar, never above the largest loss; 0 where nothing counts.

    Raises:
        ValueError: If a class is listed that ``losses`` does not have, or there is not one weight for each class.
    """
    n_classes = losses.shape[1]
    if class_weight is not None and len(class_weight) != n_classes:
        raise ValueError(
            f'Parameter `class_weight` should have one number for each of the {n_classes} classes. '
            f'Found {len(class_weight)}.'
        )
    if not isinstance(classes, str) and max(classes) >= n_classes:
        raise ValueError(
            f'Parameter `classes` should list classes below {n_classes}, the number of classes. Found {max(classes)}.'
        )
    if classes == 'present':
        counted = present
    elif classes == 'all':
        counted = filled.unsqueeze(1).expand_as(present)
    else:
        listed = torch.zeros(n_classes, dtype=torch.bool, device=losses.device)
        for c in classes:
            listed[int(c)].fill_(True)  # a list that goes to a device waits for it
        counted = filled.unsqueeze(1) & listed
    weights = counted.to(losses.dtype)
    if class_weight is not None:
        weights = weights * class_weight.to(losses)
    total = weights.sum(1, keepdim=True)
    weights = weights / total.clamp(min=torch.finfo(losses.dtype).tiny)
    # What does not count may be NaN.
    of_sets = losses.masked_fill(weights == 0, 0) * weights
    return of_sets.sum() / (total > 0).sum().clamp(min=1)

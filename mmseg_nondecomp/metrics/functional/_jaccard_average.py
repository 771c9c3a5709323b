"""Arguments of the differentiable Jaccard indices, and their average over classes."""

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Classes, Inputs, check_classes, check_ignore_index, check_integer
from mmseg_nondecomp.metrics.functional._inputs import decided_classes


def check_jaccard_arguments(num_classes: int, classes: Classes, average: str | None, ignore_index: int | None) -> None:
    """Raise unless these are arguments of a Jaccard index."""
    check_integer('num_classes', num_classes, lowest=1)
    if classes != 'seen':
        check_classes(classes)
    if not isinstance(classes, str) and max(classes) >= num_classes:
        raise ValueError(
            f'Parameter `classes` should list classes below {num_classes}, the number of classes. Found {max(classes)}.'
        )
    if average not in ('macro', 'none', None):
        raise ValueError(f"Parameter `average` should be 'macro' or None. Found {average!r}.")
    check_ignore_index(ignore_index)


def count_decided(preds: Tensor, inputs: Inputs) -> Tensor:
    """Return the number of items that are decided for each class, of shape [C]."""
    mass = inputs.mass.flatten()
    counts = mass.new_zeros(inputs.n_classes + 1)
    return counts.scatter_add_(0, decided_classes(preds, inputs).flatten(), mass)[:-1]


def is_ignored_class(num_classes: int, ignore_index: int | None) -> bool:
    """Return whether the label to ignore is a class, which then counts in no average."""
    # Labels of a single class, 0 and 1, are not the indices of classes.
    return ignore_index is not None and num_classes > 1 and 0 <= ignore_index < num_classes


def jaccard_average(
    index: Tensor,
    present: Tensor,
    decided: Tensor,
    classes: Classes,
    average: str | None,
    ignore_index: int | None,
) -> Tensor:
    """Average the index over the classes that count.

    Args:
        index: The index of each class, of shape [C].
        present: Whether a class has a true item, bool of shape [C].
        decided: The number of items that are decided for each class, of shape [C].
        classes: The classes that count: those ``'seen'`` (true or decided), ``'present'``, ``'all'``, or those listed.
        average: ``'macro'`` for the mean; ``None`` for the index of each class, NaN where it does not count.
        ignore_index: The label of the items to ignore. If it is a class, it counts only where it is listed.
    """
    n_classes = len(index)
    if classes == 'all':
        counted = torch.ones_like(present)
    elif classes == 'present':
        counted = present
    elif classes == 'seen':
        counted = present | (decided > 0)
    else:
        counted = torch.tensor([c in classes for c in range(n_classes)], device=present.device)
    if isinstance(classes, str) and is_ignored_class(n_classes, ignore_index):
        counted = counted & (torch.arange(n_classes, device=counted.device) != ignore_index)
    if average != 'macro':
        return torch.where(counted, index, torch.nan)
    return torch.where(counted, index, 0).sum() / counted.sum()

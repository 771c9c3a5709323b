"""What the segmentation metrics accept, in torchmetrics' terms: predictions, targets and the label to ignore."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional.items import Items, class_items, valid_items


def check_num_classes(num_classes: int) -> None:
    """Raise unless the number of classes is a positive integer."""
    if not isinstance(num_classes, int) or isinstance(num_classes, bool):
        raise TypeError(f'Parameter `num_classes` should be an integer. Found {num_classes!r}.')
    if num_classes < 1:
        raise ValueError(f'Parameter `num_classes` should be at least 1. Found {num_classes}.')


def check_ignore_index(ignore_index: Any) -> None:
    """Raise unless the label is an integer or None."""
    if ignore_index is not None and (not isinstance(ignore_index, int) or isinstance(ignore_index, bool)):
        raise TypeError(f'Parameter `ignore_index` should be an integer or None. Found {ignore_index!r}.')


def type_of_value(preds: Tensor) -> torch.dtype:
    """The type of what is computed from predictions: float32, or float64 as these are."""
    return torch.float64 if preds.dtype == torch.float64 else torch.float32


def probability_items(preds: Tensor, target: Tensor, num_classes: int, ignore_index: int | None) -> Items:
    """Return probabilities and their targets.

    Args:
        preds: Probabilities or logits, of shape [N, C, *], or decided classes, integers of shape [N, *]. Of a single
            class, [N, *] will do.
        target: The true classes, of shape [N, *], or a share for each class, of shape [N, C, *].
        num_classes: The number of classes C; with 1, labels are 0 and 1, and 1 is the class.
        ignore_index: The label that takes a pixel out.

    Raises:
        TypeError: If a dtype does not fit.
        ValueError: If a shape does not fit or a label is no class.
    """
    if not preds.is_floating_point() and preds.dim() > 0:
        return _items(_one_hot(preds, num_classes), target, ignore_index)
    scores, target = _class_scores(preds, target, num_classes)
    return _items(_probabilities(scores), target, ignore_index)


def decided_items(
    preds: Tensor, target: Tensor, num_classes: int, ignore_index: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return decided classes, true classes and masses, of shape [N, P].

    The arguments are those of `probability_items`.
    """
    if preds.is_floating_point() or preds.dim() == 0:
        scores, target = _class_scores(preds, target, num_classes)
        scores = _probabilities(scores) if num_classes == 1 else scores
    else:  # only the shape is needed
        scores = preds.new_zeros((), dtype=torch.float32).expand(len(preds), num_classes, *preds.shape[1:])
    items = _items(scores, target, ignore_index)
    return decided_classes(preds, items), items.target, items.mass


def decided_classes(preds: Tensor, items: Items) -> Tensor:
    """Return the class that is decided for each of the items of a prediction, int64 of shape [N, P]; C for none."""
    n_classes = items.scores.shape[1]
    if not preds.is_floating_point():
        labels = 1 - preds.long() if n_classes == 1 else preds.long()
        decided = labels.clamp(0, n_classes - 1)
        decided = decided.masked_fill(decided != labels, n_classes)
    elif n_classes == 1:
        return (items.scores[:, 0] <= 0.5).long()
    else:
        # Of the scores as they are: softmax makes those equal that nearly are. On the CPU argmax takes longer.
        decided = preds.max(1).indices
    return decided.flatten(1) if decided.dim() > 1 else decided.unsqueeze(0)


def _class_scores(preds: Tensor, target: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return scores of shape [N, C, *] and their targets."""
    if num_classes == 1 and preds.is_floating_point() and preds.shape == target.shape:
        if not target.is_floating_point():
            preds = preds.unsqueeze(1)
        elif preds.dim() < 2 or preds.shape[1] != 1:
            preds, target = preds.unsqueeze(1), target.unsqueeze(1)
    if preds.dim() < 2 or preds.shape[1] != num_classes:
        raise ValueError(
            f'Parameter `preds` should hold scores of shape [N, {num_classes}, *] or integers of shape [N, *]. '
            f'Found {preds.dtype} of shape {tuple(preds.shape)}.'
        )
    return preds.to(torch.promote_types(preds.dtype, torch.float32)), target


def _probabilities(scores: Tensor) -> Tensor:
    """Return the softmax of logits, or the sigmoid of a single class; probabilities as they are."""
    are_logits = ((scores < 0) | (scores > 1)).any()
    return torch.where(are_logits, scores.sigmoid() if scores.shape[1] == 1 else scores.softmax(1), scores)


def _items(scores: Tensor, target: Tensor, ignore_index: int | None) -> Items:
    valid = valid_items(scores, target, None, ignore_index, max(scores.shape[1], 2), 'preds')
    return class_items(scores, target, valid, None, zero_is_class=False)


def _one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """Labels [N, *] as scores [N, C, *]; a label that is no class has none."""
    if num_classes == 1:
        return (labels == 1).float().unsqueeze(1)
    classes = torch.arange(num_classes, device=labels.device).view(1, -1, *[1] * (labels.dim() - 1))
    return (labels.unsqueeze(1) == classes).float()

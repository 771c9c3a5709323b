"""Reading of what torchmetrics' segmentation metrics accept: scores, decided classes and labels."""

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Inputs, read_inputs


def value_dtype(preds: Tensor) -> torch.dtype:
    """Return the dtype of a value: float64 for predictions in float64, else float32."""
    return torch.float64 if preds.dtype == torch.float64 else torch.float32


def probability_inputs(preds: Tensor, target: Tensor, num_classes: int, ignore_index: int | None) -> Inputs:
    """Return probabilities and their targets.

    Predictions are probabilities or logits [N, C, *], or decided classes, integers [N, *]; for a single class, scores
    [N, *], too, and labels are 0 and 1, and 1 is the class. Targets are class indices [N, *], or soft labels [N, C, *].
    """
    if not preds.is_floating_point() and preds.dim() > 0:
        scores = _one_hot(preds, num_classes)
    else:
        scores, target = _class_scores(preds, target, num_classes)
        scores = _probabilities(scores)
    return read_inputs(scores, target, ignore_index=ignore_index, name='preds')


def decided_inputs(
    preds: Tensor, target: Tensor, num_classes: int, ignore_index: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return decided classes, true classes and weights, [N, P], for the arguments of `probability_inputs`."""
    if preds.is_floating_point() or preds.dim() == 0:
        scores, target = _class_scores(preds, target, num_classes)
        scores = _probabilities(scores) if num_classes == 1 else scores
    else:  # only the shape is needed
        scores = preds.new_zeros((), dtype=torch.float32).expand(len(preds), num_classes, *preds.shape[1:])
    inputs = read_inputs(scores, target, ignore_index=ignore_index, name='preds')
    return decided_classes(preds, inputs), inputs.target, inputs.mass


def decided_classes(preds: Tensor, inputs: Inputs) -> Tensor:
    """Return the decided class of each item of a prediction, int64 of shape [N, P]; C for none."""
    n_classes = inputs.n_classes
    if not preds.is_floating_point():
        labels = 1 - preds.long() if n_classes == 1 else preds.long()
        decided = labels.clamp(0, n_classes - 1)
        decided = decided.masked_fill(decided != labels, n_classes)
    elif n_classes == 1:
        return (inputs.scores[:, 0] <= 0.5).long()
    else:
        # Logits decide, not probabilities: softmax rounds close scores to ties. On the CPU argmax takes longer.
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


def _one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """Return labels [N, *] as scores [N, C, *]; all 0 for a label that is no class."""
    if num_classes == 1:
        return (labels == 1).float().unsqueeze(1)
    classes = torch.arange(num_classes, device=labels.device).view(1, -1, *[1] * (labels.dim() - 1))
    return (labels.unsqueeze(1) == classes).float()

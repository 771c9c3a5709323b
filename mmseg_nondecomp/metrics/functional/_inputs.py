"""Reading of what torchmetrics' segmentation metrics accept: scores, decided classes and labels."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import (
    MODES,
    PROBABILITY_TOLERANCE,
    Inputs,
    Reading,
    at_least_float32,
    can_be_read,
    check_flag,
    check_ignore_index,
    check_integer,
    check_option,
    check_tensor,
    read_inputs,
    refuse,
)

checked_by_functions: dict[Any, int] = {}
"""Number of checked calls of the functions of a batch, as `read_inputs` counts them."""


class Layout(NamedTuple):
    """How a metric reads its batches. The first four fields are arguments of `LovaszJaccardIndex`."""

    num_classes: int
    mode: str  # one of `MODES`
    from_logits: bool | None
    ignore_index: int | None
    checked: dict[Any, int]  # number of checked calls: see `read_inputs`

    @property
    def reading(self) -> Reading:
        """Reading of targets."""
        is_multilabel = self.mode == 'multilabel'
        return Reading(self.mode, overlaps=is_multilabel, has_background=is_multilabel, is_stated=is_multilabel)


def layout_of(
    num_classes: int,
    mode: str | None = None,
    from_logits: bool | None = None,
    ignore_index: int | None = None,
    checked: dict[Any, int] = checked_by_functions,
) -> Layout:
    """Return the layout that the arguments of a metric describe; raise unless they are valid."""
    check_integer('num_classes', num_classes, lowest=1)
    if mode is not None:
        check_option('mode', mode, MODES)
        if (mode == 'binary') != (num_classes == 1):
            expected = "'binary'" if num_classes == 1 else "'multiclass' or 'multilabel'"
            raise ValueError(f'Parameter `mode` should be {expected} for `num_classes={num_classes}`. Found {mode!r}.')
    check_flag('from_logits', from_logits, optional=True)
    check_ignore_index(ignore_index)
    mode = mode or ('binary' if num_classes == 1 else 'multiclass')
    return Layout(num_classes, mode, from_logits, ignore_index, checked)


def value_dtype(preds: Tensor) -> torch.dtype:
    """Return the dtype of a value: float64 for predictions in float64, else float32."""
    return torch.float64 if preds.dtype == torch.float64 else torch.float32


def probability_inputs(preds: Tensor, target: Tensor, layout: Layout) -> Inputs:
    """Return probabilities and their targets.

    Predictions are probabilities or logits [N, C, *], or decided classes, integers [N, *]; for a single class, scores
    [N, *], too, and labels are 0 and 1, and 1 is the class. Targets are class indices [N, *], or soft labels [N, C, *].
    With several labels an item, decisions are 0 and 1 for each class, integers [N, C, *].
    """
    return _read(preds, _scores(preds, target, layout), target, layout)


def decided_inputs(preds: Tensor, target: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
    """Return decided classes, true classes and weights, [N, P], for the arguments of `probability_inputs`.

    With several labels an item, the first two are whether it has each class, bool of shape [N, C, P].
    """
    scores = _scores(preds, target, layout, only_decisions=True)
    inputs = _read(preds, scores, target, layout, only_decisions=True)
    true = inputs.target
    if layout.mode == 'multilabel':
        return is_decided(inputs), inputs.one_hot() > 0.5, inputs.mass
    if inputs.is_soft:
        true = torch.where(true.sum(1) > 0.5, true.argmax(1), layout.num_classes)
    return decided_classes(preds, inputs), true, inputs.mass


def decided_classes(preds: Tensor, inputs: Inputs) -> Tensor:
    """Return the decided class of each item of a prediction, int64 of shape [N, P]; C for none."""
    n_classes = inputs.n_classes
    if n_classes == 1:
        return (inputs.scores[:, 0] <= 0.5).long()
    if preds.is_floating_point():
        # Logits decide, not probabilities: softmax rounds close scores to ties. On the CPU argmax takes longer.
        decided = preds.max(1).indices
    else:
        labels = preds.long()
        decided = labels.clamp(0, n_classes - 1)
        decided = decided.masked_fill(decided != labels, n_classes)
    return decided.reshape(inputs.valid.shape)


def is_decided(inputs: Inputs) -> Tensor:
    """Return whether each class is decided for each item, where classes decide by themselves, bool of [N, C, P]."""
    return inputs.scores > 0.5


def _scores(preds: Tensor, target: Tensor, layout: Layout, only_decisions: bool = False) -> Tensor:
    """Return probabilities [N, C, *], or [N, *] of one class; between classes, decisions are taken before a softmax."""
    check_tensor('preds', preds)
    check_tensor('target', target)
    n_classes, is_multiclass = layout.num_classes, layout.mode == 'multiclass'
    has_scores = preds.is_floating_point()
    if not has_scores and preds.dim() > 0 and layout.mode != 'multilabel':
        labels = _labels(preds, target, n_classes).long().unsqueeze(1)
        if not is_multiclass:
            return (labels == 1).float()
        if only_decisions:  # only the shape is needed
            return labels.new_zeros((), dtype=torch.float32).expand(len(labels), n_classes, *labels.shape[2:])
        classes = torch.arange(n_classes, device=labels.device)
        return (labels == classes.view(1, -1, *[1] * (labels.dim() - 2))).float()
    if preds.dim() == 0 or (n_classes > 1 and (preds.dim() == 1 or preds.shape[1] != n_classes)):
        raise ValueError(_wrong_channels(preds, layout))
    scores = at_least_float32(preds) if has_scores else preds.float()
    return _probabilities(scores, layout) if has_scores and not (only_decisions and is_multiclass) else scores


def _labels(preds: Tensor, target: Tensor, n_classes: int) -> Tensor:
    """Return decided classes without a channel that the target does not have; raise if they are one-hot."""
    if preds.dim() == 1:
        return preds
    n, n_channels, *rest = preds.shape
    if n_channels == 1 and target.shape != preds.shape and target.shape in ((n, *rest), (n, n_classes, *rest)):
        return preds.squeeze(1)
    if n_channels == n_classes > 1:
        is_map = target.shape == preds.shape and not (preds.dim() > 2 and _is_one_hot(preds) and _is_one_hot(target))
        if not is_map and target.shape in (preds.shape, (n, *rest), (n, 1, *rest)):
            raise ValueError(
                'Parameter `preds` should hold decided classes, integers of shape [N, *]. '
                f'Found a one-hot prediction of shape {tuple(preds.shape)}; pass `preds.float()`.'
            )
    return preds


def _is_one_hot(labels: Tensor) -> bool:
    """Return whether integers [N, C, *] are one-hot, where reading them costs nothing."""
    if not can_be_read(labels) or labels.numel() == 0:
        return False
    labels = labels.long()
    return bool((labels >= 0).all() and (labels.sum(1) == 1).all())


def _wrong_channels(preds: Tensor, layout: Layout) -> str:
    """Return the message for predictions of another number of classes."""
    n_classes, found = layout.num_classes, tuple(preds.shape)
    other = 'integers of shape [N, *]' if layout.mode != 'multilabel' else 'decisions of 0 and 1 of that shape'
    hint = '; if the channels are last, move them: `.movedim(-1, 1)`' if found[-1:] == (n_classes,) else ''
    return (
        f'Parameter `preds` should hold scores of shape [N, {n_classes}, *] or {other}. '
        f'Found {preds.dtype} of shape {found}{hint}.'
    )


def _probabilities(scores: Tensor, layout: Layout) -> Tensor:
    """Return the softmax of logits, or the sigmoid where classes decide by themselves; probabilities in [0, 1]."""
    if layout.from_logits is False:
        return scores.clamp(0, 1)
    activated = scores.softmax(1) if layout.mode == 'multiclass' else scores.sigmoid()
    return activated if layout.from_logits else torch.where(_is_outside(scores).any(), activated, scores.clamp(0, 1))


def _is_outside(scores: Tensor) -> Tensor:
    """Return whether scores are no probabilities."""
    return (scores < -PROBABILITY_TOLERANCE) | (scores > 1 + PROBABILITY_TOLERANCE)


def _read(preds: Tensor, scores: Tensor, target: Tensor, layout: Layout, only_decisions: bool = False) -> Inputs:
    """Return the inputs of scores; raise ValueError unless the values are those of the layout."""
    n_checked = sum(layout.checked.values())
    try:
        inputs = read_inputs(scores, target, None, layout.ignore_index, layout.reading, 'preds', layout.checked)
    except ValueError as error:
        if layout.mode == 'multiclass' and target.shape == scores.shape:
            raise ValueError(f"{error} With several labels an item, pass `mode='multilabel'`.") from None
        raise
    if can_be_read(target) or sum(layout.checked.values()) > n_checked:
        _check_predictions(preds, inputs, layout)
        if only_decisions and inputs.is_soft:
            message = 'Parameter `target` should be 0 or 1, as soft labels have no decision.'
            refuse((inputs.target != 0) & (inputs.target != 1), message, inputs.target)
    return inputs


def _check_predictions(preds: Tensor, inputs: Inputs, layout: Layout) -> None:
    """Raise ValueError if predictions that count are neither probabilities nor decisions, where they have to be."""
    valid = inputs.as_called(inputs.valid)
    valid = valid.reshape(preds.shape) if valid.numel() == preds.numel() else valid.unsqueeze(1)
    if not preds.is_floating_point():
        if layout.mode != 'multiclass':
            refuse(valid & (preds != 0) & (preds != 1), 'Parameter `preds` should hold decisions of 0 and 1.', preds)
    elif layout.from_logits is False:
        message = 'Parameter `preds` should hold probabilities in [0, 1] with `from_logits=False`.'
        refuse(valid & _is_outside(preds), message, preds)

"""Reading of a call: predictions, targets and weights in one layout, and the checks of arguments, once each."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp._utils.versions import is_compiling

IGNORED_BY_DEFAULT = 255
MODES = ('multiclass', 'binary', 'multilabel')
FIRST_CALLS = 3  # number of calls of each layout in which values on a device are checked
SHARE_TOLERANCE = 0.01  # largest rounding error of a sum of shares, also in half precision
PROBABILITY_TOLERANCE = 1e-3  # largest rounding error of a probability, for example after interpolation
MANY_SCORES = 64  # number of scores from which on it is no coincidence that all are in [0, 1]
SAMPLE = 1 << 16  # number of probabilities that are checked
HAS_OBJECT = 'a label 1 has occurred'  # entry in the layouts that a loss has checked
MODES_HINT = (
    " With several labels an item, pass `mode='multilabel'`; with a prediction that has no channel, `mode='binary'`. "
    'The masks of a mask head need `MaskLoss(loss=dict(...))`.'
)

Classes = str | Sequence[int]
Activation = str | None
"""``'softmax'``, ``'sigmoid'`` or ``'margin'`` (one more than the logit); None for scores that are final."""


class Reading(NamedTuple):
    """How a loss reads its calls: the table of docs/layouts.md."""

    mode: str | None = None  # one of `MODES`, or None for layouts with a single reading
    overlaps: bool = False  # whether an item may have several labels
    has_background: bool = False  # whether the label C belongs to no class
    is_stated: bool = False  # whether the configuration states how channels are read
    pair: bool = False  # whether two channels with labels are one decision
    of_boxes: bool = False  # whether a box head of MMDetection calls: label 0 of one channel is the object
    of_items: bool = False  # whether each item has a loss of its own, which is NaN where its target is
    is_crisp: bool = False  # whether weights are 0 or 1, and so are several labels
    is_mixed: bool = False  # whether several labels may yet be mixed, as by MixUp


AS_CLASSES = Reading()


class Reduce:
    """Sum of a tensor over the processes that share a set; here over one process."""

    n_processes = 1

    def __call__(self, part: Tensor) -> Tensor:
        """Return the sum of the parts of all processes."""
        return part

    def rescale(self, loss: Tensor) -> Tensor:
        """Return a loss computed identically on every process, with the gradient that DDP's average needs."""
        return loss


in_one_process = Reduce()


class Inputs(NamedTuple):
    """Predictions and targets in the layout that all losses share.

    Images of P pixels keep their dimension N; items without a position, [N, C], become one image of N pixels.
    """

    scores: Tensor  # scores of shape [N, C, P], float32 or better
    target: Tensor  # class of each item, int64 of shape [N, P], with C for none; or soft labels of shape [N, C, P]
    valid: Tensor  # mask of the items that count, bool of shape [N, P]
    weight: Tensor | None  # weight of each item, of shape [N, P], 0 for those that do not count; None where all are 1
    shape: torch.Size  # shape [N, *] of the items in the call

    @property
    def n_classes(self) -> int:
        """Number of channels of the prediction."""
        return self.scores.shape[1]

    @property
    def is_soft(self) -> bool:
        """Whether the targets are soft labels."""
        return self.target.is_floating_point()

    @property
    def mass(self) -> Tensor:
        """Weight of each item, of shape [N, P]: float64, or int32 where all are 1."""
        return self.valid.int() if self.weight is None else self.weight.double()

    def one_hot(self) -> Tensor:
        """Return whether each item belongs to each class, bool of shape [N, C, P]; soft labels as they are."""
        if self.is_soft:
            return self.target
        return self.target.unsqueeze(1) == torch.arange(self.n_classes, device=self.target.device).view(1, -1, 1)

    def as_called(self, values: Tensor) -> Tensor:
        """Return values [N, P] or [N, C, P] in the layout of the call, [N, *] or [N, C, *]."""
        if values.dim() == 2:
            return values.view(self.shape)
        return values[0].t() if len(self.shape) == 1 else values.unflatten(2, self.shape[1:])


def read_inputs(
    pred: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
    reading: Reading = AS_CLASSES,
    name: str = 'pred',
    checked: dict[Any, int] | None = None,
) -> Inputs:
    """Check the tensors of a call and return them in the common layout.

    Predictions [N, C, *] are floating point, targets class indices [N, *] or [N, 1, *], or shares of classes, or
    several labels, [N, C, *]; a prediction of one decision may have no channel. A weight of 0 removes an item, and so
    does the label ``ignore_index``: by default 255, where it cannot be a class. A single channel always decides between
    two labels, and its class is label 1.

    Error messages give ``pred`` its ``name``. Values are checked in each call on the CPU, and in the first calls of
    each layout on a device and in compiled graphs; ``checked`` counts these calls.
    """
    check_ignore_index(ignore_index)
    pred, target = _in_channels(pred, target, reading, name)
    checks = is_due(target, name, pred.dim(), target.dim(), target.dtype, checked=checked)
    items = torch.Size((len(pred), *pred.shape[2:]))
    counted = None if weight is None else _has_weight(weight, items, reading, checks)
    if target.shape == items:
        if reading.pair and pred.shape[1] == 2:
            pred = _one_of_two(pred, reading)
            target = _as_index(target, checks)
        target, valid = _read_labels(pred.shape[1], target, counted, ignore_index, reading, checks)
        if pred.shape[1] <= 2 and ignore_index != IGNORED_BY_DEFAULT:
            target = _read_mask(target, ignore_index, checks, {} if checked is None else checked)
        if target.dim() == valid.dim():
            target = _class_indices(target, valid, pred.shape[1], reading, checks)
    else:
        valid = torch.ones(items, dtype=torch.bool, device=pred.device) if counted is None else counted
    scores = at_least_float32(pred)
    weight = None if weight is None else torch.where(valid, weight.reshape(items), 0)
    if target.dim() == scores.dim():
        target = torch.where(valid.unsqueeze(1), target, 0).to(scores.dtype)
        if checks:
            _check_shares(target, valid, reading)
    else:
        target = torch.where(valid, target, scores.shape[1])
    if scores.dim() == 2:  # Items without a position.
        weight = None if weight is None else weight.unsqueeze(0)
        return Inputs(scores.t().unsqueeze(0), target.t().unsqueeze(0), valid.unsqueeze(0), weight, valid.shape)
    weight = None if weight is None else weight.flatten(1)
    target = target.flatten(2 if target.is_floating_point() else 1)
    return Inputs(scores.flatten(2), target, valid.flatten(1), weight, valid.shape)


def _in_channels(pred: Tensor, target: Tensor, reading: Reading, name: str) -> tuple[Tensor, Tensor]:
    """Return a prediction as [N, C, *], and its target as [N, *] where it is not of the same shape."""
    check_tensor(name, pred)
    check_tensor('target', target)
    check_floating_point(name, pred)
    if pred.dim() == 0 or (pred.dim() == 1 and target.numel() != len(pred)):
        raise ValueError(
            f'Parameter `{name}` should be of shape [N, C, *], with `target` of shape [N, *]. '
            f'Found {tuple(pred.shape)} and {tuple(target.shape)}.'
        )
    mode, shape, n = reading.mode, pred.shape, len(pred)
    has_channel = pred.dim() > 1
    if has_channel and target.shape == (n, 1, *shape[1:]):
        has_channel = shape[1] == 1 and mode != 'binary'
    elif has_channel and target.shape == shape and mode == 'binary':
        has_channel = shape[1] == 1
    if not has_channel:
        pred = pred.unsqueeze(1)
    n_channels, items = pred.shape[1], (n, *pred.shape[2:])
    if target.shape == (n, 1, *items[1:]) and target.shape != items:
        target = target.squeeze(1)
    if target.shape != items and target.shape != pred.shape:
        raise ValueError(_wrong_shapes(pred, target, name))
    is_pair = reading.pair and n_channels == 2 and target.shape == items
    if mode == 'binary' and n_channels != 1 and not is_pair:
        raise ValueError(
            f"Parameter `{name}` should be of shape [N, 1, *], or [N, *] as the target, with `mode='binary'`. "
            f'Found {tuple(shape)} for a target of shape {tuple(target.shape)}.'
        )
    if (mode == 'multiclass' and n_channels == 1) or (mode == 'multilabel' and not has_channel):
        raise ValueError(
            f'Parameter `{name}` should have a channel for each class with `mode={mode!r}`. Found {tuple(shape)} for a '
            f"target of shape {tuple(target.shape)}; `mode='binary'` reads a single channel."
        )
    return pred, target


def _wrong_shapes(pred: Tensor, target: Tensor, name: str) -> str:
    """Return the message for shapes that do not belong together."""
    items, found = (len(pred), *pred.shape[2:]), tuple(target.shape)
    size = found[2:] if len(found) == pred.dim() and found[1] == 1 else found[1:]
    hint = ''
    if found == (*items, pred.shape[1]) or (pred.dim() > 2 and found == pred.shape[:-1]):
        hint = ' If the channels are last, move them: `.movedim(-1, 1)`.'
    elif target.dim() > 1 and len(target) == len(pred) and len(size) == pred.dim() - 2:
        hint = (
            f' If only the size differs, resize the scores: `F.interpolate({name}, size={size}, '
            "mode='bilinear', align_corners=False)`."
        )
    return (
        f'Parameter `target` should hold class indices of shape {items} or probabilities of shape '
        f'{tuple(pred.shape)}. Found {target.dtype} of shape {found}.{hint}'
    )


def _one_of_two(pred: Tensor, reading: Reading) -> Tensor:
    """Return two channels as the one decision between them, [N, 1, *]."""
    zero, one = at_least_float32(pred).split(1, 1)
    return zero - one if reading.of_boxes else one - zero


def _read_labels(
    n_classes: int, target: Tensor, counted: Tensor | None, ignore_index: int | None, reading: Reading, checks: bool
) -> tuple[Tensor, Tensor]:
    """Return labels [N, *], and the mask of the items that count.

    Floating-point targets of a single channel are shares of its class, of shape [N, 1, *]; other labels are int64.
    """
    is_share = target.is_floating_point() and n_classes == 1
    target = target if is_share else _as_index(target, checks)
    ignored = ignore_index
    if ignored is None and _n_labels(n_classes, reading) <= IGNORED_BY_DEFAULT:
        ignored = IGNORED_BY_DEFAULT
    if ignored is not None:
        counted = target != ignored if counted is None else (target != ignored) & counted
    elif counted is None:
        counted = torch.ones_like(target, dtype=torch.bool)
    return target.unsqueeze(1) if is_share else target, counted


def _n_labels(n_classes: int, reading: Reading) -> int:
    """Return the number of labels beside the ignored one."""
    return 2 if n_classes == 1 else n_classes + (reading.has_background and reading.mode != 'multiclass')


def _class_indices(target: Tensor, valid: Tensor, n_classes: int, reading: Reading, checks: bool) -> Tensor:
    """Return the class of each label; that of a single channel is 0. Raise if a label is no class."""
    if checks:
        n_labels = _n_labels(n_classes, reading)
        message = f'Parameter `target` should hold labels in [0, {n_labels - 1}] or the ignored one.'
        of_items = target.dim() == 1 and not reading.has_background
        hint = ' A box head without a channel for the background needs `use_sigmoid=True`.' if of_items else ''
        refuse(valid & ((target < 0) | (target >= n_labels)), message, target, hint)
    return 1 - target if n_classes == 1 and not reading.of_boxes else target


def _read_mask(target: Tensor, ignore_index: int | None, checks: bool, known: dict[Any, int]) -> Tensor:
    """Return the labels of a mask with 255 as 1, where another label is ignored; raise if the meaning is in doubt.

    A 1 in any call of a loss tells that 255 is not the object.
    """
    if ignore_index is None and (not checks or HAS_OBJECT in known):
        return target
    is_255 = target == IGNORED_BY_DEFAULT
    if checks and HAS_OBJECT not in known and can_be_read(target) and (target == 1).any():
        known[HAS_OBJECT] = 1
    if ignore_index is None:
        message = (
            'Parameter `target` should hold the labels 0 and 1. Found a mask of 0 and 255. If 255 marks the object, '
            'pass `target // 255`; if it marks items to ignore, pass `ignore_index=255`.'
        )
        if HAS_OBJECT not in known and not (can_be_read(is_255) and not is_255.any()):
            refuse((is_255.any() & (target == 0).any() & ~(target == 1).any()).view(1), message)
        return target
    if checks:
        message = (
            'Parameter `target` should hold the labels 0 and 1, or 0 and 255. Found 0, 1 and 255 with '
            f'`ignore_index={ignore_index}`. If 255 marks items to ignore, pass `ignore_index=255`.'
        )
        refuse((is_255 & (HAS_OBJECT in known)) if can_be_read(target) else is_255 & (target == 1).any(), message)
    return torch.where(is_255, 1, target)


def read_probabilities(probs: Tensor, target: Tensor, ignore_index: int | None, mode: str | None) -> Inputs:
    """Return probabilities and their targets as `read_inputs` does; raise ValueError if they are logits.

    Each class has its error, so that several labels need no other computation than shares.
    """
    if mode is not None:
        check_option('mode', mode, MODES)
    reading = Reading(mode, overlaps=True, has_background=mode == 'multilabel', is_stated=mode is not None)
    inputs = read_inputs(probs, target, None, ignore_index, reading, 'probs')
    check_probabilities('probs', probs)
    return inputs


def number_of_classes(pred: Tensor, name: str) -> int:
    """Return C of a prediction [N, C, *], which has to be a tensor; 0 where there is no such dimension."""
    check_tensor(name, pred)
    return pred.shape[1] if pred.dim() > 1 else 0


def at_least_float32(values: Tensor) -> Tensor:
    """Return half-precision values in float32, others as they are."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def can_be_read(tensor: Tensor) -> bool:
    """Return whether reading values costs nothing: on the CPU, and not while a graph is traced."""
    return tensor.device.type == 'cpu' and type(tensor) is Tensor and not is_compiling()


_checked_by_functions: dict[Any, int] = {}


def is_due(values: Tensor, *layout: Any, checked: dict[Any, int] | None = None) -> bool:
    """Return whether values are checked: on the CPU always, else in the first calls of a layout, which are counted."""
    if can_be_read(values):
        return True
    if values.device.type == 'meta':
        return False
    checked = _checked_by_functions if checked is None else checked
    calls = checked.get(layout, 0)
    if calls >= FIRST_CALLS:
        return False
    checked[layout] = FIRST_CALLS if is_compiling() else calls + 1
    return True


def refuse(wrong: Tensor, message: str, values: Tensor | None = None, hint: str = '') -> None:
    """Raise ValueError if an element of a mask is True, and show the first of the values there.

    A compiled graph asserts that no element is, which raises RuntimeError.
    """
    if is_compiling() or type(wrong) is not Tensor:
        torch._assert_async(~wrong.any(), message + hint)
    elif wrong.any():
        found = '' if values is None else f' Found {values[wrong][0].item()} (in {int(wrong.sum())} items).'
        raise ValueError(message + found + hint)


def activate(logits: Tensor, activation: Activation) -> Tensor:
    """Return the scores of logits [N, C, *]."""
    if activation == 'softmax':
        return logits.softmax(1)
    if activation == 'sigmoid':
        return logits.sigmoid()
    return logits + 1 if activation == 'margin' else logits


def pull_back(gradient: Tensor, scores: Tensor, activation: Activation) -> Tensor:
    """Return the gradient with respect to the logits, given that with respect to the scores."""
    if activation == 'softmax':
        return torch.ops.aten._softmax_backward_data(gradient, scores, 1, scores.dtype)
    return torch.ops.aten.sigmoid_backward(gradient, scores) if activation == 'sigmoid' else gradient


def label_scores(scores: Tensor, label: Tensor, masked: Tensor, fill: float) -> tuple[Tensor, Tensor]:
    """Return scores [N, C, P] with ``fill`` where they are masked, and the unmasked scores [N, 1, P] of the labels.

    ``label`` is a class of each item, int64 of shape [N, 1, P]; ``masked`` can be broadcast to the scores.
    """
    return _LabelScores.apply(scores, label, masked, fill)


class _LabelScores(torch.autograd.Function):
    """Adds the gradient of the labels in place, where autograd would add two tensors of the size of the scores."""

    @staticmethod
    def forward(scores: Tensor, label: Tensor, masked: Tensor, fill: float) -> tuple[Tensor, Tensor]:
        return scores.masked_fill(masked, fill), scores.gather(1, label)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs[1:3])

    @staticmethod
    def backward(ctx: Any, of_scores: Tensor, of_labels: Tensor) -> tuple[Tensor, None, None, None]:
        label, masked = ctx.saved_tensors
        return of_scores.masked_fill(masked, 0).scatter_add_(1, label, of_labels), None, None, None


def _has_weight(weight: Tensor, items: torch.Size, reading: Reading, checks: bool) -> Tensor:
    """Check the weights of items and return which of them are not 0."""
    check_tensor('weight', weight)
    if weight.shape != items and weight.shape != (*items[:1], 1, *items[1:]):
        hint = ''
        if weight.shape == items[:1] and not weight.is_floating_point():
            hint = ' For the masks of a mask head, use `MaskLoss(loss=dict(...))`.'
        raise ValueError(
            f'Parameter `weight` should be of shape {tuple(items)}, one for each item. '
            f'Found {tuple(weight.shape)}.{hint}'
        )
    if checks and reading.is_crisp:
        refuse((weight != 0) & (weight != 1), 'Parameter `weight` should be 0 or 1.', weight)
    elif checks:
        refuse(weight < 0, 'Parameter `weight` should not be negative.', weight)
    return weight.reshape(items) != 0


def _check_shares(target: Tensor, valid: Tensor, reading: Reading) -> None:
    """Raise if shares [N, C, *] are outside [0, 1] or, where they have to, do not add up to 1."""
    if target.numel() == 0:
        return
    if not (can_be_read(target) and _is_unit_interval(target)):
        message = 'Parameter `target` should hold shares of classes in [0, 1].'
        is_share = (target >= 0) & (target <= 1)
        refuse(~(is_share | target.isnan() if reading.of_items else is_share), message, target)
    if reading.is_crisp and not (reading.is_mixed and target.shape[1] > 1):
        in_part = (target != 0) & (target != 1)
        if target.shape[1] > 1:
            in_part = in_part & ((target.sum(1, keepdim=True) - 1).abs() > SHARE_TOLERANCE)
        refuse(in_part, 'Parameter `target` should be 0 or 1.', target)
    is_map = target.dim() > 3 and target.shape[-1] > 1
    n_classes = target.shape[1]
    if n_classes == 1 or (reading.overlaps and reading.mode != 'multiclass' and (reading.is_stated or is_map)):
        return
    total = target.sum(1)
    message = f'Parameter `target` should hold shares that add up to 1 over the {n_classes} classes of each item.'
    hint = '' if reading.mode else MODES_HINT
    refuse(valid & ((total - 1).abs() > SHARE_TOLERANCE), message, total, hint)


def _is_unit_interval(values: Tensor) -> bool:
    """Return whether all values are in [0, 1], and none is NaN."""
    low, high = values.aminmax()
    return bool(low >= 0) and bool(high <= 1)


def _as_index(target: Tensor, checks: bool) -> Tensor:
    """Return class indices as int64, as small integers wrap what they are compared with."""
    if checks and target.is_floating_point():
        message = 'Parameter `target` should hold class indices: whole numbers.'
        hint = ' Shares of classes and several labels have the shape of the prediction.'
        refuse(target != target.round(), message, target, hint)
    return target.long()


def check_probabilities(name: str, values: Tensor) -> None:
    """Raise ValueError if numbers are no probabilities, from a sample of them on the CPU."""
    if not can_be_read(values) or values.numel() == 0:
        return
    sample = values.detach().flatten()[:: max(1, values.numel() // SAMPLE)] if values.numel() > SAMPLE else values
    low, high = sample.detach().aminmax()
    if low < -PROBABILITY_TOLERANCE or high > 1 + PROBABILITY_TOLERANCE:
        raise ValueError(
            f'Parameter `{name}` should hold probabilities in [0, 1]. Found values from {low.item():.4g} to '
            f'{high.item():.4g}; pass `logits.softmax(1)`, or `logits.sigmoid()` for a single channel.'
        )


def look_like_probabilities(scores: Tensor, of_softmax: bool) -> float:
    """Return how likely scores [N, C, P] are probabilities: 0 for not at all, 1 for certain.

    Probabilities are in [0, 1], and those of a softmax add up to 1. A few scores, or equal ones, tell little; so do
    the logits of an untrained network, which may be small and of one sign.
    """
    if scores.numel() < MANY_SCORES:
        return 0.001
    low, high = scores.detach().aminmax()
    if low == high:
        return 0.001
    if not 0 <= low < high <= 1:
        return 0
    if of_softmax:
        return float(((scores.detach().sum(1) - 1).abs() < SHARE_TOLERANCE).all())
    return 1 if low < 0.5 < high else 0.05


def check_tensor(name: str, value: object) -> None:
    """Raise TypeError unless the value is a tensor of real numbers."""
    if not isinstance(value, Tensor):
        raise TypeError(f'Parameter `{name}` should be a tensor. Found {type(value).__name__}.')
    if value.is_complex():
        raise TypeError(f'Parameter `{name}` should hold real numbers. Found {value.dtype}.')


def check_floating_point(name: str, value: Tensor) -> None:
    """Raise TypeError unless the tensor is floating point."""
    if not value.is_floating_point():
        raise TypeError(f'Parameter `{name}` should be a floating-point tensor. Found {value.dtype}.')


def is_integer(value: object) -> bool:
    """Return whether a value is an integer, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_integer(name: str, value: Any, lowest: int, highest: float = math.inf) -> None:
    """Raise unless the value is an integer in the range."""
    if not is_integer(value):
        raise TypeError(f'Parameter `{name}` should be an integer. Found {value!r}.')
    if not lowest <= value <= highest:
        expected = f'at least {lowest}' if highest == math.inf else f'from {lowest} to {highest}'
        raise ValueError(f'Parameter `{name}` should be {expected}. Found {value}.')


def is_number(value: object) -> bool:
    """Return whether a value is an integer or a float, and no bool."""
    return is_integer(value) or isinstance(value, float)


def check_number(name: str, value: Any, interval: str, hint: str = '') -> None:
    """Raise unless the value is a number in an interval, written as in ``'(0, 1]'``."""
    if not is_number(value):
        raise TypeError(f'Parameter `{name}` should be a number. Found {value!r}.')
    low, high = (float(end) for end in interval[1:-1].split(','))
    is_above = value >= low if interval[0] == '[' else value > low
    is_below = value <= high if interval[-1] == ']' else value < high
    if not (is_above and is_below):
        raise ValueError(f'Parameter `{name}` should be in {interval}{hint}. Found {value}.')


def check_flag(name: str, value: object, optional: bool = False) -> None:
    """Raise TypeError unless the value is True or False, or None where that is allowed."""
    if not isinstance(value, bool) and not (optional and value is None):
        raise TypeError(f'Parameter `{name}` should be True or False. Found {value!r}.')


def check_absent(reason: str, kwargs: dict[str, Any], names: Sequence[str]) -> None:
    """Raise TypeError if there is an argument that a class determines by itself, for a reason like "X has no files"."""
    for name in names:
        if name in kwargs:
            raise TypeError(f'{reason} and takes no `{name}`. Found {kwargs[name]!r}.')


def check_option(name: str, value: object, options: Sequence[str]) -> None:
    """Raise ValueError unless the value is one of the options."""
    if value not in options:
        raise ValueError(f'Parameter `{name}` should be one of {tuple(options)}. Found {value!r}.')


def check_zero_or_one(name: str, values: Tensor, valid: Tensor | None = None) -> None:
    """Raise ValueError unless the values that count are 0 or 1, where reading them costs nothing."""
    if values.dtype == torch.bool or not is_due(values, name, values.dim(), values.dtype):
        return
    wrong = (values != 0) & (values != 1)
    refuse(wrong if valid is None else wrong & valid, f'Parameter `{name}` should be 0 or 1.', values)


def check_ignore_index(ignore_index: object) -> None:
    """Raise TypeError unless the label to ignore is an integer or None."""
    if ignore_index is not None and not is_integer(ignore_index):
        raise TypeError(f'Parameter `ignore_index` should be a label, an integer, or None. Found {ignore_index!r}.')


def check_classes(classes: Classes) -> None:
    """Raise unless the classes are ``'present'``, ``'all'`` or a list of class indices."""
    message = "Parameter `classes` should be 'present', 'all' or a list of class indices. "
    if isinstance(classes, str):
        if classes not in ('present', 'all'):
            raise ValueError(f'{message}Found {classes!r}.')
        return
    if not isinstance(classes, Sequence) or not all(is_integer(c) for c in classes):
        raise TypeError(f'{message}Found {classes!r}.')
    if len(classes) == 0 or any(int(c) < 0 for c in classes) or len(set(classes)) < len(classes):
        raise ValueError(f'Parameter `classes` should list class indices from 0 on, each once. Found {list(classes)}.')


def read_class_weight(values: Tensor | Sequence[float] | None, dtype: torch.dtype = torch.float32) -> Tensor | None:
    """Return the weights of classes as a tensor; raise unless they are non-negative numbers."""
    if values is None:
        return None
    if isinstance(values, str):
        raise TypeError(f'Parameter `class_weight` should be a list of numbers. Found {values!r}.')
    weights = torch.as_tensor(values, dtype=dtype)
    if weights.dim() != 1 or (can_be_read(weights) and not bool((weights >= 0).all())):
        raise ValueError(f'Parameter `class_weight` should hold non-negative numbers. Found {values}.')
    return weights


def check_class_weight(class_weight: Tensor | None, n_classes: int) -> None:
    """Raise ValueError unless there is one weight for each class."""
    if class_weight is not None and len(class_weight) != n_classes:
        raise ValueError(
            f'Parameter `class_weight` should have one number for each of the {n_classes} classes. '
            f'Found {len(class_weight)}.'
        )


def check_bins(bins: int | None) -> None:
    """Raise unless ``bins`` is a positive integer, or None for sorting."""
    if bins is None:
        return
    if not is_integer(bins):
        raise TypeError(f'Parameter `bins` should be an integer, or None to sort. Found {bins!r}.')
    check_integer('bins', bins, lowest=1)


def check_k(k: int, n_classes: int | float = math.inf) -> None:
    """Raise unless k labels, at least one, leave out another one."""
    check_integer('k', k, lowest=1)
    if k >= n_classes:
        raise ValueError(
            f'Parameter `k` should be below the number of classes, {n_classes}: with {k}, every label is in the top k. '
            f'Found {k}; take at most {n_classes - 1}.'
        )

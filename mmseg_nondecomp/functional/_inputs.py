"""Reading of a call: predictions, targets and weights in one layout, and the checks of arguments, once each."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp._utils.versions import is_compiling

IGNORED_BY_DEFAULT = 255

Classes = str | Sequence[int]
Activation = str | None
"""``'softmax'``, ``'sigmoid'`` or ``'margin'`` (one more than the logit); None for scores that are final."""


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
    one_vs_rest: bool = False,
    zero_is_class: bool = False,
    name: str = 'pred',
) -> Inputs:
    """Check the tensors of a call and return them in the common layout.

    Predictions [N, C, *] are floating point, targets class indices [N, *] or soft labels [N, C, *]. A weight of 0
    removes an item, and so does the label ``ignore_index``: by default 255, where it cannot be a class. With
    ``one_vs_rest`` each channel is a decision of its own; the label C is then no class: the background. A single
    channel always decides between two labels. Its class is label 1, or with ``zero_is_class`` label 0, as in
    MMDetection. Error messages give ``pred`` its ``name``.

    Labels that are no class and soft labels outside [0, 1] are found on the CPU only; CUDA's own check is late.
    """
    n_classes = number_of_classes(pred, name)
    valid = _valid_items(pred, target, weight, ignore_index, n_classes + (one_vs_rest or n_classes == 1), name)
    scores = at_least_float32(pred)
    weight = None if weight is None else torch.where(valid, weight, 0)
    if target.is_floating_point():
        target = torch.where(valid.unsqueeze(1), target, 0).to(scores.dtype)
    else:
        target = target.long()
        if n_classes == 1 and not zero_is_class:
            target = 1 - target
        target = torch.where(valid, target, n_classes)
    if scores.dim() == 2:  # Items without a position.
        weight = None if weight is None else weight.unsqueeze(0)
        return Inputs(scores.t().unsqueeze(0), target.t().unsqueeze(0), valid.unsqueeze(0), weight, valid.shape)
    weight = None if weight is None else weight.flatten(1)
    target = target.flatten(2 if target.is_floating_point() else 1)
    return Inputs(scores.flatten(2), target, valid.flatten(1), weight, valid.shape)


def one_of_two(pred: Tensor, target: Tensor) -> Tensor:
    """Return two channels with labels as the one decision between them, [N, 1, *]; other predictions as they are."""
    is_pair = number_of_classes(pred) == 2 and pred.is_floating_point() and isinstance(target, Tensor)
    if not is_pair or target.shape == pred.shape:
        return pred
    zero, one = at_least_float32(pred).split(1, 1)
    return one - zero


def at_least_float32(values: Tensor) -> Tensor:
    """Return half-precision values in float32, others as they are."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def number_of_classes(pred: Tensor, name: str = 'pred') -> int:
    """Return C of a prediction [N, C, *], which has to be a tensor; 0 where there is no such dimension."""
    check_tensor(name, pred)
    return pred.shape[1] if pred.dim() > 1 else 0


def can_be_read(tensor: Tensor) -> bool:
    """Return whether reading values costs nothing: on the CPU, and not while a graph is traced."""
    return tensor.device.type == 'cpu' and type(tensor) is Tensor and not is_compiling()


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


def _valid_items(
    pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, n_labels: int, name: str
) -> Tensor:
    """Check the tensors of a call against each other and return the mask of the items that count, [N, *]."""
    check_tensor('target', target)
    check_ignore_index(ignore_index)
    check_floating_point(name, pred)
    if pred.dim() < 2:
        raise ValueError(f'Parameter `{name}` should be of shape [N, C, *]. Found {tuple(pred.shape)}.')
    items = torch.Size((pred.shape[0], *pred.shape[2:]))
    counted = None if weight is None else _has_weight(weight, items)
    if target.is_floating_point() and target.shape == pred.shape:
        counted = torch.ones(items, dtype=torch.bool, device=pred.device) if counted is None else counted
        _check_soft_labels(target, counted)
        return counted
    if target.is_floating_point() or target.shape != items:
        raise ValueError(
            f'Parameter `target` should hold class indices of shape {tuple(items)} or probabilities of shape '
            f'{tuple(pred.shape)}. Found {target.dtype} of shape {tuple(target.shape)}.'
        )
    target = target.long()  # uint8 and int8 wrap what they are compared with
    if ignore_index is None and n_labels <= IGNORED_BY_DEFAULT:
        ignore_index = IGNORED_BY_DEFAULT
    if ignore_index is not None:
        counted = target != ignore_index if counted is None else (target != ignore_index) & counted
    elif counted is None:
        counted = torch.ones_like(target, dtype=torch.bool)
    _check_labels(target, counted, n_labels)
    return counted


def _has_weight(weight: Tensor, items: torch.Size) -> Tensor:
    """Check the weights of items and return which of them are not 0."""
    check_tensor('weight', weight)
    if weight.shape != items:
        raise ValueError(
            f'Parameter `weight` should be of shape {tuple(items)}, one for each item. Found {tuple(weight.shape)}.'
        )
    if can_be_read(weight) and (weight < 0).any():
        raise ValueError(f'Parameter `weight` should not be negative. Found {weight.min().item()}.')
    return weight != 0


def _check_soft_labels(target: Tensor, counted: Tensor) -> None:
    """Raise if a soft label is outside [0, 1], where reading it costs nothing."""
    if not can_be_read(target):
        return
    labels = target[counted.unsqueeze(1).expand_as(target)]
    if ((labels < 0) | (labels > 1)).any():
        raise ValueError(
            'Parameter `target` should hold shares of classes in [0, 1]. '
            f'Found values from {labels.min().item()} to {labels.max().item()}.'
        )


def _check_labels(target: Tensor, valid: Tensor, n_labels: int) -> None:
    """Raise if a label is no class, where reading it costs nothing."""
    if not can_be_read(target):
        return
    wrong = valid & ((target < 0) | (target >= n_labels))
    if wrong.any():
        raise ValueError(
            f'Parameter `target` should hold labels in [0, {n_labels - 1}] or the ignored one. '
            f'Found {target[wrong][0].item()} (in {int(wrong.sum())} items).'
        )


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
    if values.dtype == torch.bool or not can_be_read(values):
        return
    wrong = (values != 0) & (values != 1)
    wrong = wrong if valid is None else wrong & valid
    if wrong.any():
        raise ValueError(
            f'Parameter `{name}` should be 0 or 1. Found {values[wrong][0].item()} (in {int(wrong.sum())} items).'
        )


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

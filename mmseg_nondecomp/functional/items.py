"""What a prediction and its target hold: which items count, as which class, and how much. Checked once, here."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp._utils.versions import is_compiling

IGNORED_BY_DEFAULT = 255


class Items(NamedTuple):
    """Images of pixels, or one set of items without a position, as losses read them class by class."""

    scores: Tensor
    """Of shape [N, C, P], float32 or better."""
    target: Tensor
    """The class of each item, int64 of shape [N, P], with C for none; or the shares of classes, [N, C, P]."""
    mass: Tensor
    """How much each item counts, of shape [N, P]: float64, or int32 where it is 1; 0 for those that are ignored."""


def class_items(scores: Tensor, target: Tensor, valid: Tensor, weight: Tensor | None, zero_is_class: bool) -> Items:
    """The items of a prediction [N, C, *], each of which is a class, shares of classes, or none.

    Args:
        scores: The prediction.
        target: Class indices [N, *], or a share for each class [N, C, *].
        valid: Which items count, bool, of shape [N, *].
        weight: How much each item counts, of shape [N, *]; all alike when omitted.
        zero_is_class: With a single channel, which label is its class: 0, as MMDetection has it, or 1.

    """
    n_classes = scores.shape[1]
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    mass = valid.int() if weight is None else torch.where(valid, weight, 0).double()
    if target.is_floating_point():
        target = torch.where(valid.unsqueeze(1), target, 0).to(scores.dtype)
    else:
        if n_classes == 1 and not zero_is_class:
            target = 1 - target.long()
        target = torch.where(valid, target, n_classes).long()
    if scores.dim() > 2:
        return Items(scores.flatten(2), target.flatten(2 if target.dim() == scores.dim() else 1), mass.flatten(1))
    return Items(scores.t().unsqueeze(0), target.t().unsqueeze(0), mass.unsqueeze(0))


def number_of_classes(pred: Tensor, name: str = 'pred') -> int:
    """C of a prediction [N, C, *]; 0 where there is no such dimension, which `valid_items` names.

    Raises:
        TypeError: If it is no tensor.
    """
    _check_tensor(name, pred)
    return pred.shape[1] if pred.dim() > 1 else 0


def one_of_two(pred: Tensor, target: Tensor) -> Tensor:
    """Two channels with labels as the one decision between them, [N, 1, *]; any other prediction as it is."""
    is_pair = number_of_classes(pred) == 2 and pred.is_floating_point() and isinstance(target, Tensor)
    if not is_pair or target.shape == pred.shape:
        return pred
    of_zero, of_one = (pred.float() if pred.element_size() < 4 else pred).split(1, 1)
    return of_one - of_zero


def valid_items(
    pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, n_labels: int, name: str = 'pred'
) -> Tensor:
    """Check a call's tensors against each other; which items count, bool, of shape [N, *].

    Args:
        pred: [N, C, *], floating point.
        target: Class indices [N, *], or a share for each class [N, C, *].
        weight: A factor for each item [N, *], or None; 0 removes the item.
        ignore_index: The label that removes an item. None: 255, where it cannot be a class.
        n_labels: How many labels mean something, from 0.
        name: What the user calls ``pred``.

    Raises:
        TypeError: If a type or a dtype does not fit.
        ValueError: If a shape does not fit, a label is no class or a share not in [0, 1] (found on the CPU only; CUDA's
            own check is late).
    """
    _check_tensor(name, pred)
    _check_tensor('target', target)
    if weight is not None:
        _check_tensor('weight', weight)
    if ignore_index is not None and (not isinstance(ignore_index, int) or isinstance(ignore_index, bool)):
        raise TypeError(f'Parameter `ignore_index` should be a label, an integer, or None. Found {ignore_index!r}.')
    if not pred.is_floating_point():
        raise TypeError(f'Parameter `{name}` should be a floating-point tensor. Found {pred.dtype}.')
    if pred.dim() < 2:
        raise ValueError(f'Parameter `{name}` should be of shape [N, C, *]. Found {tuple(pred.shape)}.')
    items = (pred.shape[0], *pred.shape[2:])
    if weight is not None and weight.shape != items:
        raise ValueError(
            f'Parameter `weight` should be of shape {items}, one for each item. Found {tuple(weight.shape)}.'
        )
    if weight is not None and can_be_read(weight) and (weight < 0).any():
        raise ValueError(f'Parameter `weight` should not be negative. Found {weight.min().item()}.')
    counted = None if weight is None else weight != 0
    if target.is_floating_point() and target.shape == pred.shape:
        counted = torch.ones(items, dtype=torch.bool, device=pred.device) if counted is None else counted
        _check_shares(target, counted)
        return counted
    if target.is_floating_point() or target.shape != items:
        raise ValueError(
            f'Parameter `target` should hold class indices of shape {items} or probabilities of shape '
            f'{tuple(pred.shape)}. Found {target.dtype} of shape {tuple(target.shape)}.'
        )
    target = target.long()  # uint8 and int8 wrap what they are compared with
    if ignore_index is None and n_labels <= IGNORED_BY_DEFAULT:
        ignore_index = IGNORED_BY_DEFAULT
    if ignore_index is not None:
        valid = target != ignore_index
        valid = valid if counted is None else valid & counted
    else:
        valid = torch.ones_like(target, dtype=torch.bool) if counted is None else counted
    _check_labels(target, valid, n_labels)
    return valid


def _check_tensor(name: str, given: object) -> None:
    if not isinstance(given, Tensor):
        raise TypeError(f'Parameter `{name}` should be a tensor. Found {type(given).__name__}.')
    if given.is_complex():
        raise TypeError(f'Parameter `{name}` should hold real numbers. Found {given.dtype}.')


def _check_shares(target: Tensor, counted: Tensor) -> None:
    """Name a wrong share where reading it costs nothing."""
    if not can_be_read(target):
        return
    found = target[counted.unsqueeze(1).expand_as(target)]
    if ((found < 0) | (found > 1)).any():
        raise ValueError(
            'Parameter `target` should hold shares of classes in [0, 1]. '
            f'Found values from {found.min().item()} to {found.max().item()}.'
        )


def _check_labels(target: Tensor, valid: Tensor, n_labels: int) -> None:
    """Name a wrong label where reading it costs nothing."""
    if not can_be_read(target):
        return
    wrong = valid & ((target < 0) | (target >= n_labels))
    if wrong.any():
        raise ValueError(
            f'Parameter `target` should hold labels in [0, {n_labels - 1}] or the ignored one. '
            f'Found {target[wrong][0].item()} (in {int(wrong.sum())} items).'
        )


def can_be_read(tensor: Tensor) -> bool:
    """Whether looking at values costs nothing: on the CPU, and not while a graph is traced."""
    return tensor.device.type == 'cpu' and type(tensor) is Tensor and not is_compiling()

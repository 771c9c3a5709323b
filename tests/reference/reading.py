"""Reading of a call: which channel decides what, and which label of which item counts. In NumPy, value by value.

`read_layout` brings a call that is accepted into one layout: scores [N, C, *], with labels [N, *] or shares
[N, C, *], and a weight of each item. `definitions.value` has the value of a loss in this layout.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reference import definitions

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

MODES = (None, 'multiclass', 'binary', 'multilabel')
TOP_K = ('SmoothTopKLoss', 'HardTopKLoss')
PAIRS = ('LovaszHingeLoss', 'SMeasureLoss')
DIRECT = ('DirectAPLoss', 'DirectZeroOneLoss')

BINARY, PAIR, INDEX, SHARES, SEVERAL = 'one channel', 'one decision', 'class index', 'shares', 'several labels'
"""Readings. In the second, two channels are one decision."""


class RefusedError(Exception):
    """A call is refused. Its arguments have to be in the message of the loss."""


class Reading(NamedTuple):
    """A call in one layout."""

    kind: str
    args: dict[str, Any]
    """Constructor arguments for the definition of the loss."""
    pred: Tensor
    """Of shape [N, C, *]."""
    target: Tensor
    """Labels, int64 of shape [N, *], or shares, of shape [N, C, *]."""
    weight: Tensor
    """Of shape [N, *]; 0 for ignored items."""
    zero_is_class: bool

    def call(self) -> definitions.Call:
        """Return the call for `definitions.value`."""
        return definitions.read(self.pred, self.target, self.weight, -1, self.zero_is_class)


def read_layout(
    name: str,
    args: dict[str, Any],
    pred: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
    avg_factor: float | None = None,
) -> Reading:
    """Return a call in one layout.

    Raises:
        RefusedError: If the call is refused, or the arguments of the constructor are.
    """
    mode = args.get('mode')
    if name in TOP_K and (mode not in (None, 'multiclass') or pred.dim() < 2 or pred.shape[1] <= args['k']):
        raise RefusedError
    if mode == 'multilabel' and name == 'LossMaxPooling' and not _has_sigmoid(name, args):
        raise RefusedError('bce')
    if ignore_index is None:
        ignore_index = args.get('ignore_index')
    kind, shape = _kind_and_shape(name, mode, tuple(pred.shape), tuple(target.shape), avg_factor is not None)
    boxes = _is_box_call(pred, target, weight, avg_factor)
    if boxes and kind == PAIR and args.get('use_sigmoid'):  # two classes without a channel for the background
        kind = INDEX
    if boxes and name in DIRECT and kind == INDEX and mode is None and not args.get('use_sigmoid'):
        raise RefusedError('use_sigmoid=True')
    mass = _mass(weight, (shape[0], *shape[2:]))
    values = target.double().numpy()
    if kind in (SHARES, SEVERAL):
        each = np.moveaxis(values, 1, -1)[mass > 0]
        of_images = weight is None and _is_count(avg_factor, len(pred)) and pred.dim() == 2
        for item in each.reshape(-1, shape[1]):
            is_whole = all(value in (0, 1) for value in item) or of_images or abs(math.fsum(item) - 1) <= 0.01
            if not all(0 <= value <= 1 for value in item) or (name in DIRECT and not is_whole):
                raise RefusedError
        if kind == SHARES:
            kind = _shares_or_several(name, args, each, pred.shape, of_images)
        found = values
    else:
        found, mass = _labels(name, args, kind, values.reshape(mass.shape), mass, ignore_index, shape[1])
        if kind == BINARY and target.is_floating_point():
            found = found[:, None]
        elif kind == INDEX and (mode == 'multilabel' or (name in PAIRS and shape[1] == 2)):
            found = np.stack([found == c for c in range(shape[1])], 1).astype(float)
        else:
            found = found.astype(np.int64)
    if boxes and kind == PAIR:  # the second channel is the background
        pred, found = pred.flip(1), np.where(found >= 0, 1 - found, found)
    plain = {key: value for key, value in args.items() if key not in ('ignore_index', 'mode')}
    if mode == 'multilabel':
        plain['use_sigmoid'] = True
    zero_is_class = boxes and kind == BINARY and not target.is_floating_point()
    parts = pred.detach().reshape(shape), torch.from_numpy(found), torch.from_numpy(mass)
    return Reading(kind, plain, *parts, zero_is_class)


def _kind_and_shape(name: str, mode: str | None, pred: Shape, target: Shape, averaged: bool) -> tuple[str, Shape]:
    """Return the reading by shape alone, and the shape [N, C, *] of the scores in it."""
    if not pred:
        raise RefusedError
    n, n_classes, rest = pred[0], pred[1] if len(pred) > 1 else 0, pred[2:]
    without_channel = (n, 1, *pred[1:])
    is_index = len(pred) > 1 and target in ((n, *rest), (n, 1, *rest))
    is_pair = name in PAIRS and n_classes == 2
    if len(pred) == 1:
        if mode not in (None, 'binary') or target not in ((n,), (n, 1)):
            raise RefusedError
        if averaged:
            raise RefusedError('MaskLoss')
        return BINARY, (n, 1)
    if mode == 'binary':
        if n_classes == 1 and is_index:
            return BINARY, pred
        if is_pair and is_index:
            return PAIR, pred
        if target in (pred, without_channel):
            return BINARY, without_channel
    elif n_classes == 1 and is_index and mode != 'multiclass':
        return BINARY, pred
    elif n_classes > 1:
        if is_index:
            return PAIR if is_pair and mode != 'multilabel' else INDEX, pred
        if target == pred:
            return SEVERAL if mode == 'multilabel' else SHARES, pred
        if target == without_channel and mode is None and name not in TOP_K:
            return BINARY, without_channel
    resized = mode in (None, 'multiclass') and n_classes > 1 and (len(pred), len(target)) == (4, 3)
    resized = resized and n == target[0] and target != pred[:-1]  # else the channels may be last
    raise RefusedError(*(['F.interpolate'] if resized else []))


def _has_sigmoid(name: str, args: dict[str, Any]) -> bool:
    """Return whether each channel decides by itself."""
    if name in TOP_K:
        return False
    if name == 'LossMaxPooling':
        return args.get('pixel_loss', 'cross_entropy') != 'cross_entropy'
    if name in ('LovaszSoftmaxLoss', 'SoftIoULoss'):
        return bool(args.get('use_sigmoid')) or args.get('mode') == 'multilabel'
    return True


def _is_box_call(pred: Tensor, target: Tensor, weight: Tensor | None, avg_factor: float | None) -> bool:
    """Return whether a call is that of a box head of MMDetection: scores [N, C] and labels [N]."""
    if pred.dim() != 2 or target.shape != pred.shape[:1] or avg_factor is None:
        return False
    return weight is not None or not _is_count(avg_factor, len(pred))


def _is_count(avg_factor: float | None, n: int) -> bool:
    return isinstance(avg_factor, int) and avg_factor == n


def _mass(weight: Tensor | None, items: Shape) -> Array:
    if weight is None:
        return np.ones(items)
    if tuple(weight.shape) not in (items, (items[0], 1, *items[1:])):
        raise RefusedError
    return weight.double().numpy().reshape(items)


def _shares_or_several(name: str, args: dict[str, Any], each: Array, shape: torch.Size, of_images: bool) -> str:
    """Return the reading of a target with the shape of the scores, by whether the shares of each item add up to 1."""
    mode = args.get('mode')
    add_up = all(abs(math.fsum(item) - 1) <= 0.01 for item in each)
    if mode is None and _has_sigmoid(name, args):
        several = bool(args.get('use_sigmoid')) or (len(shape) == 2 and of_images)
        if several or (len(shape) >= 4 and shape[-1] != 1 and not add_up):
            return SEVERAL
    if add_up:
        return SHARES
    names = [] if mode or name in TOP_K else ["mode='multilabel'", "mode='binary'"]
    raise RefusedError(*names, *(['MaskLoss'] if names and _has_sigmoid(name, args) else []))


def _labels(
    name: str, args: dict[str, Any], kind: str, values: Array, mass: Array, ignore_index: int | None, n_classes: int
) -> tuple[Array, Array]:
    """Return the labels of the items, -1 outside of the set, and how much items count. Masks may be of 0 and 255."""
    most = {BINARY: 1, PAIR: 1, INDEX: n_classes - 1}[kind]
    if kind == INDEX and _has_sigmoid(name, args) and args.get('mode') != 'multiclass':
        most = n_classes
    if kind != BINARY and (values % 1).any():
        raise RefusedError
    if n_classes <= 2 and 255 in values:
        if ignore_index is None and 0 in values and 1 not in values:
            raise RefusedError('ignore_index=255', '// 255')
        if ignore_index not in (None, 255):
            if 1 in values:
                raise RefusedError
            values = np.where(values == 255, 1, values)
    if ignore_index is None and most + 1 <= 255:
        ignore_index = 255
    if ignore_index is not None:
        mass = np.where(values == ignore_index, 0, mass)
    for value in values[mass > 0]:
        if not 0 <= value <= most or (name in DIRECT and value % 1):
            raise RefusedError
    return np.where(mass > 0, values, -1), mass

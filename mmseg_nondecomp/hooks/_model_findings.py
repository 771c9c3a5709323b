"""Silent mistakes in the model of a training. Each function returns the text of one of them, or None."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn

from mmseg_nondecomp.losses import (
    DirectZeroOneLoss,
    LovaszHingeLoss,
    LovaszSoftmaxLoss,
    SMeasureLoss,
    SoftIoULoss,
)
from mmseg_nondecomp.losses._base import RegisteredLoss
from mmseg_nondecomp.registry import MODELS

DECIDE_AT_HALF = (DirectZeroOneLoss, LovaszHingeLoss, LovaszSoftmaxLoss, SMeasureLoss, SoftIoULoss)
"""Losses that decide about a single channel at a logit of 0, a probability of 0.5."""
STOCK_THRESHOLD = 0.3
"""Probability at which a head of MMSegmentation decides about a single channel, unless ``threshold`` is set."""


class Head(NamedTuple):
    """A head that predicts, with its losses and its part of the config."""

    name: str
    module: Any
    losses: list[Any]
    settings: dict[str, Any]

    @property
    def n_channels(self) -> int | None:
        """Return the number of channels of the logits; None if it is not known."""
        return getattr(self.module, 'out_channels', None)


def heads_of(model: nn.Module, config: Any) -> list[Head]:
    """Return the heads whose predictions are evaluated: of MMSegmentation, also of a cascade, and of MMPretrain."""
    heads = []
    for name in ('decode_head', 'head'):
        module: Any = getattr(model, name, None)
        modules = module if isinstance(module, nn.ModuleList) else [] if module is None else [module]
        settings = config.get(name) if isinstance(config, dict) else None
        parts = settings if isinstance(settings, list) else [settings]
        for i, one in enumerate(modules):
            losses = getattr(one, 'loss_decode', getattr(one, 'loss_module', None))
            losses = list(losses) if isinstance(losses, nn.ModuleList) else [losses]
            part: Any = parts[i] if i < len(parts) else None
            heads.append(Head(name if one is module else f'{name}.{i}', one, losses, part or {}))
    return heads


def unbuilt_losses(model: nn.Module, config: Any) -> str | None:
    """Find losses of this package in the config of which the model has fewer."""
    places: dict[type, list[str]] = {}
    for place, settings in typed_dicts(config, 'model'):
        cls = _loss_class(settings['type'])
        if cls is not None:
            places.setdefault(cls, []).append(f'`{place}`')
    built = Counter(type(module) for module in model.modules())
    missing = [
        f'{len(found)} {cls.__name__} ({", ".join(found)}), and the model has {built[cls]}'
        for cls, found in places.items()
        if built[cls] < len(found)
    ]
    if not missing:
        return None
    return (
        f'The config sets {"; ".join(missing)}. A head that has no argument of this name can ignore it and train with '
        'its own losses, as those of MaskFormer and Mask2Former do. Set an argument that the head has, or choose a '
        'head that has this one.'
    )


def uncalled_losses(names: list[str], iteration: int) -> str | None:
    """Report losses that no forward pass has called."""
    if not names:
        return None
    return (
        f'Not called up to iteration {iteration}: {", ".join(names)}. The head does not use this loss, or not yet; '
        'some heads take a fixed number of losses or read them by position. Move it to a place in the config that the '
        'head reads, or remove it.'
    )


def overwritten_loss(head: Head) -> str | None:
    """Find losses of one name in a head that assigns losses to their names, where others add them."""
    counts = Counter(getattr(loss, 'loss_name', None) for loss in head.losses)
    repeated = [name for name, count in counts.items() if name is not None and count > 1]
    if not repeated or 'PointHead' not in {cls.__name__ for cls in type(head.module).__mro__}:
        return None
    return (
        f'`model.{head.name}` ({type(head.module).__name__}) has several losses named {repeated[0]!r} and trains on '
        f'the last one only. Set a different `loss_name` for each, such as {f"{repeated[0]}_2"!r}.'
    )


def stock_threshold(head: Head) -> str | None:
    """Find a head of one channel that decides at another score than its loss."""
    losses = [type(loss).__name__ for loss in head.losses if isinstance(loss, DECIDE_AT_HALF)]
    is_stock = getattr(head.module, 'threshold', None) == STOCK_THRESHOLD and head.settings.get('threshold') is None
    if head.n_channels != 1 or not is_stock or not losses:
        return None
    return (
        f'`model.{head.name}` decides at a probability of {STOCK_THRESHOLD}, the default of MMSegmentation for one '
        f'channel, and {losses[0]} at 0.5. Set `threshold=0.5` in `model.{head.name}`.'
    )


def hinge_of_many_classes(head: Head) -> str | None:
    """Find a Lovász hinge in a head that predicts the class of the largest logit."""
    is_hinge = any(isinstance(loss, LovaszHingeLoss) for loss in head.losses)
    if not is_hinge or not hasattr(head.module, 'loss_decode') or (head.n_channels or 0) <= 2:
        return None
    return (
        f'`model.{head.name}` predicts the class of the largest of {head.n_channels} logits, and LovaszHingeLoss '
        "trains each of them to decide about its class alone. Set `type='LovaszSoftmaxLoss'` in "
        f'`model.{head.name}.loss_decode`.'
    )


def other_number_of_classes(head: Head, class_names: Any) -> str | None:
    """Find a head that has another number of classes than the training data."""
    n_classes = getattr(head.module, 'num_classes', None)
    # A head of one class and one channel is for two classes.
    if not class_names or n_classes is None or max(n_classes, 2) == max(len(class_names), 2):
        return None
    return (
        f'`model.{head.name}` has {n_classes} classes, and the training data set names {len(class_names)}. Set '
        f'`num_classes={len(class_names)}` in `model.{head.name}`, or `metainfo` in `train_dataloader.dataset`.'
    )


def typed_dicts(value: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the dicts with a ``type`` in a part of a config, each with its place."""
    if isinstance(value, dict):
        if 'type' in value:
            yield place, value
        for key, part in value.items():
            yield from typed_dicts(part, f'{place}.{key}')
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from typed_dicts(part, f'{place}.{i}')


def _loss_class(kind: Any) -> type | None:
    """Return the loss of this package that a ``type`` stands for, by name or as a class."""
    if isinstance(kind, str):
        scope, _, name = kind.rpartition('.')
        is_here = scope.partition('.')[0] in ('', 'mmengine', 'mmseg_nondecomp')
        kind = MODELS.module_dict.get(name) if is_here else None
    return kind if isinstance(kind, type) and issubclass(kind, RegisteredLoss) else None

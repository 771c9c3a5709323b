"""The losses of the matrix, the slots of stock models, and the change of a config that puts one into the other."""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from mmengine.config import ConfigDict

from stock.catalogue import StockModel

IGNORED = 255
CROSS_ENTROPY = dict(type='CrossEntropyLoss', loss_name='loss_ce')
ONE_CHANNEL = dict(type='CrossEntropyLoss', use_sigmoid=True)


class LossCase(NamedTuple):
    """A loss of the matrix."""

    name: str
    """Column of the tables."""
    loss: dict[str, Any] | list[dict[str, Any]]
    """Config; a list for several losses of one head."""
    one_channel: bool = False
    """Whether the head has two classes and one channel."""


class Slot(NamedTuple):
    """A place of a model that takes a loss."""

    key: str
    """Key in the config of the head."""
    head: str
    """Type of the head."""
    position: int | None = None
    """Place in a list, for heads that read it by position."""


def _of_masks(name: str, **loss: Any) -> LossCase:
    return LossCase(name, dict(type='MaskLoss', loss=dict(type=name, **loss)))


DECODE = [
    LossCase('LossMaxPooling', dict(type='LossMaxPooling')),
    LossCase('LovaszSoftmaxLoss', dict(type='LovaszSoftmaxLoss')),
    LossCase('CE + 3 Lovász', [CROSS_ENTROPY, dict(type='LovaszSoftmaxLoss', loss_weight=3.0)]),
    LossCase('SoftIoULoss', dict(type='SoftIoULoss')),
    LossCase('SMeasureLoss', dict(type='SMeasureLoss')),
    LossCase('DirectZeroOneLoss', dict(type='DirectZeroOneLoss')),
    LossCase('SmoothTopKLoss', dict(type='SmoothTopKLoss', k=2)),
    LossCase('LovaszHingeLoss', dict(type='LovaszHingeLoss'), one_channel=True),
    LossCase('DirectAPLoss', dict(type='DirectAPLoss'), one_channel=True),
]
CLASSIFY = [
    LossCase('DirectAPLoss (sigmoid)', dict(type='DirectAPLoss', use_sigmoid=True)),
    LossCase('LossMaxPooling (focal)', dict(type='LossMaxPooling', pixel_loss='focal', use_sigmoid=True)),
    LossCase('LossMaxPooling', dict(type='LossMaxPooling')),
    LossCase('SmoothTopKLoss', dict(type='SmoothTopKLoss', k=2)),
]
MASKS = [
    _of_masks('LovaszHingeLoss', bins=None),
    _of_masks('LovaszSoftmaxLoss', bins=None),
    _of_masks('SoftIoULoss'),
    _of_masks('LossMaxPooling'),
    _of_masks('DirectZeroOneLoss'),
]
PRESENCE = [
    LossCase('LovaszSoftmaxLoss (multilabel)', dict(type='LovaszSoftmaxLoss', mode='multilabel')),
    LossCase('SoftIoULoss (sigmoid)', dict(type='SoftIoULoss', use_sigmoid=True)),
    LossCase('LossMaxPooling (bce)', dict(type='LossMaxPooling', pixel_loss='bce', mode='multilabel')),
    LossCase('SMeasureLoss (multilabel)', dict(type='SMeasureLoss', mode='multilabel')),
    LossCase('DirectZeroOneLoss (sigmoid)', dict(type='DirectZeroOneLoss', use_sigmoid=True)),
    LossCase('DirectAPLoss (sigmoid)', dict(type='DirectAPLoss', use_sigmoid=True)),
]
CASES = {
    'loss_decode': DECODE,
    'loss_cls': CLASSIFY,
    'loss_mask': MASKS,
    'loss_dice': MASKS,
    'loss_se_decode': PRESENCE,
}
"""Losses of each slot."""

BY_POSITION = {'DDRHead': (0, 1), 'PIDHead': (0, 1, 3)}
"""Heads whose list of losses has one loss for each of their outputs, and the places of the outputs with labels."""
BY_NAME = {
    'SideAdapterCLIPHead': {'loss_cls': 'loss_cls_ce', 'loss_mask': 'loss_mask_ce', 'loss_dice': 'loss_mask_dice'}
}
"""Heads whose list of losses has one loss for each of these names."""
MASK_PROBABILITIES = {'DecoupledSOLOHead', 'DecoupledSOLOLightHead', 'DynamicMaskHead'}
"""Heads that hand over masks of probabilities."""
CLASS_PROBABILITIES = {'CenterNetUpdateHead', 'TOODHead'}
"""Heads that hand over probabilities of classes."""
READ_CLASS_WEIGHT = {'Mask2FormerHead', 'MaskFormerHead', 'Mask2FormerTrackHead'}
"""Heads that read the weights of the classes from the config of their loss."""


def slots_of(stock: StockModel, model: ConfigDict) -> list[Slot]:
    """Return the slots of a model, each head once. Its first stage has one if the model has no other."""
    found: dict[Slot, None] = {}
    auxiliary = {'FCNHead'}  # as a decode head it is in the matrix already
    for path, part in _parts(model):
        kind = part['type']
        if kind in BY_NAME:
            found.update(dict.fromkeys(Slot(key, kind) for key in BY_NAME[kind]))
        elif not ('auxiliary_head' in path and kind in auxiliary) and not ('rpn_head' in path and kind == 'RPNHead'):
            found.update(dict.fromkeys(Slot(key, kind) for key in CASES if isinstance(part.get(key), (dict, list))))
        elif kind == 'RPNHead' and model.type == 'RPN':
            found[Slot('loss_cls', kind)] = None
    if stock.toolbox == 'mmdet':
        return [slot for slot in found if slot.key != 'loss_decode']
    return list(found)


def _parts(config: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], ConfigDict]]:
    """Yield the parts of a model that are built and the keys that lead to them."""
    if isinstance(config, dict):
        if 'type' in config:
            yield path, config
        for key, value in config.items():
            if key != 'teacher_config':
                yield from _parts(value, (*path, key))
    elif isinstance(config, (list, tuple)):
        for value in config:
            yield from _parts(value, path)


def with_loss(model: ConfigDict, slot: Slot, case: LossCase | None) -> ConfigDict:
    """Return the model with a loss in a slot; without a case, the model as it is."""
    changed = copy.deepcopy(model)
    if case is None:
        return changed
    for _, part in _parts(changed):
        if part['type'] == slot.head:
            _put(part, slot, case)
        if case.one_channel and 'num_classes' in part:
            part.num_classes = 2
            if part['type'] == slot.head:
                part.out_channels, part.threshold = 1, 0.5
    return changed


def _put(head: ConfigDict, slot: Slot, case: LossCase) -> None:
    loss = copy.deepcopy(case.loss)
    if isinstance(loss, dict) and loss['type'] == 'MaskLoss' and slot.head in MASK_PROBABILITIES:
        loss['from_logits'] = False
    if slot.head in BY_POSITION:
        if isinstance(loss, list):  # these heads name no ignored label
            loss = dict(type='SumOfLosses', losses=loss, ignore_index=IGNORED)
        chosen = BY_POSITION[slot.head]
        head.loss_decode = [loss if place in chosen else other for place, other in enumerate(head.loss_decode)]
    elif slot.head in BY_NAME:
        name = BY_NAME[slot.head][slot.key]
        head.loss_decode = [
            dict(loss, loss_name=name) if other.loss_name == name else other for other in head.loss_decode
        ]
    elif slot.head in READ_CLASS_WEIGHT and slot.key == 'loss_cls':
        head.loss_cls = dict(loss, class_weight=head.loss_cls.class_weight)
    elif slot.key in head or slot.key == 'loss_decode':
        head[slot.key] = loss

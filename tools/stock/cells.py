"""Outcomes of the cells of the matrix: a training step and a prediction of a stock model with one loss."""

import random
import re
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import ConfigDict
from mmengine.logging import MessageHub
from mmengine.registry import init_default_scope
from torch import nn

import mmseg_nondecomp
from stock import Row
from stock.catalogue import StockModel
from stock.losses import (
    BY_POSITION,
    CASES,
    CLASS_PROBABILITIES,
    CROSS_ENTROPY,
    IGNORED,
    MASK_PROBABILITIES,
    ONE_CHANNEL,
    LossCase,
    Slot,
    slots_of,
    with_loss,
)
from stock.recording import direction_error, gradient_error, mask_error, recorded
from stock.scenes import scene
from stock.shrinking import n_classes_of, shrunk

OK, REFUSED, WARNS, CONTROL, FAIL, UNUSED = 'ok', 'refused', 'warns', 'control fails', 'FAIL', 'not used'
STOCK = 'stock'
"""Name of the control in the column of losses."""
PACKAGE = Path(mmseg_nondecomp.__file__).parent
UNTRAINED = {
    'BaseReID': 'needs MMPretrain',
    'ByteTrack': 'a tracker: its detector YOLOX is trained by itself',
    'DeepSORT': 'a tracker: its detector Faster R-CNN is trained by itself',
    'DepthEstimator': 'predicts depths; its backbone needs the package ldm',
    'Detectron2Wrapper': 'needs Detectron2',
    'GLIP': 'needs the package transformers and weights of BERT',
    'GroundingDINO': 'needs the package transformers and weights of BERT',
    'OCSORT': 'a tracker: its detector YOLOX is trained by itself',
    'SoftTeacher': 'needs three branches of data; its detector is Faster R-CNN',
    'StrongSORT': 'a tracker: its detector YOLOX is trained by itself',
}
"""Models that no step is tried with, and the reason."""
N_SEEDS = 5
"""Number of seeds that are tried until the control runs."""


class WrongLossError(RuntimeError):
    """A loss whose value, gradient or direction is wrong."""


def rows_of(stock: StockModel) -> Iterator[Row]:
    """Yield the rows of a model."""
    try:
        model = shrunk(stock) if (reason := _reason(stock)) is None else None
    except Exception as error:  # every error is an outcome
        model, reason = None, _shown(error)
    if model is None:
        yield _row(stock, Slot('', stock.heads[0].partition('=')[2]), STOCK, f'{CONTROL}: {reason}')
        return
    for slot in slots_of(stock, model):
        yield from _rows_of_slot(stock, model, slot)


def _reason(stock: StockModel) -> str | None:
    return next((UNTRAINED[h.partition('=')[2]] for h in stock.heads if h.partition('=')[2] in UNTRAINED), None)


def _rows_of_slot(stock: StockModel, model: ConfigDict, slot: Slot) -> Iterator[Row]:
    """Yield the control of a slot and the outcome of each loss, with the seed that the control runs with."""
    controls: dict[bool, tuple[str, int]] = {}
    for case in (None, *CASES[slot.key]):
        one_channel = case is not None and case.one_channel
        if one_channel not in controls:
            control = LossCase(STOCK, ONE_CHANNEL, one_channel=True) if one_channel else None
            controls[one_channel] = _control(stock, model, slot, control)
        found, seed = controls[one_channel]
        if case is not None and found == OK:
            found = outcome(stock, model, slot, case, seed)
        yield _row(stock, slot, STOCK if case is None else case.name, found)


def _control(stock: StockModel, model: ConfigDict, slot: Slot, case: LossCase | None) -> tuple[str, int]:
    """Return the outcome of a stock loss, and the first seed with which it runs: random boxes may be empty."""
    found: list[str] = []
    for seed in range(N_SEEDS):
        found.append(outcome(stock, model, slot, case, seed))
        if not found[-1].startswith(CONTROL):
            return found[-1], seed
    return found[0], 0


def _row(stock: StockModel, slot: Slot, loss: str, found: str) -> Row:
    head = 'IterativeDecodeHead' if any('=IterativeDecodeHead' in each for each in stock.heads) else slot.head
    return dict(toolbox=stock.toolbox, config=stock.config, head=head, slot=slot.key, loss=loss, outcome=found)


def outcome(stock: StockModel, model: ConfigDict, slot: Slot, case: LossCase | None, seed: int) -> str:
    """Return the outcome of a cell; of the control without a case, or with one of another package."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter('always')
        try:
            found = _step(stock, model, slot, case, seed)
        except WrongLossError as error:
            found = f'{FAIL}: {error}'
        except Exception as error:  # every error is an outcome
            return _outcome_of_error(error, stock, model, slot, case, seed)
    if case is None or case.name == STOCK:
        return found.replace(FAIL, CONTROL, 1)
    told = [str(each.message) for each in warned if _is_ours(str(each.message))]
    return f'{WARNS}: {first_sentence(told[0])}' if told else found


def _outcome_of_error(
    error: Exception, stock: StockModel, model: ConfigDict, slot: Slot, case: LossCase | None, seed: int
) -> str:
    """Return whether a stock loss, this package or anything else raised an error."""
    if case is None or case.name == STOCK:
        return f'{CONTROL}: {_shown(error)}'
    if isinstance(error, (ValueError, TypeError)) and _is_from_package(error):
        return f'{REFUSED}: {first_sentence(str(error))}'
    return _also_fails(stock, model, slot, case, seed) or f'{FAIL}: {_shown(error)}'


def _also_fails(stock: StockModel, model: ConfigDict, slot: Slot, case: LossCase, seed: int) -> str | None:
    """Return the outcome if cross-entropy of the same kind fails in the same place; None if it does not."""
    if slot.key != 'loss_cls':
        return None
    by_sigmoid = bool(case.loss.get('use_sigmoid'))
    try:
        _step(stock, model, slot, LossCase(STOCK, dict(type='CrossEntropyLoss', use_sigmoid=by_sigmoid)), seed)
    except Exception as error:  # every error is an outcome
        kind = 'with' if by_sigmoid else 'without'
        return f'{CONTROL}: so does cross-entropy {kind} a sigmoid: {_shown(error)}'
    return None


def _is_ours(message: str) -> bool:
    return any(name in message for name in mmseg_nondecomp.__all__)


def _step(stock: StockModel, config: ConfigDict, slot: Slot, case: LossCase | None, seed: int) -> str:
    """Train a model for a step, check the calls of its loss, and predict."""
    registry = _registry(stock.toolbox)
    one_channel = case is not None and case.one_channel
    n_classes = 2 if one_channel else n_classes_of(stock)
    ignored = not (one_channel and slot.head in BY_POSITION)  # stock cross-entropy is not told of ignored pixels there
    _seed(seed)
    model = registry.build(with_loss(config, slot, case))
    _initialise(model)
    model.train()
    losses = _losses(model, slot, case)
    with recorded(losses) as calls:
        batch = scene(stock, model, n_classes, training=True, ignored=ignored)
        total, _ = model.parse_losses(model(**batch, mode='loss'))
        total.backward()
    _check(total.isfinite().all(), f'the loss of the model is {total}')
    _check(all(p.grad is None or p.grad.isfinite().all() for p in model.parameters()), 'a gradient is not finite')
    if not calls:
        _check(case is None, 'the loss is not called')
        return f'{UNUSED}: the head does not call the loss of this slot'
    if case is not None and case.name != STOCK:
        _check_calls(stock, config, slot, case, losses[0], calls)
    model.eval()
    with torch.no_grad():
        model(**scene(stock, model, n_classes, training=False, ignored=ignored), mode='predict')
    return OK


def _initialise(model: nn.Module) -> None:
    """Initialise the weights, also those that stock models take from a checkpoint only."""
    if type(model).__name__ == 'MultimodalEncoderDecoder':
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.02)
        return
    model.init_weights()
    for part in model.modules():
        if type(part).__name__ == 'TridentConv':
            nn.init.kaiming_uniform_(part.weight)
        elif type(part).__name__ == 'DIIHead':
            nn.init.zeros_(part.fc_reg.weight)  # or boxes far from the image are predicted


def _check_calls(
    stock: StockModel, config: ConfigDict, slot: Slot, case: LossCase, loss: nn.Module, calls: list[Any]
) -> None:
    """Raise an error if the gradients, the direction or the value of a loss are wrong."""
    ignored = IGNORED if slot.key == 'loss_decode' else None
    error = gradient_error(calls, loss.eval(), ignored)
    if error is None:
        references = [] if case.one_channel else _stock_losses(stock, config, slot)
        references += _fallbacks(stock, case)
        from_logits = slot.head not in (CLASS_PROBABILITIES if slot.key == 'loss_cls' else MASK_PROBABILITIES)
        error = direction_error(calls, loss, references, from_logits=from_logits)
    if error is None and type(loss).__name__ == 'MaskLoss' and slot.head not in MASK_PROBABILITIES:
        plain = _registry(stock.toolbox).build(dict(case.loss['loss'], scope='image', mode='binary')).eval()
        error = mask_error(calls, loss, plain, slot.head)
    loss.train()
    _check(error is None, error)


def _check(condition: Any, message: str | None) -> None:
    if not condition:
        raise WrongLossError(message)


def _losses(model: nn.Module, slot: Slot, case: LossCase | None) -> list[nn.Module]:
    """Return the losses of a built model in a slot: that of the case, or the stock ones."""
    heads = [part for part in model.modules() if type(part).__name__ == slot.head]
    kind = None
    if case is not None:
        last = case.loss[-1] if isinstance(case.loss, list) else case.loss
        kind = last['type']
    found = []
    for head in heads:
        built = getattr(head, slot.key if hasattr(head, slot.key) else 'loss_decode', None)
        each = [] if built is None else list(built) if isinstance(built, nn.ModuleList) else [built]
        found += [part for part in each if kind is None or type(part).__name__ in (kind, 'SumOfLosses')]
    return list(dict.fromkeys(found))


def _stock_losses(stock: StockModel, config: ConfigDict, slot: Slot) -> list[nn.Module]:
    """Return the stock losses of a slot, built from the config of their head."""
    model = _registry(stock.toolbox).build(with_loss(config, slot, None))
    return _losses(model, slot, None)


def _fallbacks(stock: StockModel, case: LossCase) -> list[nn.Module]:
    """Return cross-entropy with and without a sigmoid, that of the kind of the loss first."""
    registry = _registry(stock.toolbox)
    losses = case.loss if isinstance(case.loss, list) else [case.loss]
    by_sigmoid = case.one_channel or any(loss.get('use_sigmoid') for loss in losses if loss is not CROSS_ENTROPY)
    return [registry.build(dict(type='CrossEntropyLoss', use_sigmoid=use)) for use in (by_sigmoid, not by_sigmoid)]


def _registry(toolbox: str) -> Any:
    """Return the registry of the models of a toolbox, ready to build."""
    import mmdet.models
    import mmseg.models

    init_default_scope(toolbox)
    MessageHub.get_current_instance().update_info('epoch', 0)  # read by TOODHead
    _mask_no_convolution()
    return (mmdet if toolbox == 'mmdet' else mmseg).registry.MODELS


def _mask_no_convolution() -> None:
    """Compute all places in masked convolutions, which predict on a GPU only."""
    from mmcv.ops import MaskedConv2d

    MaskedConv2d.forward = lambda self, x, mask=None: nn.Conv2d.forward(self, x)


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def _is_from_package(error: BaseException) -> bool:
    """Return whether the package raised an exception; MMEngine raises those of constructors again."""
    frames = traceback.extract_tb(error.__traceback__)
    if frames and Path(frames[-1].filename).is_relative_to(PACKAGE):
        return True
    return error.__cause__ is not None and _is_from_package(error.__cause__)


def first_sentence(message: str) -> str:
    """Return the first sentence of a message in one line, without the class that MMEngine names before it."""
    text = ' '.join(message.split())
    text = re.sub(r'^class `\w+` in [\w/.]+: ', '', text)
    return re.split(r'(?<=[.!?])\s+(?=[A-Z`])', text)[0]


def _shown(error: BaseException) -> str:
    return f'{type(error).__name__}: {" ".join(str(error).split())[:160]}'

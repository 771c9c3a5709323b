"""Each loss × each way of the toolboxes to call it × a table of inputs: its definition's value or a named error."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from calls import value_and_gradient
from every_loss import CASES, EVERY, N_CLASSES, SIGMOID, build, every_loss, in_box_heads
from reference import definitions
from reference.definitions import allowed


def maps():
    """Return two images of four pixels, few enough to enumerate all rankings."""
    generator = torch.Generator().manual_seed(3)
    pred = torch.randn(2, N_CLASSES, 2, 2, generator=generator) * 3
    return dict(pred=pred, target=torch.tensor([[[0, 1], [2, 3]], [[4, 0], [1, 1]]]))


def boxes():
    call = maps()
    return dict(pred=call['pred'].movedim(1, -1).reshape(-1, N_CLASSES), target=call['target'].flatten())


# MMPretrain calls as MMDetection does, without weights.
FORMS: dict[str, tuple[Callable[[], dict[str, Any]], Callable[[dict[str, Any]], dict[str, Any]]]] = {
    'mmseg': (maps, lambda call: dict(weight=None, ignore_index=255) | call),
    'mmdet': (boxes, lambda call: dict(weight=_ones(call), avg_factor=7.0, reduction_override=None) | call),
}


def _ones(call):
    target = call['target']
    return torch.ones(target.shape[:1] if target.dim() == 2 else target.shape)


def changed(**how):
    return lambda call: call | {name: change(call) for name, change in how.items()}


def pred(change):
    return changed(pred=lambda call: change(call['pred'].clone()))


def target(change):
    return changed(target=lambda call: change(call['target'].clone()))


def weight(change):
    return changed(weight=lambda call: change(torch.ones(call['target'].shape)))


def fill(value, index):

    def change(tensor):
        tensor[index] = value
        return tensor

    return change


def ruled_out(call, which):
    """Set the scores of some classes of each item to -inf."""
    is_own = F.one_hot(call['target'], N_CLASSES).movedim(-1, 1).bool()
    mask = is_own.roll(1, 1) if which == 'another' else ~is_own
    return call | dict(pred=call['pred'].masked_fill(mask, -math.inf))


def unseen(value):
    """Return a change that gives an ignored item this score."""

    def change(call):
        scores, labels = call['pred'].clone(), call['target'].clone()
        scores[0], labels[0] = value, 255
        return call | dict(pred=scores, target=labels)

    return change


VALUES = {
    'as they come': lambda call: call,
    'no items': changed(pred=lambda call: call['pred'][:0], target=lambda call: call['target'][:0]),
    'one image or box': changed(pred=lambda call: call['pred'][:1], target=lambda call: call['target'][:1]),
    'one class': target(torch.zeros_like),
    'all but one of one class': target(lambda y: fill(1, (0,) * y.dim())(torch.zeros_like(y))),
    'all ignored': target(lambda y: torch.full_like(y, 255)),
    'one ignored': target(lambda y: fill(255, (0,) * y.dim())(y)),
    'another label is ignored': lambda call: (
        call | dict(target=call['target'].masked_fill(call['target'] == 2, -100), ignore_index=-100)
    ),
    'a class is ignored': lambda call: call | dict(ignore_index=1),
    'all weights 0': weight(torch.zeros_like),
    'one weight 0': weight(lambda w: fill(0.0, (0,) * w.dim())(w)),
    'boolean weights': weight(lambda w: fill(False, (0,) * w.dim())(w.bool())),
    'integer weights': weight(lambda w: w.int()),
    'double weights': weight(lambda w: w.double()),
    'all scores 0': pred(torch.zeros_like),
    'all scores 7': pred(lambda x: torch.full_like(x, 7.0)),
    'tied scores': pred(torch.round),
    'scores of 1e-38': pred(lambda x: x * 1e-38),
    'scores of 1e4': pred(lambda x: x * 1e4),
    'scores of 1e30': pred(lambda x: x * 1e30),
    'wide scores': pred(lambda x: fill(-1e30, 0)(x)),
    'float16': pred(lambda x: x.half()),
    'float16 near its limit': pred(lambda x: (x.sign() * 65504).half()),
    'bfloat16': pred(lambda x: x.bfloat16()),
    'float64': pred(lambda x: x.double()),
    'channels last': pred(
        lambda x: x.to(memory_format=torch.channels_last) if x.dim() == 4 else x.t().contiguous().t()
    ),
    'strided': pred(lambda x: torch.stack([x, x], -1)[..., 0]),
    'expanded': pred(lambda x: x[:, :1].expand_as(x)),
    'strided labels': target(lambda y: torch.stack([y, y], -1)[..., 0]),
    'uint8 labels': target(lambda y: fill(255, (0,) * y.dim())(y.to(torch.uint8))),
    'int8 labels': lambda call: call | dict(target=fill(-1, 0)(call['target'].to(torch.int8)), ignore_index=-1),
    'int16 labels': target(lambda y: fill(255, (0,) * y.dim())(y.to(torch.int16))),
    'int32 labels': target(lambda y: fill(255, (0,) * y.dim())(y.to(torch.int32))),
    'a class that cannot be': lambda call: ruled_out(call, 'another'),
    'one class that can be': lambda call: ruled_out(call, 'all others'),
    'NaN where it is ignored': unseen(math.nan),
    'inf where it is ignored': unseen(math.inf),
    'shares of 0 and 1': target(lambda y: F.one_hot(y, N_CLASSES).movedim(-1, 1).float()),
    'smooth shares': target(lambda y: F.one_hot(y, N_CLASSES).movedim(-1, 1) * 0.9 + 0.02),
    'integer shares': target(lambda y: F.one_hot(y, N_CLASSES).movedim(-1, 1)),
    'labels of floats': target(lambda y: y.float()),
    'labels with a channel': target(lambda y: y.unsqueeze(1)),
    'weights with a channel': weight(lambda w: w.unsqueeze(1)),
}
SEVERAL = {
    'no label': target(lambda y: F.one_hot(y, N_CLASSES).movedim(-1, 1) * 0.0),
    'several labels': target(
        lambda y: (F.one_hot(y, N_CLASSES).movedim(-1, 1) + (y == 0).unsqueeze(1)).clamp(max=1).half()
    ),
}
"""Targets of losses that decide on each class."""
every_form = pytest.mark.parametrize('form', FORMS)


def without_pred(call):
    return {name: argument for name, argument in call.items() if name != 'pred'}


def by_definition(name, args, call):
    target, weight, is_shares = call['target'], call.get('weight'), call['target'].shape == call['pred'].shape
    target = target.float() if is_shares else target.reshape(call['pred'][:, 0].shape).long()
    weight = None if weight is None else weight.reshape(call['pred'][:, 0].shape)
    read = definitions.read(call['pred'], target, weight, call.get('ignore_index'))
    return read, definitions.value(name, args, read)


def test_every_loss_has_a_definition():
    assert set(definitions.DEFINITIONS) == set(CASES)


def args_in(form, name, args):
    return in_box_heads(name, args) if form == 'mmdet' else args


@pytest.mark.parametrize('values', SEVERAL)
@every_form
@every_loss
def test_several_labels_are_read_where_each_class_is_decided_and_refused_elsewhere(name, args, form, values):
    data, how = FORMS[form]
    call = how(SEVERAL[values](data()))
    decides = (SIGMOID, args) in CASES[name]
    if decides:
        test_the_value_is_that_of_the_definition(name, args | dict(use_sigmoid=True), form, values)
    if not decides or form == 'mmdet':
        with pytest.raises(ValueError, match=r'`target` should hold shares that add up to 1 over the 5 classes'):
            build(name, {key: args[key] for key in args if key != 'use_sigmoid'})(**call)


@pytest.mark.parametrize('values', VALUES)
@every_form
@every_loss
def test_the_value_is_that_of_the_definition(name, args, form, values):
    args = args_in(form, name, args)
    data, how = FORMS[form]
    call = how((VALUES | SEVERAL)[values](data()))
    value, gradient = value_and_gradient(build(name, args), call['pred'], **without_pred(call))
    read, expected = by_definition(name, args, call)
    assert math.isclose(value, expected, rel_tol=0, abs_tol=allowed(name, args, read, expected))
    assert value.shape == ()
    seen = torch.tensor(read.mass > 0)
    assert seen.any() or value == 0
    of_item = (gradient.flatten(2) if gradient.dim() > 2 else gradient.t().unsqueeze(0)).movedim(1, -1)
    assert of_item[seen].isfinite().all()
    if 'where it is ignored' not in values:  # The softmax of NaN has a gradient of NaN, as in cross-entropy.
        assert not of_item[~seen].any()


NO_NUMBERS = {
    'one NaN': fill(math.nan, (0, 0)),
    'all NaN': lambda x: x * math.nan,
    'one inf': fill(math.inf, (0, 0)),
    'one -inf': fill(-math.inf, (1, 0)),
    'all inf': lambda x: torch.full_like(x, math.inf),
    'all -inf': lambda x: torch.full_like(x, -math.inf),
}


@pytest.mark.parametrize('scores', NO_NUMBERS)
@every_form
@every_loss
def test_nan_and_infinity_give_nan_infinity_or_the_value_of_the_definition(name, args, form, scores):
    """Never a number that is not the definition's: where that is none, NaN or an infinity."""
    args = args_in(form, name, args)
    data, how = FORMS[form]
    call = how(pred(NO_NUMBERS[scores])(data()))
    value, _ = value_and_gradient(build(name, args), call['pred'], **without_pred(call))
    if 'NaN' in scores:
        assert value.isnan()
    elif value.isfinite():
        read, expected = by_definition(name, args, call)
        assert math.isclose(value, expected, rel_tol=0, abs_tol=allowed(name, args, read, expected))


def no_room(call):
    return torch.cat([call['target'], call['target'][:1]])


ERRORS = {
    'no tensor': ('pred', TypeError, changed(pred=lambda call: call['pred'].tolist())),
    'a NumPy array': ('pred', TypeError, changed(pred=lambda call: call['pred'].numpy())),
    'None': ('pred', TypeError, changed(pred=lambda call: None)),
    'integer scores': ('pred', TypeError, pred(lambda x: x.long())),
    'boolean scores': ('pred', TypeError, pred(lambda x: x > 0)),
    'complex scores': ('pred', TypeError, pred(lambda x: x + 0j)),
    'a single score': ('pred', ValueError, pred(lambda x: x.sum())),
    'scores without classes': ('pred', ValueError, pred(lambda x: x.flatten())),
    'labels that are no tensor': ('target', TypeError, changed(target=lambda call: call['target'].tolist())),
    'labels of None': ('target', TypeError, changed(target=lambda call: None)),
    'a single label': ('target', ValueError, target(lambda y: y.flatten()[0])),
    'labels between classes': ('target', ValueError, target(lambda y: y + 0.5)),
    'complex labels': ('target', TypeError, target(lambda y: y + 0j)),
    'too many labels': ('target', ValueError, changed(target=no_room)),
    'labels with two channels': ('target', ValueError, target(lambda y: torch.stack([y, y], 1))),
    'a label of -1': ('target', ValueError, target(lambda y: fill(-1, 0)(y))),
    'a label beyond the classes': ('target', ValueError, target(lambda y: fill(N_CLASSES + 1, 0)(y))),
    'a label beyond int8': ('target', ValueError, target(lambda y: fill(-1, 0)(y.to(torch.int8)))),
    'shares above 1': ('target', ValueError, target(lambda y: F.one_hot(y, N_CLASSES).movedim(-1, 1) * 1.5)),
    'shares below 0': ('target', ValueError, target(lambda y: F.one_hot(y, N_CLASSES).movedim(-1, 1) - 0.5)),
    'one weight for all': ('weight', ValueError, weight(lambda w: w.sum())),
    'too few weights': ('weight', ValueError, weight(lambda w: w[:1])),
    'weights with two channels': ('weight', ValueError, weight(lambda w: torch.stack([w, w], 1))),
    'weights that are no tensor': ('weight', TypeError, weight(lambda w: w.tolist())),
    'negative weights': ('weight', ValueError, weight(lambda w: -w)),
    'a name as ignored label': ('ignore_index', TypeError, changed(ignore_index=lambda call: 'void')),
    'half an ignored label': ('ignore_index', TypeError, changed(ignore_index=lambda call: 0.5)),
    'another reduction': ('reduction_override', ValueError, changed(reduction_override=lambda call: 'total')),
}


@pytest.mark.parametrize('mistake', ERRORS)
@every_form
@every_loss
def test_mistakes_are_named(name, args, form, mistake):
    data, how = FORMS[form]
    parameter, error, change = ERRORS[mistake]
    call = change(how(data()))
    with pytest.raises(error, match=f'`{parameter}`') as raised:
        build(name, args_in(form, name, args))(**call)
    assert any(each in str(raised.value) for each in shown(call[parameter])), raised.value


def shown(argument):
    """Return the facts about an argument, one of which an error has to show."""
    if not isinstance(argument, torch.Tensor):
        return [repr(argument), type(argument).__name__]
    ends = [argument.min().item(), argument.max().item()] if not argument.is_complex() else []
    return [str(tuple(argument.shape)), str(argument.dtype).removeprefix('torch.'), *map(str, ends)]


TOO_FEW = {'k': lambda k: k, 'class_weight': lambda weights: len(weights) - 1, 'classes': max}
"""How many classes are too few for a setting."""
SETTINGS = [
    (*case.values, setting)
    for case in EVERY
    for setting in TOO_FEW
    if not isinstance(case.values[1].get(setting), (str, type(None)))
]


@pytest.mark.parametrize(('name', 'args', 'setting'), SETTINGS)
def test_a_setting_for_more_classes_is_named(name, args, setting):
    n_classes = TOO_FEW[setting](args[setting])
    for shape in ((3,), (2, 2, 2)):
        scores, labels = torch.randn(shape[0], n_classes, *shape[1:]), torch.zeros(shape, dtype=torch.long)
        with pytest.raises(ValueError, match=f'`{setting}`'):
            build(name, args)(scores, labels)

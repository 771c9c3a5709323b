"""Each loss × each layout of a prediction × targets of any shape, type and values × modes: the reading, or an error.

The reading of a call, and whether it is refused, are from `reference.reading`; its value from `reference.definitions`.
`HARD_USE_CASES` sets the number of generated calls for each loss, and makes them others in each run.
"""

import os

import numpy as np
import pytest
import torch
from every_loss import build
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from layouts import LOSSES, REFUSALS, disagreement, scores
from reference.reading import MODES, RefusedError, read_layout

N_CASES = int(os.environ.get('HARD_USE_CASES', 300))
PREDICTIONS = {
    '[n]': (5,),
    '[N, 1]': (4, 1),
    '[N, 1, H, W]': (2, 1, 2, 3),
    '[N, 2]': (4, 2),
    '[N, 2, H, W]': (2, 2, 2, 3),
    '[N, C]': (5, 3),
    '[masks, points]': (3, 6),
    '[N, C, L]': (2, 3, 4),
    '[N, H, W]': (2, 4, 3),
    '[N, C, H, W]': (2, 3, 2, 4),
    '[N, C, D, H, W]': (2, 3, 1, 2, 2),
    '[N, H, W, 1]': (2, 3, 4, 1),
    'equal lengths': (3, 3, 3, 3),
}
TYPES = {
    'int64': torch.int64,
    'uint8': torch.uint8,
    'int16': torch.int16,
    'uint16': getattr(torch, 'uint16', torch.int32),
    'bool': torch.bool,
    'float': torch.float32,
    'double': torch.float64,
}


def shapes_of_target(shape):
    """Return the shape of the items, the same with a channel, that of the prediction, and one more; without doubles."""
    items = (shape[0], *shape[2:])
    return list(dict.fromkeys([items, (items[0], 1, *items[1:]), shape, (shape[0], 1, *shape[1:])]))


def wrong_shapes(shape):
    """Return shapes of targets that fit no prediction."""
    items = (shape[0], *shape[2:])
    return [(items[0] + 1, *items[1:]), (*items[:-1], items[-1] + 1)]


def labels(shape, n_classes, random):
    return random.integers(0, n_classes, shape)


def zero_or_one(shape, n_classes, random):
    return random.integers(0, 2, shape)


def zero_or_255(shape, n_classes, random):
    return np.where(np.arange(np.prod(shape)).reshape(shape) % 3, 0, 255)


def with_255(shape, n_classes, random):
    return np.where(random.random(shape) < 0.3, 255, random.integers(0, 2, shape))


def labels_and_255(shape, n_classes, random):
    return np.where(random.random(shape) < 0.3, 255, random.integers(0, n_classes, shape))


def labels_and_minus_100(shape, n_classes, random):
    return np.where(random.random(shape) < 0.3, -100, random.integers(0, n_classes, shape))


def with_background(shape, n_classes, random):
    return np.arange(np.prod(shape)).reshape(shape) % (n_classes + 1)


def one_hot(shape, n_classes, random):
    if len(shape) < 2:
        return zero_or_one(shape, n_classes, random)
    own = random.integers(0, shape[1], (shape[0], 1, *shape[2:]))
    return own == np.arange(shape[1]).reshape(-1, *[1] * (len(shape) - 2))


def shares(shape, n_classes, random):
    parts = random.random(shape) + 0.1
    return parts / parts.sum(1, keepdims=True) if len(shape) > 1 else parts / 2


def fractions(shape, n_classes, random):
    return random.random(shape)


def none(shape, n_classes, random):
    return np.zeros(shape)


def ones(shape, n_classes, random):
    return np.ones(shape)


def too_large(shape, n_classes, random):
    return random.random(shape) + 0.5


def not_a_number(shape, n_classes, random):
    return np.where(np.arange(np.prod(shape)).reshape(shape) == 0, np.nan, zero_or_one(shape, n_classes, random))


TARGETS = {
    labels: ('int64', 'uint8', 'int16', 'uint16', 'float'),
    with_background: ('int64', 'float'),
    zero_or_one: ('int64', 'uint8', 'bool', 'float'),  # several labels in the shape of the prediction
    one_hot: ('int64', 'bool', 'float'),
    zero_or_255: ('int64', 'uint8', 'float'),
    with_255: ('uint8', 'float'),
    labels_and_255: ('int64', 'uint16', 'float'),
    labels_and_minus_100: ('int64', 'int16', 'float'),
    shares: ('float', 'double'),
    fractions: ('float',),
    none: ('int64', 'float'),
    ones: ('int64',),
    too_large: ('float',),
    not_a_number: ('float',),
}
IGNORED = {
    zero_or_255: ('255', '-100', 'constructor: 255', 'constructor: -100'),
    with_255: ('-100',),
    labels_and_255: ('255', 'constructor: 255'),
    labels_and_minus_100: ('-100', 'constructor: -100', '-100 against 255'),
}


def with_ignored(args, how):
    """Return the arguments of the constructor and of the call."""
    if how is None:
        return args, {}
    if how.startswith('constructor'):
        return args | dict(ignore_index=int(how.split()[-1])), {}
    constructor = dict(ignore_index=255) if 'against' in how else {}
    return args | constructor, dict(ignore_index=int(how.split()[0]))


def in_mode(args, mode):
    return args if mode is None else args | dict(mode=mode)


def grid(name, args, shape):
    """Yield the arguments of the constructor and of the call, for each target."""
    n_classes = shape[1] if len(shape) > 1 else 1
    fit = [(target_shape, TARGETS) for target_shape in shapes_of_target(shape)]
    wrong = [(target_shape, (labels, one_hot)) for target_shape in wrong_shapes(shape)]
    for number, (target_shape, kinds) in enumerate(fit + wrong):
        for values in kinds:
            target = torch.tensor(values(target_shape, n_classes, np.random.default_rng(number)))
            for dtype in TARGETS[values]:
                call = dict(pred=scores(shape), target=target.to(TYPES[dtype]))
                for how in (None, *(IGNORED.get(values, ()) if dtype == TARGETS[values][0] else ())):
                    of_constructor, of_call = with_ignored(args, how)
                    yield of_constructor, call | of_call


def disagreements(name, args, shape, how=None):
    found = [disagreement(name, constructor, call | (how or {})) for constructor, call in grid(name, args, shape)]
    return '\n'.join(filter(None, found))


every_loss_and_mode = pytest.mark.parametrize(('loss', 'mode'), [(loss, mode) for loss in LOSSES for mode in MODES])


@pytest.mark.parametrize('prediction', PREDICTIONS)
@every_loss_and_mode
def test_a_call_is_read_as_specified_or_refused(loss, mode, prediction):
    name, args = LOSSES[loss]
    found = disagreements(name, in_mode(args, mode), PREDICTIONS[prediction])
    assert not found, found


@pytest.mark.parametrize('prediction', ['[n]', '[N, 1, H, W]', '[N, 2, H, W]', '[N, C]', '[N, C, L]', '[N, C, H, W]'])
@every_loss_and_mode
def test_what_is_refused_is_refused_on_other_devices_too(loss, mode, prediction, monkeypatch):
    """Its values are checked in the first call, by reading them or on the device."""
    monkeypatch.setattr('mmseg_nondecomp.functional._inputs.can_be_read', lambda *_: False)
    name, args = LOSSES[loss]
    found = []
    for constructor, call in grid(name, in_mode(args, mode), PREDICTIONS[prediction]):
        if is_refused(name, constructor, call):
            found.append(disagreement(name, constructor, call, (*REFUSALS, RuntimeError)))
    assert not any(found), '\n'.join(filter(None, found))


def is_refused(name, args, call):
    try:
        read_layout(name, args, **call)
    except RefusedError:
        return True
    return False


FORMS = {
    'weight': lambda of_items: dict(weight=weights(of_items)),
    'avg_factor of N': lambda of_items: dict(avg_factor=of_items[0]),
    'avg_factor': lambda of_items: dict(avg_factor=of_items[0] + 1.0),
    'weight and avg_factor of N': lambda of_items: dict(weight=weights(of_items), avg_factor=of_items[0]),
}


def weights(of_items):
    return torch.arange(np.prod(of_items)).remainder(3).clamp(max=1).float().view(of_items)


@pytest.mark.parametrize('prediction', ['[n]', '[N, 1]', '[N, 2]', '[N, C]'])
@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('loss', LOSSES)
def test_weights_and_averages_of_detection_and_classification(loss, form, prediction):
    name, args = LOSSES[loss]
    shape = PREDICTIONS[prediction]
    found = disagreements(name, args, shape, FORMS[form]((shape[0], *shape[2:])))
    assert not found, found


def test_255_is_a_class_where_there_are_so_many():
    for name, args in LOSSES.values():
        for n_classes in (255, 256):
            call = dict(pred=scores((2, n_classes)), target=torch.tensor([3, 255]))
            assert not (found := disagreement(name, args, call)), found


@st.composite
def calls(draw, args):
    """Draw a call of any layout, with small lengths that are often equal."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=5)))
    assume(np.prod(shape) <= 48)
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    target_shape = draw(st.sampled_from(shapes_of_target(shape) + wrong_shapes(shape)))
    values = draw(st.sampled_from(list(TARGETS)))
    target = torch.tensor(values(target_shape, shape[1] if len(shape) > 1 else 1, random))
    dtype = draw(st.sampled_from(['int64', *TYPES]))
    ignored = draw(st.sampled_from([None, None, None, '255', '-100', 'constructor: 255', '-100 against 255']))
    constructor, of_call = with_ignored(args, ignored)
    call = dict(pred=scores(shape, draw(st.integers(0, 9))), target=target.to(TYPES[dtype])) | of_call
    if draw(st.integers(0, 2)) == 0:
        weight_shape = draw(st.sampled_from(shapes_of_target(shape)))
        call['weight'] = torch.tensor(random.integers(0, 2, weight_shape)).float()
    if len(shape) == 2 and draw(st.booleans()):
        call['avg_factor'] = draw(st.sampled_from([shape[0], float(shape[0]), 7, 0.5]))
    return in_mode(constructor, draw(st.sampled_from([None, *MODES]))), call


@pytest.mark.parametrize('loss', LOSSES)
def test_generated_calls_are_read_as_specified_or_refused(loss):
    name, args = LOSSES[loss]

    @settings(max_examples=N_CASES, deadline=None, derandomize='HARD_USE_CASES' not in os.environ, database=None)
    @given(calls(args))
    def check(given_call):
        found = disagreement(name, *given_call)
        assert not found, found

    check()


COMPILED = {
    'class index': ((2, 3, 2, 4), (2, 2, 4), labels, 'int64'),
    'class index with a channel': ((2, 3, 2, 4), (2, 1, 2, 4), labels_and_255, 'int64'),
    'no channel': ((2, 3, 4), (2, 1, 3, 4), zero_or_one, 'uint8'),
    'fractions of one channel': ((2, 1, 3, 4), (2, 1, 3, 4), fractions, 'float'),
    'one-hot': ((2, 3, 2, 4), (2, 3, 2, 4), one_hot, 'int64'),
}


@pytest.mark.parametrize('layout', COMPILED)
@pytest.mark.parametrize(
    'loss', ['LossMaxPooling', 'LovaszHingeLoss', 'SoftIoULoss', 'DirectZeroOneLoss', 'HardTopKLoss']
)
def test_a_compiled_loss_reads_the_same(loss, layout):
    shape, target_shape, values, dtype = COMPILED[layout]
    target = torch.tensor(values(target_shape, 3, np.random.default_rng(0))).to(TYPES[dtype])
    call = dict(pred=scores(shape), target=target)
    name, args = LOSSES[loss]
    torch._dynamo.reset()
    compiled = torch.compile(build(name, args), backend='eager', fullgraph=True)
    if is_refused(name, args, call):
        with pytest.raises((*REFUSALS, RuntimeError)):
            compiled(**call)
    else:
        torch.testing.assert_close(compiled(**call), build(name, args)(**call))

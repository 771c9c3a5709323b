"""Each loss is its definition on thousands of small calls that hypothesis makes up.

Calls have 0 to 3 images or 0 to 8 boxes, 1 to 6 classes, scores with ties, from 1e-3 to 1e4 in size, in any
floating-point type; labels in any integer type, or shares; ignored items, items of weight 0, and some that count more.
`HARD_USE_CASES` sets how many there are for each entry of `every_loss.CASES`, and makes them others in each run.
"""

import math
import os

import numpy as np
import torch
from every_loss import build, every_loss
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from reference import definitions
from reference.definitions import allowed

N_CASES = int(os.environ.get('HARD_USE_CASES', 600))
FLOATS = [torch.float64, torch.float64, torch.float32, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.uint8, torch.int32, torch.int16, torch.int8]
SCORES = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 1e-3]),
    st.floats(-8, 8, width=16),
    st.sampled_from([20.0, -20.0, 30.0, -30.0, 1e4, -1e4]),
)


@st.composite
def calls(draw, name, args):
    """Draw the arguments of a call that fit a loss."""
    n_classes = draw(st.integers(*classes_of(args)))
    shape = draw(
        st.one_of(st.tuples(st.integers(0, 8)), st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3)))
    )
    if args.get('update') in ('hinge', 'perceptron') and name == 'DirectAPLoss':  # All rankings are enumerated.
        shape = (shape[0], *(min(length, 2) for length in shape[1:]))
    full = (shape[0], n_classes, *shape[1:])
    pred = torch.tensor(draw(arrays(np.float64, full, elements=SCORES, fill=st.nothing())))
    call = dict(pred=pred.to(draw(st.sampled_from(FLOATS))))
    if draw(st.integers(0, 4)) == 0 and n_classes > 1:
        share = [0.0, 1.0] if name.startswith('Direct') else [0.0, 0.0, 1.0, 0.25, 0.75]
        shares = torch.tensor(draw(arrays(np.float32, full, elements=st.sampled_from(share), fill=st.nothing())))
        if not (decides_each_class(name, args) and args.get('use_sigmoid')):
            own = shares.argmax(1, keepdim=True)  # a quarter of the next class
            quarter = 0.0 if name.startswith('Direct') else 0.25
            shares = torch.zeros_like(shares).scatter_(1, own, 1 - quarter)
            shares = shares.scatter_add_(1, (own + 1) % n_classes, torch.full_like(shares[:, :1], quarter))
        call['target'] = shares
    else:
        call |= draw(labels(shape, n_labels(name, args, n_classes), n_classes <= 2))
    weights = [0.0, 1.0] if name.startswith('Direct') else [0.0, 1.0, 0.5, 3.0]
    if draw(st.booleans()):
        call['weight'] = torch.tensor(draw(arrays(np.float32, shape, elements=st.sampled_from(weights))))
    return call


@st.composite
def labels(draw, shape, number, of_masks):
    """Draw labels of a type that can hold them, some of them ignored."""
    dtype = draw(st.sampled_from(INTEGERS))
    ignored = draw(st.sampled_from([None, 100, -1]))
    if ignored == -1 and dtype == torch.uint8:
        ignored = 100
    if ignored is None and dtype == torch.int8:
        ignored = -1
    if ignored is None and of_masks:  # a mask of 0 and 255 alone is in doubt
        ignored = -1 if dtype != torch.uint8 else 100
    kinds = st.one_of(st.integers(0, number - 1), st.just(255 if ignored is None else ignored))
    target = torch.tensor(draw(arrays(np.int64, shape, elements=kinds, fill=st.nothing()))).to(dtype)
    return dict(target=target) | ({} if ignored is None else dict(ignore_index=ignored))


def classes_of(args):
    """Return the least and the largest number of classes for the arguments."""
    if 'class_weight' in args:
        return 5, 5
    return max(1, args.get('k', 0) + 1, max(args.get('classes', [0]), default=0) + 1 if 'classes' in args else 1), 6


def n_labels(name, args, n_classes):
    """Return the number of valid labels. Independent classes have one more, the background."""
    if name in ('LovaszHingeLoss', 'SMeasureLoss') and n_classes == 2:
        return 2
    if name in ('SmoothTopKLoss', 'HardTopKLoss'):
        return n_classes
    return n_classes + 1 if decides_each_class(name, args) or n_classes == 1 else n_classes


def decides_each_class(name, args):
    if name in ('LovaszSoftmaxLoss', 'SoftIoULoss'):
        return bool(args.get('use_sigmoid'))
    if name == 'LossMaxPooling':
        return args.get('pixel_loss', 'cross_entropy') != 'cross_entropy'
    return 'TopK' not in name


@every_loss
def test_is_its_definition(name, args):
    @settings(max_examples=N_CASES, deadline=None, derandomize='HARD_USE_CASES' not in os.environ, database=None)
    @given(calls(name, args))
    def check(given_call):
        kwargs = dict(given_call)
        pred = kwargs.pop('pred').requires_grad_()
        value = build(name, args)(pred, **kwargs)
        (gradient,) = torch.autograd.grad(value, pred)

        call = definitions.read(pred, **kwargs)
        expected = definitions.value(name, args, call)
        assert math.isclose(value, expected, rel_tol=0, abs_tol=allowed(name, args, call, expected))
        assert gradient.isfinite().all()
        assert gradient.dtype == pred.dtype
        removed = torch.tensor(call.mass == 0)
        of_item = gradient.flatten(2) if pred.dim() > 2 else gradient.t().unsqueeze(0)
        assert not of_item.movedim(1, -1)[removed].any()

    check()

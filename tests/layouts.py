"""Calls of losses in every layout of predictions and targets, and their comparison with `reference.reading`."""

import math

import torch
from every_loss import CASES, build
from reference import definitions, reading
from reference.reading import TOP_K, RefusedError, read_layout

LOSSES = {name: (name, cases[0][1]) for name, cases in CASES.items()} | {
    'LovaszSoftmaxLoss': ('LovaszSoftmaxLoss', dict(bins=None)),
    'LovaszHingeLoss': ('LovaszHingeLoss', dict(bins=None)),
    'LovaszSoftmaxLoss with a sigmoid': ('LovaszSoftmaxLoss', dict(bins=None, use_sigmoid=True)),
    'SoftIoULoss with a sigmoid': ('SoftIoULoss', dict(use_sigmoid=True)),
    'LossMaxPooling of bce': ('LossMaxPooling', dict(pixel_loss='bce')),
    'DirectAPLoss': ('DirectAPLoss', dict()),
    'DirectAPLoss with use_sigmoid': ('DirectAPLoss', dict(use_sigmoid=True)),
    'DirectZeroOneLoss': ('DirectZeroOneLoss', dict(epsilon=4.0)),
}
"""The first case of each loss, exact where histograms would hide a difference, and those that read differently."""
REFUSALS = (ValueError, TypeError)


def scores(shape, seed=0):
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def disagreement(name, args, call, refusals=REFUSALS):
    """Return how a loss differs from the reading of its call; None if it does not."""
    if name in TOP_K and call['target'].isnan().any():
        return None  # the loss of an item is NaN, as tests/functional/topk/test_losses.py shows
    try:
        expected = read_layout(name, args, **call)
    except RefusedError as refused:
        expected = refused
    try:
        found = build(name, args)(**call).item()
    except refusals as error:
        found = error
    except Exception as error:  # the report shows the call with it
        return f'{shown(name, args, call)} raises {error!r}'
    if isinstance(expected, reading.Reading):
        value, allowed = value_of(name, expected)
        if isinstance(found, Exception) or not math.isclose(found, value, rel_tol=0, abs_tol=allowed):
            return f'{shown(name, args, call)}: {found!r}, not {value} ({expected.kind})'
    elif not isinstance(found, Exception):
        return f'{shown(name, args, call)}: {found}, not refused'
    elif isinstance(found, REFUSALS) and not all(part in str(found) for part in expected.args):
        return f'{shown(name, args, call)}: {found!r} does not name {expected.args}'
    return None


def value_of(name, read):
    """Return the value of the definition and its tolerance. Many calls share a reading."""
    of_call = (part.numpy().tobytes() for part in (read.pred, read.target, read.weight))
    key = (name, str(read.args), tuple(read.pred.shape), read.zero_is_class, str(read.target.dtype), *of_call)
    if key not in VALUES:
        call = read.call()
        value = definitions.value(name, read.args, call)
        VALUES[key] = value, definitions.allowed(name, read.args, call, value)
    return VALUES[key]


VALUES = {}


def shown(name, args, call):
    """Return a call as code."""
    pred = f'scores({tuple(call["pred"].shape)})'
    parts = [pred, *(f'{key}={of(value)}' for key, value in call.items() if key != 'pred')]
    return f'{name}({", ".join(f"{key}={value!r}" for key, value in args.items())})({", ".join(parts)})'


def of(value):
    return f'torch.tensor({value.tolist()}, dtype={value.dtype})' if isinstance(value, torch.Tensor) else repr(value)

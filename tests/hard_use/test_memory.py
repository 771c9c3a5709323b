"""10 000 iterations of a loss leave as much memory in use as 2 000 do; with `pytest -s` the figures are printed.

Batches change their size and what they ignore, as crops and boxes do. An allocator takes and gives back some MiB at any
time, but what leaks does so in each 2 000 iterations.
"""

import ctypes
import gc
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from calls import step_after_training_batch
from every_loss import CASES, N_CLASSES, build

STEP, LAST = 2_000, 10_000
LOSSES = [(name, cases[0][1]) for name, cases in CASES.items()] + [
    ('LovaszSoftmaxLoss', dict(memory=3)),
    ('SMeasureLoss', dict(per_example=True)),
    ('DirectAPLoss', dict(mode='negative')),
]


class InUse(NamedTuple):
    kib: int
    """Of resident memory."""
    tensors: int
    objects: int


def in_use():
    gc.collect()
    if sys.platform == 'linux':
        ctypes.CDLL(None).malloc_trim(0)
    tracked = gc.get_objects()
    pages = int(Path('/proc/self/statm').read_text().split()[1])
    return InUse(pages * 4, sum(isinstance(each, torch.Tensor) for each in tracked), len(tracked))


def batches():
    generator = torch.Generator().manual_seed(0)
    for n in range(1, 9):
        labels = torch.randint(0, N_CLASSES, (4 * n,), generator=generator)
        labels[: n // 2] = 255
        yield torch.randn(4 * n, N_CLASSES, generator=generator), labels


def growth(name, args):
    """Return the memory in use after each 2 000 iterations."""
    loss, calls, found = build(name, args), list(batches()), []
    for iteration in range(1, LAST + 1):
        scores, labels = calls[iteration % len(calls)]
        scores = scores.clone().requires_grad_()
        ids = dict(ids=torch.arange(len(labels))) if args.get('per_example') else {}
        loss(scores, labels, **ids).backward()
        step_after_training_batch(loss)
        if iteration % STEP == 0:
            found.append(in_use())
    return found


@pytest.mark.skipif(sys.platform != 'linux', reason='reads /proc')
@pytest.mark.parametrize(('name', 'args'), LOSSES)
def test_memory_does_not_grow(name, args):
    found = growth(name, args)
    more = [later - earlier for earlier, later in zip(found[0], found[-1], strict=True)]
    kib = [later.kib - earlier.kib for earlier, later in pairwise(found)]
    print(f'{name} {args}: {more[0]:+} KiB ({kib}), {more[1]:+} tensors, {more[2]:+} objects')
    assert min(kib) < 64  # 32 bytes in each iteration
    assert more[0] < 16 * 1024
    assert more[1] == 0
    assert more[2] < 100  # one in eighty iterations would be 100

"""Losses are deterministic on a CPU with PyTorch's switch, and the documentation says which raise an error on CUDA."""

import needs_openmmlab  # noqa: F401  isort: skip

import json
import re
from pathlib import Path

import pytest
import torch
from benchmarks.determinism import listed, with_determinism, without_determinism
from benchmarks.operations import operations
from calls import step_after_training_batch
from every_loss import N_CLASSES, build, every_loss, every_loss_but

ROOT = Path(__file__).parents[2]


@pytest.fixture
def _deterministic():
    """Deterministic algorithms on several threads, and memory without a value filled with NaN."""
    threads = torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(4)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)


def steps_of(loss, side, n=3):
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(n):
        logits = torch.randn(2, N_CLASSES, side, side, generator=generator).mul(3).requires_grad_()
        labels = torch.randint(0, N_CLASSES, (2, side, side), generator=generator)
        labels[:, : side // 8] = 255
        value = loss(logits, labels)
        value.backward()
        step_after_training_batch(loss)
        found += [value.detach(), logits.grad]
    return found


@pytest.mark.usefixtures('_deterministic')
@every_loss
def test_every_loss_is_the_same_twice(name, args):
    side = 40 if name == 'DirectAPLoss' else 160  # which is enough for several threads
    once, again = (steps_of(build(name, args), side) for _ in range(2))
    assert all(part.isfinite().all() for part in once)
    assert all(map(torch.equal, once, again))


def on_cuda(step):
    """Return the operators of a step that are deterministic on request, and those that raise an error."""
    found = operations(step, answer=0).found
    return with_determinism(found), without_determinism(found)


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, device='meta', dtype=dtype)


@pytest.mark.parametrize(
    ('step', 'expected'),
    [
        (lambda: meta(5).cumsum(0), ([], ['cumsum'])),
        (lambda: meta(5, dtype=torch.long).cumsum(0), ([], [])),
        (lambda: meta(5).scatter_add_(0, meta(3, dtype=torch.long), meta(3)), (['scatter_add'], [])),
        (lambda: meta(5).scatter_(0, meta(3, dtype=torch.long), meta(3)), (['scatter'], [])),
        (lambda: meta(5).scatter_(0, meta(3, dtype=torch.long), 1.0), ([], [])),
        (lambda: meta(5).scatter_reduce(0, meta(3, dtype=torch.long), meta(3), 'sum'), (['scatter_reduce'], [])),
        (lambda: meta(5).scatter_reduce(0, meta(3, dtype=torch.long), meta(3), 'prod'), ([], ['scatter_reduce'])),
        (lambda: meta(5).scatter_reduce(0, meta(3, dtype=torch.long), meta(3), 'amax'), ([], [])),
        (lambda: meta(5).index_add(0, meta(3, dtype=torch.long), meta(3)), (['index_add'], [])),
        (lambda: meta(5, dtype=torch.long).bincount(minlength=3), ([], [])),
        (lambda: meta(5, dtype=torch.long).bincount(meta(5), minlength=3), ([], ['bincount'])),
        (
            lambda: torch.nn.functional.cross_entropy(meta(2, 5, 4, 4), meta(2, 4, 4, dtype=torch.long)),
            ([], ['nll_loss2d']),
        ),
        (lambda: meta(5).gather(0, meta(3, dtype=torch.long)), ([], [])),
        (lambda: meta(5).requires_grad_().gather(0, meta(3, dtype=torch.long)).sum().backward(), (['scatter_add'], [])),
        (lambda: meta(5).sort().values.sum(), ([], [])),
    ],
)
def test_operators_are_classified_by_the_lists_of_torch(step, expected):
    assert on_cuda(step) == expected


def test_the_lists_of_torch_are_read():
    on_request, raising = listed()
    assert {'scatteradd', 'indexadd', 'gather', 'indexput'} <= on_request.keys()
    assert {'cumsum', 'nllloss', 'histc', 'bincount', 'median'} <= raising.keys()


@every_loss_but('DirectAPLoss')
def test_the_documentation_names_the_operators_of_each_setting(name, args):
    """The table of docs/distributed.md, which is filled from these rows."""
    rows = json.loads((ROOT / 'benchmarks' / 'launches.json').read_text())['table']
    rows = [row for row in rows if re.split(r'[ ,]', row['candidate'])[0] == name]
    logits, labels = meta(2, N_CLASSES, 64, 64).requires_grad_(), meta(2, 64, 64, dtype=torch.long)
    found = on_cuda(lambda: build(name, args).to('meta')(logits, labels).backward())
    for names, column in zip(found, ('deterministic on request', 'raise an error'), strict=True):
        assert set(names) <= {operator for row in rows for operator in row[column].split(', ')}

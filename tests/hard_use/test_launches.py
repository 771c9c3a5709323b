"""The number of operations of a loss does not depend on the batch, the pixels and the classes, and has a limit.

They are counted as ``tools/benchmark.py launches`` counts them.
"""

import needs_openmmlab  # noqa: F401  isort: skip

import json
import re
import sys
from functools import partial
from pathlib import Path

import benchmark
import pytest
import torch
from benchmarks.operations import operations
from every_loss import CASES, N_CLASSES, WRAPPERS, build
from torchmetrics import Metric

from benchmarks import launches
from mmseg_nondecomp import losses, metrics

ROOT = Path(__file__).parents[2]
PIXELS = {
    'a few pixels': (2, N_CLASSES, 16, 16),
    'more images': (32, N_CLASSES, 16, 16),
    'more pixels': (2, N_CLASSES, 1024, 1024),
    'all more': (32, N_CLASSES, 256, 256),
}
MORE_CLASSES = {'19 classes': (2, 19, 256, 256), '150 classes': (8, 150, 128, 128)}
DEPEND_ON_VALUES = {
    'DirectAPLoss': 'its ranking is a search that ends when it has found the best one',
    'LovaszHingeLoss, proximal = 1': 'its iteration ends when it has converged',
}
LIMITS = {
    'LossMaxPooling': (130, 18),
    'LovaszSoftmaxLoss': (100, 56),
    'LovaszHingeLoss': (100, 56),
    'SoftIoULoss': (60, 16),
    'SMeasureLoss': (130, 32),
    'DirectZeroOneLoss': (70, 45),
    'SmoothTopKLoss, k = 2': (140, 90),
    'HardTopKLoss, k = 2': (50, 22),
}
"""Operations, and bytes as multiples of those of the logits, for 2 images of 19 x 512² and 32 images of 19 x 256²."""
MORE = {
    'LovaszSoftmaxLoss': [dict(memory=2), dict(bins=128)],
    'LovaszHingeLoss': [dict(memory=2)],
    'SMeasureLoss': [dict(measure='auc_pr', anchors=2), dict(surrogate='hinge')],
    'SmoothTopKLoss': [dict(k=2, tau=0.1)],
}
"""Settings beside those of every suite. `per_example` of SMeasureLoss is left out: it keeps examples on the host."""
SETTINGS = [
    pytest.param(name, args, id=f'{name} {args}')
    for name, cases in CASES.items()
    if name not in DEPEND_ON_VALUES
    for args in [*(args for _, args in cases), *MORE.get(name, [])]
]


def fits(args, n_classes):
    if 'class_weight' not in args:
        return args
    return args | dict(class_weight=[1.0 + i % N_CLASSES for i in range(n_classes)])


def counted(loss, shape):
    return launches.of_loss(loss, *launches.labelled(torch.empty(shape, device='meta')))


@pytest.mark.parametrize(('name', 'args'), SETTINGS)
def test_does_not_depend_on_batch_pixels_and_classes(name, args):
    counts = {
        size: counted(build(name, fits(args, shape[1])), shape).operations
        for size, shape in (PIXELS | MORE_CLASSES).items()
    }
    assert len(set(counts.values())) == 1, counts


def call(kind, shape):
    logits = torch.empty(shape, device='meta', dtype=torch.float16 if kind == 'half precision' else torch.float32)
    labels = torch.empty_like(logits[:, 0], dtype=torch.long)
    weight = torch.empty(labels.shape, device='meta')
    return {
        'weights': (logits, labels, dict(weight=weight, ignore_index=3)),
        'shares': (logits, torch.empty_like(logits), dict(weight=weight)),
        'half precision': (logits, labels, {}),
    }[kind]


@pytest.mark.parametrize('kind', ['weights', 'shares', 'half precision'])
@pytest.mark.parametrize(('name', 'args'), SETTINGS)
def test_does_not_depend_on_batch_and_pixels_however_it_is_called(name, args, kind):
    def step(loss, logits, labels, how):
        loss(logits.requires_grad_(), labels, **how).backward()

    counts = []
    for shape in (PIXELS['a few pixels'], PIXELS['all more']):
        once = partial(step, build(name, args).to('meta'), *call(kind, shape))
        counts.append(operations(once).number)
    assert counts[0] == counts[1]


@pytest.mark.parametrize('name', ['SmoothTopKLoss', 'HardTopKLoss'])
@pytest.mark.parametrize('k', [1, 2, 5, 20])
def test_does_not_depend_on_the_number_of_labels(name, k):
    # Of 100 labels there are few enough sets of 20 to be added up in float32; beyond, types are converted.
    numbers = (1000, 10_000, 100_000) if k == 20 else (100, 1000, 10_000)
    counts = {n: counted(build(name, dict(k=k)), (256, n)).operations for n in numbers}
    assert len(set(counts.values())) == 1, counts


@pytest.mark.parametrize(('n', 'side'), [(2, 512), (32, 256)])
@pytest.mark.parametrize('name', LIMITS)
def test_operations_and_bytes_have_a_limit(name, n, side):
    operations, multiple = LIMITS[name]
    found = launches.of_loss(launches.LOSSES[name](), *launches.pixels(n, side))
    assert found.operations <= operations
    assert found.bytes <= multiple


@pytest.mark.parametrize('n', [100, 1000, 10_000])
def test_operations_and_bytes_have_a_limit_for_many_labels(n):
    found = counted(build('SmoothTopKLoss', dict(k=5)), (256, n))
    assert found.operations <= 120
    assert found.bytes <= 125


def test_only_kernel_launches_are_counted():
    """No views, no allocations, nothing on the host, and an expanded tensor once."""
    x, row = torch.empty(4, 6, device='meta'), torch.empty(6, device='meta')

    def step():
        y = x.view(2, 12).transpose(0, 1).reshape(4, 6)  # a copy
        torch.zeros(3) + 1  # on the host
        z = torch.empty_like(y).copy_(row.expand(4, 6))
        z.add_(y)

    counts = operations(step)
    assert {each.name for each in counts.found} == {'clone', 'copy_', 'add_'}
    assert counts.number == 3
    assert counts.bytes == 4 * ((24 + 24) + (24 + 6 + 24) + (24 + 24 + 24))
    assert counts.reads == 0


@pytest.mark.parametrize(
    'read',
    [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).any()),
        lambda x: x.cpu(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.long().bincount(minlength=3),
        lambda x: x.unique(),
        lambda x: torch.equal(x, x + 1),
    ],
)
def test_reads_from_the_device_are_counted_with_an_answer_and_raise_without(read):
    x = torch.empty(5, device='meta')
    assert operations(lambda: read(x), answer=0).reads == 1
    with pytest.raises(RuntimeError):
        operations(lambda: read(x))


def test_values_that_are_read_back_are_the_answer():
    found = []
    operations(lambda: found.append(torch.empty(5, device='meta').sum().item()), answer=7)
    operations(lambda: found.extend(torch.empty(2, device='meta').cpu().tolist()), answer=7)
    assert found == [7, 7, 7]


@pytest.fixture(scope='module')
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp('launches')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, 'argv', ['benchmark.py', 'launches', '--out', str(folder)])
        benchmark.main()
    assert [path.name for path in folder.iterdir()] == ['launches.json']
    return json.loads((folder / 'launches.json').read_text())


def names(report, measured):
    return {re.split(r'[ ,]', row['candidate'])[0] for row in report['table'] if row['measured'].startswith(measured)}


def test_every_loss_metric_and_hook_that_measures_is_in_the_table(report):
    of_torchmetrics = {'MulticlassJaccardIndex'}
    assert {name for name in names(report, 'loss') if hasattr(losses, name)} == set(losses.__all__) - WRAPPERS
    assert names(report, 'update of a metric') == set(metrics.__all__) | of_torchmetrics
    assert all(issubclass(getattr(metrics, name), Metric) for name in metrics.__all__)
    assert names(report, 'hook') == {'TrainIoUHook', 'TrainMetricsHook'}
    unknown = {row['candidate'] for row in report['table'] if row['operations'] == launches.UNKNOWN}
    assert unknown & launches.LOSSES.keys() == DEPEND_ON_VALUES.keys()


def test_the_table_of_the_repository_is_that_of_the_code(report):
    """Peers may not be installed here."""
    kept = json.loads((ROOT / 'benchmarks' / 'launches.json').read_text())
    assert not kept['metadata']['quick']
    found = {(row['measured'], row['candidate']): row for row in kept['table']}
    for row in report['table']:
        same = found[row['measured'], row['candidate']]
        if kept['metadata']['torch'] != torch.__version__:  # the lists of deterministic operations are those of torch
            row, same = ({name: of[name] for name in ('operations', 'bytes / logits')} for of in (row, same))
        assert same == row

"""What every metric promises: the checks of `metric_tester` over all of them, and what they share besides."""

import re

import pytest
import torch
from metric_tester import CHECKS, Case, assert_same, check_found, find_of_cases, union
from processes import find_as_a_process, found_by_ranks
from torchmetrics import BootStrapper, ClasswiseWrapper, Metric, MetricCollection, MetricTracker

from mmseg_nondecomp import metrics
from mmseg_nondecomp.metrics import functional

N_CLASSES = 4
ARGUMENTS = {
    'DirectAveragePrecision': [dict(), dict(mode='negative', epsilon=1.0), dict(bins=4096)],
    'LovaszJaccardIndex': [dict(), dict(average=None, bins=64), dict(classes='present'), dict(classes=[0, 2])],
    'SoftJaccardIndex': [dict(), dict(average=None), dict(classes='all')],
    'JaccardIndexByImage': [dict(), dict(worst=0.5), dict(zero_division=1)],
    'SmoothTopKAccuracy': [dict(k=2), dict(k=1, tau=0.1)],
}


def function_of(name):
    return re.sub(r'(?<=[a-z])(?=[A-Z])', '_', name.replace('TopK', 'Topk')).lower()


def batches(dtype=torch.float32):
    """Batches of two images, the first without the last class, some pixels ignored."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for i in range(4):
        preds = torch.randn(2, N_CLASSES, 7, 9, generator=generator, dtype=torch.float64).mul(2).softmax(1).to(dtype)
        target = torch.randint(0, N_CLASSES - (i == 0), (2, 7, 9), generator=generator)
        target[:, :2] = 255
        found.append((preds, target))
    return found


def case_of(name, arguments):
    return Case(
        metric=getattr(metrics, name),
        function=getattr(functional, function_of(name)),
        arguments=dict(num_classes=N_CLASSES) | arguments,
        batches=batches,
        ignored=255,
        another_label=N_CLASSES - 1,
        of_batch=('batch',) if name == 'JaccardIndexByImage' else (),
        gradient_is_of_value=name != 'DirectAveragePrecision',
        always_float32=name == 'JaccardIndexByImage' or (name == 'DirectAveragePrecision' and 'bins' in arguments),
    )


CASES = [case_of(name, arguments) for name, several in ARGUMENTS.items() for arguments in several]
every_case = pytest.mark.parametrize('case', CASES, ids=str)


def test_every_metric_has_a_case_and_a_function():
    assert set(ARGUMENTS) == set(metrics.__all__)
    assert {function_of(name) for name in ARGUMENTS} == set(functional.__all__)
    assert all(issubclass(getattr(metrics, name), Metric) for name in ARGUMENTS)


@pytest.mark.parametrize('check', CHECKS)
@every_case
def test_promise(case, check):
    CHECKS[check](case)


@pytest.mark.parametrize(
    'case',
    [case for case in CASES if case.metric.__name__ not in ('SmoothTopKAccuracy', 'DirectAveragePrecision')],
    ids=str,
)
def test_logits_and_decided_classes_are_accepted(case):
    preds, target = batches()[0]
    assert_same(case.build()(preds.log() + 5, target), case.build()(preds, target), rtol=1e-5, atol=1e-6)
    one_hot = torch.nn.functional.one_hot(preds.argmax(1), N_CLASSES).movedim(-1, 1).float()
    assert_same(case.build()(preds.argmax(1), target), case.build()(one_hot, target))


def key(case):
    return str(case).replace('.', ',')


def test_in_a_collection_metrics_of_one_state_share_it():
    cases = {key(case): case for case in CASES}
    collection = MetricCollection({name: case.build() for name, case in cases.items()})
    for batch in batches():
        collection.update(*batch)
    shared = {tuple(sorted(group)) for group in collection.compute_groups.values()}
    lovasz = tuple(sorted(name for name, case in cases.items() if 'Lovasz' in name and 'bins' not in case.arguments))
    assert lovasz in shared
    assert len(shared) == 9  # AP and its histogram, two Lovász, soft, two by image, two top-k
    for name, metric in collection.items(keep_base=True):
        assert_same(metric.compute(), cases[name].seen(batches()).compute())


def test_in_wrappers():
    each = ClasswiseWrapper(metrics.SoftJaccardIndex(N_CLASSES, average=None), labels=list('abcd'))
    found = each(*batches()[1])
    expected = functional.soft_jaccard_index(*batches()[1], N_CLASSES, average=None)
    assert_same(torch.stack([found[f'softjaccardindex_{label}'] for label in 'abcd']), expected)
    tracker = MetricTracker(metrics.SoftJaccardIndex(N_CLASSES))
    for batch in batches():
        tracker.increment()
        tracker.update(*batch)
    best, step = tracker.best_metric(return_step=True)
    assert best == tracker.compute_all()[step] == tracker.compute_all().max()
    bootstrapped = BootStrapper(metrics.LovaszJaccardIndex(N_CLASSES), num_bootstraps=3)
    torch.manual_seed(0)
    bootstrapped.update(*union(batches()))
    assert 0 < bootstrapped.compute()['std'] < 0.5


BAD_CALLS = [
    ('preds', lambda p, t: (p[:, :2], t), ValueError, r'\(2, 2, 7, 9\)'),
    ('target', lambda p, t: (p, t[:1]), ValueError, r'\(1, 7, 9\)'),
    ('target', lambda p, t: (p, (t + 1).clamp(max=N_CLASSES)), ValueError, str(N_CLASSES)),
]
BAD_ARGUMENTS = [
    ('num_classes', 0, ValueError),
    ('num_classes', 2.5, TypeError),
    ('ignore_index', 'void', TypeError),
]


@pytest.mark.parametrize(('parameter', 'change', 'error', 'found'), BAD_CALLS)
@every_case
def test_bad_calls_are_named(case, parameter, change, error, found):
    for call in (case.build().update, case.value_of):
        with pytest.raises(error, match=f'`{parameter}`.*{found}'):
            call(*change(*batches()[1]))


@pytest.mark.parametrize(('parameter', 'value', 'error'), BAD_ARGUMENTS)
@every_case
def test_bad_arguments_are_named(case, parameter, value, error):
    arguments = case.arguments | {parameter: value}
    for call in (case.metric, lambda **arguments: case.function(*batches()[0], **arguments)):
        with pytest.raises(error, match=f'`{parameter}`.*{value!r}'):
            call(**arguments)


@pytest.fixture(scope='module')
def found_by_processes(tmp_path_factory):
    return found_by_ranks(__file__, tmp_path_factory.mktemp('metrics'))


@every_case
def test_two_processes_find_what_one_finds(found_by_processes, case):
    check_found(case, [found[str(case)] for found in found_by_processes])


def test_the_values_are_no_constants():
    values = [metrics.LovaszJaccardIndex(N_CLASSES)(*batch).item() for batch in batches()]
    assert len(set(values)) == len(values)
    assert not any(value != value for value in values)


if __name__ == '__main__':
    find_as_a_process(lambda rank: find_of_cases(CASES, rank))

"""What every metric promises: the checks that torchmetrics runs on its own."""

import copy
import math
import pickle

import matplotlib as mpl
import pytest
import torch
from torchmetrics import Metric, MetricCollection
from two_processes import find_as_a_process, found_by_two_processes

from mmseg_nondecomp import metrics

N_CLASSES = 4
CASES = {
    'DirectAveragePrecision': [dict(), dict(mode='negative', epsilon=1.0), dict(bins=4096)],
    'LovaszJaccardIndex': [dict(), dict(average=None, bins=64), dict(classes='present'), dict(classes=[0, 2])],
    'SoftJaccardIndex': [dict(), dict(average=None), dict(classes='all')],
    'JaccardIndexByImage': [dict(), dict(worst=0.5)],
    'SmoothTopKAccuracy': [dict(k=2), dict(k=1, tau=0.1)],
}
EVERY = [(name, args) for name, cases in CASES.items() for args in cases]
every_metric = pytest.mark.parametrize(('name', 'args'), EVERY, ids=str)


def build(name, args):
    return getattr(metrics, name)(num_classes=N_CLASSES, **args)


def batches(n=4, dtype=torch.float32):
    """Batches of two images, the second without its last class, some pixels ignored."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for i in range(n):
        preds = torch.randn(2, N_CLASSES, 7, 9, generator=generator, dtype=torch.float64).mul(2).softmax(1).to(dtype)
        target = torch.randint(0, N_CLASSES - (i == 1), (2, 7, 9), generator=generator)
        target[:, :2] = 255
        found.append((preds, target))
    return found


def union(parts):
    return tuple(torch.cat(each) for each in zip(*parts, strict=True))


def assert_same(found, expected, **tolerance):
    torch.testing.assert_close(found, expected, equal_nan=True, **tolerance)


def without_batch(value):
    """Of several averages, those that do not depend on how images are grouped into updates."""
    return {k: v for k, v in value.items() if k != 'batch'} if isinstance(value, dict) else value


def test_every_metric_has_a_case():
    assert set(CASES) == set(metrics.__all__)
    assert all(issubclass(getattr(metrics, name), Metric) for name in CASES)


@every_metric
def test_streaming_equals_seeing_everything_at_once(name, args):
    metric = build(name, args)
    for batch in batches():
        metric.update(*batch)
    once = build(name, args)
    once.update(*union(batches()))
    assert_same(without_batch(metric.compute()), without_batch(once.compute()))


@every_metric
def test_forward_returns_the_value_of_its_batch_and_accumulates(name, args):
    metric, updated = build(name, args), build(name, args)
    for batch in batches():
        alone = build(name, args)
        alone.update(*batch)
        assert_same(metric(*batch), alone.compute())
        updated.update(*batch)
    assert_same(metric.compute(), updated.compute())
    metric.reset()
    assert_same(metric(*batches()[2]), build(name, args)(*batches()[2]))


@pytest.mark.parametrize('duplicate', [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), lambda m: m.clone()])
@every_metric
def test_copies(name, args, duplicate):
    metric = build(name, args)
    metric.update(*batches()[0])
    copied = duplicate(metric)
    assert_same(copied.compute(), metric.compute())
    copied.update(*batches()[1])
    metric.update(*batches()[1])
    assert_same(copied.compute(), metric.compute())


@every_metric
def test_hashes_differ_between_instances(name, args):
    assert hash(build(name, args)) != hash(build(name, args))


@every_metric
def test_state_dict(name, args):
    metric = build(name, args)
    assert metric.state_dict() == {}
    metric.persistent(True)
    metric.update(*batches()[0])
    other = build(name, args)
    other.persistent(True)
    other.load_state_dict(metric.state_dict())
    other._update_count = 1  # torchmetrics keeps no count in the state
    assert_same(other.compute(), metric.compute())


@every_metric
def test_states_of_two_metrics_merge(name, args):
    one, other, both = (build(name, args) for _ in range(3))
    one.update(*batches()[0])
    other.update(*batches()[1])
    for batch in batches()[:2]:
        both.update(*batch)
    one.merge_state(other)
    assert_same(one.compute(), both.compute())


@every_metric
def test_differentiability_is_as_declared(name, args):
    metric = build(name, args)
    preds, target = batches()[0]
    value = metric(preds.requires_grad_(), target)
    values = value.values() if isinstance(value, dict) else [value]
    assert {v.requires_grad for v in values} == {metric.is_differentiable}
    assert not any(state.requires_grad for state in metric.metric_state.values() if isinstance(state, torch.Tensor))
    metric.update(preds, target)
    computed = metric.compute()
    assert isinstance(computed, dict) or not computed.requires_grad


@pytest.mark.parametrize(
    ('name', 'args'),
    # The one has no gradient, the other not that of its value.
    [case for case in EVERY if case[0] not in ('JaccardIndexByImage', 'DirectAveragePrecision')],
    ids=str,
)
def test_gradcheck(name, args):
    generator = torch.Generator().manual_seed(3)
    target = torch.randint(0, N_CLASSES, (2, 2, 3), generator=generator)
    target[0, 0, 0] = 255
    logits = torch.randn(2, N_CLASSES, 2, 3, generator=generator, dtype=torch.float64, requires_grad=True)

    def value(logits):
        return build(name, args)(logits.softmax(1), target).nan_to_num()

    assert torch.autograd.gradcheck(value, logits)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@every_metric
def test_half_precision(name, args, dtype):
    preds, target = batches(dtype=dtype)[0]
    expected = build(name, args)(preds.double(), target)
    for metric in (build(name, args), build(name, args).set_dtype(dtype)):
        found = metric(preds, target)
        assert_same(found, expected, check_dtype=False, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ('name', 'args'),
    [case for case in EVERY if case[0] not in ('SmoothTopKAccuracy', 'DirectAveragePrecision')],
    ids=str,
)
def test_logits_and_decided_classes_are_accepted(name, args):
    preds, target = batches()[0]
    assert_same(build(name, args)(preds.log() + 5, target), build(name, args)(preds, target), rtol=1e-5, atol=1e-6)
    one_hot = torch.nn.functional.one_hot(preds.argmax(1), N_CLASSES).movedim(-1, 1).float()
    assert_same(build(name, args)(preds.argmax(1), target), build(name, args)(one_hot, target))


def key(name, args):
    return f'{name} {args}'.replace('.', ',')


def test_in_a_collection_metrics_of_one_state_share_it():
    collection = MetricCollection({key(name, args): build(name, args) for name, args in EVERY})
    for batch in batches():
        collection.update(*batch)
    shared = {tuple(sorted(group)) for group in collection.compute_groups.values()}
    lovasz = tuple(
        sorted(key('LovaszJaccardIndex', args) for args in CASES['LovaszJaccardIndex'] if 'bins' not in args)
    )
    assert lovasz in shared
    found = collection.compute()
    for name, args in EVERY:
        if name == 'JaccardIndexByImage':  # of which a collection makes several
            continue
        alone = build(name, args)
        for batch in batches():
            alone.update(*batch)
        assert_same(found[key(name, args)], alone.compute())


@every_metric
def test_plot(name, args):
    mpl.use('Agg')
    metric = build(name, args)
    metric.update(*batches()[0])
    figure, axis = metric.plot()
    assert axis.get_figure() is figure
    figure, axis = metric.plot([metric(*batch) for batch in batches()])
    assert axis.lines
    mpl.pyplot.close('all')


@every_metric
def test_nothing_valid_is_nan_and_leaves_no_trace(name, args):
    preds, target = batches()[0]
    metric = build(name, args)
    nothing = metric(preds, torch.full_like(target, 255))
    values = torch.stack(list(nothing.values())) if isinstance(nothing, dict) else nothing
    if args.get('classes', 'seen') in ('seen', 'present'):
        assert values.isnan().all()
    metric.update(preds, target)
    assert_same(metric.compute(), build(name, args)(preds, target))


BAD_CALLS = [
    ('preds', lambda p, t: (p[:, :2], t), ValueError, r'\(2, 2, 7, 9\)'),
    ('target', lambda p, t: (p, t[:1]), ValueError, r'\(1, 7, 9\)'),
    ('target', lambda p, t: (p, t.clamp(max=N_CLASSES)), ValueError, str(N_CLASSES)),
]
BAD_ARGUMENTS = [
    ('num_classes', 0, ValueError),
    ('num_classes', 2.5, TypeError),
    ('ignore_index', 'void', TypeError),
]


@pytest.mark.parametrize(('parameter', 'change', 'error', 'found'), BAD_CALLS)
@every_metric
def test_bad_calls_are_named(name, args, parameter, change, error, found):
    with pytest.raises(error, match=f'`{parameter}`.*{found}'):
        build(name, args).update(*change(*batches()[0]))


@pytest.mark.parametrize(('parameter', 'value', 'error'), BAD_ARGUMENTS)
@pytest.mark.parametrize('name', CASES)
def test_bad_arguments_are_named(name, parameter, value, error):
    with pytest.raises(error, match=f'`{parameter}`.*{value!r}'):
        getattr(metrics, name)(**(dict(num_classes=3) | CASES[name][0] | {parameter: value}))


def find(rank):
    """What a process finds that has each second batch, {(name, arguments): value}."""
    found = {}
    for name, args in EVERY:
        metric = build(name, args)
        for batch in batches()[rank::2]:
            metric.update(*batch)
        found[name, str(args)] = metric.compute()
    return found


@pytest.fixture(scope='module')
def found_by_processes(tmp_path_factory):
    return found_by_two_processes(__file__, tmp_path_factory.mktemp('metrics'))


@every_metric
def test_two_processes_find_what_one_finds(found_by_processes, name, args):
    metric = build(name, args)
    for batch in batches():
        metric.update(*batch)
    for found in found_by_processes:
        assert_same(found[name, str(args)], metric.compute())


def test_the_values_are_no_constants():
    values = [build('LovaszJaccardIndex', {})(*batch).item() for batch in batches()]
    assert len(set(values)) == len(values)
    assert not any(math.isnan(value) for value in values)


if __name__ == '__main__':
    find_as_a_process(find)

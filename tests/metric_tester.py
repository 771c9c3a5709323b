"""The contract of every metric: checks that torchmetrics runs on its own metrics, and some more.

`CHECKS` are functions of a `Case`. What two processes find is gathered once for all cases, by `find_of_cases`.
"""

import copy
import inspect
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import pytest
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

FLAGS = ('is_differentiable', 'higher_is_better', 'full_state_update')
CONSTANTS = (*FLAGS, 'plot_lower_bound', 'plot_upper_bound', 'plot_legend_name')
Batch = tuple[Tensor, Tensor]
CAN_MERGE = hasattr(Metric, 'merge_state')
"""Whether torchmetrics merges states: since 1.6."""
CHECKS: dict[str, Callable[['Case'], None]] = {}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A metric with its arguments, and what it is shown."""

    metric: type[Metric]
    function: Callable[..., Any]
    """Its functional twin."""
    arguments: dict[str, Any]
    batches: Callable[[torch.dtype], list[Batch]]
    """Gives at least four batches, with probabilities of the given type."""
    ignored: int
    """A label that takes items out."""
    another_label: int
    """A label that means something, and that does not occur in the first batch."""
    of_batch: tuple[str, ...] = ()
    """Which of its values depend on how items are grouped into updates."""
    gradient_is_of_value: bool = True
    """Or of something else, which no numeric differentiation finds."""
    always_float32: bool = False
    """Whether its values are of float32 for scores of float64 too."""

    def __str__(self) -> str:
        return f'{self.metric.__name__} {self.arguments}'

    def build(self, **arguments: Any) -> Metric:
        return self.metric(**(self.arguments | arguments))

    def value_of(self, preds: Tensor, target: Tensor) -> Any:
        return self.function(preds, target, **self.arguments)

    def seen(self, batches: list[Batch], **arguments: Any) -> Metric:
        metric = self.build(**arguments)
        for batch in batches:
            metric.update(*batch)
        return metric

    def without_grouping(self, value: Any) -> Any:
        return {k: v for k, v in value.items() if k not in self.of_batch} if isinstance(value, dict) else value


def check(function: Callable[[Case], None]) -> Callable[[Case], None]:
    CHECKS[function.__name__] = function
    return function


def assert_same(found: Any, expected: Any, **tolerance: Any) -> None:
    torch.testing.assert_close(found, expected, equal_nan=True, **tolerance)


def union(batches: list[Batch]) -> Batch:
    preds, target = zip(*batches, strict=True)
    return torch.cat(preds), torch.cat(target)


def tensors_of(value: Any) -> list[Tensor]:
    return list(value.values()) if isinstance(value, dict) else [value]


def states_of(metric: Metric) -> list[Tensor]:
    states = metric.metric_state.values()
    return [part for state in states for part in (state if isinstance(state, list) else [state])]


@check
def flags_are_set_and_immutable(case: Case) -> None:
    metric = case.build()
    for name in FLAGS:
        assert isinstance(getattr(case.metric, name), bool), name
    assert isinstance(case.metric.plot_lower_bound, float)
    assert isinstance(case.metric.plot_upper_bound, float)
    for name in CONSTANTS:
        with pytest.raises(RuntimeError, match=f"Can't change const `{name}`"):
            setattr(metric, name, getattr(metric, name))


@check
def arguments_that_no_metric_has_are_refused(case: Case) -> None:
    with pytest.raises(ValueError, match='Unexpected keyword arguments: `colour`'):
        case.build(colour='red')


@check
def function_has_the_arguments_of_the_class(case: Case) -> None:
    of_class = dict(inspect.signature(case.metric).parameters)
    assert of_class.pop('kwargs').kind is inspect.Parameter.VAR_KEYWORD
    of_update = dict(inspect.signature(case.build().update).parameters)
    of_function = inspect.signature(case.function).parameters
    assert list(of_function) == ['preds', 'target', *of_class]
    assert list(of_update) == ['preds', 'target']
    for name, parameter in of_class.items():
        assert of_function[name].default == parameter.default, name


@check
def documentation_has_examples(case: Case) -> None:
    for documented in (case.metric, case.function, case.metric.plot):
        assert '>>> ' in documented.__doc__, documented


@check
def function_is_the_value_of_a_batch(case: Case) -> None:
    for batch in case.batches(torch.float32):
        assert_same(case.value_of(*batch), case.build()(*batch))
    together = union(case.batches(torch.float32))
    streamed = case.seen(case.batches(torch.float32)).compute()
    for once in (case.value_of(*together), case.seen([together]).compute()):
        assert_same(case.without_grouping(once), case.without_grouping(streamed))


@check
def forward_returns_the_value_of_its_batch_and_accumulates(case: Case) -> None:
    # With synchronisation on steps, torchmetrics takes another way through the metric.
    for arguments in (dict(), dict(dist_sync_on_step=True)):
        metric, batches = case.build(**arguments), case.batches(torch.float32)
        for batch in batches:
            assert_same(metric(*batch), case.seen([batch]).compute())
        assert metric.update_count == len(batches)
        assert_same(metric.compute(), case.seen(batches).compute())
        assert_same(metric.compute(), metric.compute())


@check
def computing_in_between_changes_nothing(case: Case) -> None:
    metric, batches = case.build(), case.batches(torch.float32)
    for n, batch in enumerate(batches, start=1):
        metric.update(*batch)
        assert_same(metric.compute(), case.seen(batches[:n]).compute())


@check
def reset_makes_it_new(case: Case) -> None:
    metric, batches = case.seen(case.batches(torch.float32)[:2]), case.batches(torch.float32)
    metric(*batches[2])
    metric.reset()
    assert metric.update_count == 0
    assert_same(metric.metric_state, case.build().metric_state)
    assert_same(metric(*batches[3]), case.build()(*batches[3]))
    assert_same(metric.compute(), case.seen(batches[3:4]).compute())


@check
def nothing_seen_is_a_warning_and_no_number(case: Case) -> None:
    with pytest.warns(UserWarning, match='was called before the ``update`` method'):
        value = case.build().compute()
    if case.arguments.get('classes', 'seen') in ('seen', 'present'):
        assert all(v.isnan().all() for v in tensors_of(value))


@check
def copies_are_equal_and_independent(case: Case) -> None:
    first, second = case.batches(torch.float32)[:2]
    for duplicate in (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), lambda m: m.clone()):
        metric = case.seen([first])
        copied = duplicate(metric)
        assert type(copied) is type(metric)
        copied.update(*second)
        assert_same(metric.compute(), case.seen([first]).compute())
        assert_same(copied.compute(), case.seen([first, second]).compute())
        copied.reset()
        assert_same(metric.compute(), case.seen([first]).compute())


@check
def can_be_scripted(case: Case) -> None:
    for metric in (case.build(), case.seen(case.batches(torch.float32)[:2])):
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', DeprecationWarning)  # since torch 2.9
            for module in (metric, _Model(metric)):
                torch.jit.script(module)


class _Model(torch.nn.Module):
    """Holds a metric next to its layers."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self.layer, self.metric = torch.nn.Linear(2, 2), metric

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@check
def state_dict_is_empty_unless_persistent(case: Case) -> None:
    first, second = case.batches(torch.float64)[:2]
    metric = case.seen([first])
    assert metric.state_dict() == {}
    metric.persistent(True)
    stored = metric.state_dict(prefix='metric.')
    assert set(stored) == {f'metric.{name}' for name in metric.metric_state}
    other = case.build()
    other.load_state_dict(metric.state_dict())
    other.update(*second)
    assert_same(other.compute(), case.seen([first, second]).compute())


@check
def states_merge(case: Case) -> None:
    if not CAN_MERGE:
        return
    batches = case.batches(torch.float32)
    expected = case.seen(batches[:3]).compute()
    for incoming in (lambda m: m, lambda m: m.metric_state):
        metric = case.seen(batches[:1])
        metric.merge_state(incoming(case.seen(batches[1:3])))
        assert_same(metric.compute(), expected)
    untouched = case.build()
    untouched.merge_state(case.seen(batches[:3]))
    untouched._update_count = 1  # torchmetrics does not count what is merged
    assert_same(untouched.compute(), expected)


@check
def differentiable_as_declared(case: Case) -> None:
    preds, target = case.batches(torch.float32)[0]
    metric = case.build()
    for value in (metric(preds.requires_grad_(), target), case.value_of(preds, target)):
        assert {v.requires_grad for v in tensors_of(value)} == {metric.is_differentiable}
        if metric.is_differentiable:
            (gradient,) = torch.autograd.grad(value.nansum(), preds)
            assert gradient.isfinite().all()
            assert gradient.any()
    assert not any(state.requires_grad for state in states_of(metric))
    metric.update(preds, target)
    assert not any(v.requires_grad for v in tensors_of(metric.compute()))
    with torch.no_grad():
        assert not any(v.requires_grad for v in tensors_of(metric(preds, target)))
    synced = case.build(dist_sync_on_step=True)
    assert {v.requires_grad for v in tensors_of(synced(preds, target))} == {metric.is_differentiable}


@check
def gradient_is_that_of_the_value(case: Case) -> None:
    if not (case.metric.is_differentiable and case.gradient_is_of_value):
        return
    preds, target = case.batches(torch.float64)[0]
    logits = preds[:, :, 1:3, :3].log().detach().requires_grad_()
    target = target[:, 1:3, :3]
    for value in (case.build(), case.value_of):
        assert torch.autograd.gradcheck(lambda x, f=value: f(x.softmax(1), target).nan_to_num(), logits)


@check
def half_precision(case: Case) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        preds, target = case.batches(dtype)[0]
        expected = case.value_of(preds.double(), target)
        for value in (case.build(), case.build().set_dtype(dtype), case.build().half(), case.value_of):
            found = value(preds, target)
            assert {v.dtype for v in tensors_of(found)} == {torch.float32}
            assert_same(found, expected, check_dtype=False, rtol=1e-5, atol=1e-5)


@check
def values_have_the_type_of_the_scores(case: Case) -> None:
    for dtype in (torch.float32, torch.float64):
        expected = torch.float32 if case.always_float32 else dtype
        batches = case.batches(dtype)
        values = [case.value_of(*batches[0]), case.build()(*batches[0])]
        if CAN_MERGE:
            merged = case.build()
            merged.merge_state(case.seen(batches))
            merged._update_count = 1
            values.append(merged.compute())
        for value in values:
            assert {v.dtype for v in tensors_of(value)} == {expected}


@check
def states_move_between_devices(case: Case) -> None:
    metric = case.seen(case.batches(torch.float32)).to('meta')
    assert metric.device.type == 'meta'
    assert {state.device.type for state in states_of(metric)} == {'meta'}
    metric.reset()
    assert {state.device.type for state in states_of(metric)} <= {'meta'}
    if torch.cuda.is_available():
        metric = case.build().cuda()
        for preds, target in case.batches(torch.float32):
            metric.update(preds.cuda(), target.cuda())
        expected = case.seen(case.batches(torch.float32)).compute()
        assert {v.device.type for v in tensors_of(metric.compute())} == {'cuda'}
        assert_same(metric.compute(), expected, check_device=False)
        assert_same(metric.cpu().compute(), expected)


@check
def plots(case: Case) -> None:
    mpl.use('Agg')
    metric = case.seen(case.batches(torch.float32)[:1])
    figure, axis = metric.plot()
    assert axis.get_figure() is figure
    _, given = mpl.pyplot.subplots()
    _, axis = metric.plot([metric(*batch) for batch in case.batches(torch.float32)], ax=given)
    assert axis is given
    assert axis.lines
    mpl.pyplot.close('all')


@check
def nothing_valid_leaves_no_trace(case: Case) -> None:
    preds, target = case.batches(torch.float32)[0]
    expected = case.value_of(preds, target)
    empty = (preds[:0], target[:0])
    for nothing in ((preds, torch.full_like(target, case.ignored)), empty):
        metric = case.build()
        value = metric(*nothing)
        if case.arguments.get('classes', 'seen') in ('seen', 'present'):
            assert all(v.isnan().all() for v in tensors_of(value))
        metric.update(preds, target)
        assert_same(metric.compute(), expected)


@check
def ignored_items_do_not_count_whatever_their_scores(case: Case) -> None:
    preds, target = case.batches(torch.float32)[0]
    ignored = (target == case.ignored).unsqueeze(1)
    assert ignored.any()
    for filler in (0.0, 1.0):
        assert_same(case.value_of(torch.where(ignored, filler, preds), target), case.value_of(preds, target))


def check_in_a_collection(metrics: dict[str, Metric], batches: list[Batch], n_groups: int) -> None:
    """Check that each metric has the same value in a collection as alone."""
    collection = MetricCollection({name: metric.clone() for name, metric in metrics.items()})
    for batch in batches:
        collection.update(*batch)
        for metric in metrics.values():
            metric.update(*batch)
    assert len(collection.compute_groups) == n_groups
    for name, metric in collection.items(keep_base=True):
        assert_same(metric.compute(), metrics[name].compute())


@check
def in_a_collection_with_one_that_ignores_another_label(case: Case) -> None:
    batches = [(preds, torch.where(target == case.ignored, 0, target)) for preds, target in case.batches(torch.float32)]
    assert not (batches[0][1] == case.another_label).any()
    assert (batches[1][1] == case.another_label).any()
    metrics = {'all': case.build(), 'some': case.build(ignore_index=case.another_label)}
    check_in_a_collection(metrics, batches, n_groups=2)


@check
def in_a_collection_with_its_like(case: Case) -> None:
    for dtype in (torch.float32, torch.float64):
        check_in_a_collection({'one': case.build(), 'other': case.build()}, case.batches(dtype), n_groups=1)


def find_of_cases(cases: list[Case], rank: int) -> dict[str, dict[str, Any]]:
    """Return the values in one of two processes, which torchmetrics reduces over both."""
    return {str(case): _find(case, rank) for case in cases}


def _find(case: Case, rank: int) -> dict[str, Any]:
    batches = case.batches(torch.float32)
    metric = case.seen(batches[rank:2:2])
    found = {'of the first two batches': metric.compute()}
    metric.update(*batches[2 + rank])
    found['of all batches'] = metric.compute()
    found['of what this process has, after that'] = pickle.loads(pickle.dumps(metric.metric_state))
    for dtype in (torch.float32, torch.float64):
        alone = case.build() if rank else case.seen(case.batches(dtype))
        found[f'where the other process has seen nothing, {dtype}'] = alone.compute()
    step = case.build(dist_sync_on_step=True)
    found['of a step'] = step(*batches[rank])
    found['after a step'] = step.compute()
    found['alone'] = case.seen(batches[rank::2], sync_on_compute=False).compute()
    with case.seen(batches[rank::2]).sync_context():
        found['rank'] = rank
    return found


def check_found(case: Case, found: list[dict[str, Any]]) -> None:
    batches = case.batches(torch.float32)
    first_two, everything = (case.seen(part).compute() for part in (batches[:2], batches))
    for rank, of_rank in enumerate(found):
        assert of_rank['rank'] == rank
        assert_same(of_rank['of the first two batches'], first_two)
        assert_same(of_rank['of all batches'], everything)
        own = batches[rank::2]
        assert_same(of_rank['of what this process has, after that'], case.seen(own).metric_state)
        for dtype in (torch.float32, torch.float64):
            expected = case.seen(case.batches(dtype)).compute()
            name = f'where the other process has seen nothing, {dtype}'
            assert_same(of_rank[name], expected)
        assert_same(of_rank['of a step'], first_two)
        assert_same(of_rank['after a step'], first_two)
        assert_same(of_rank['alone'], case.seen(own).compute())

"""Build metrics from configs."""

import difflib
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from torchmetrics import Metric, MetricCollection

from mmseg_nondecomp import metrics as ours
from mmseg_nondecomp.evaluation._input_spec import inner_metrics


def build_metrics(metrics: Any) -> dict[str, Metric]:
    """Build the metrics of a config by name; those of a collection have the names that it gives them."""
    if isinstance(metrics, Mapping) and 'type' in metrics:
        metrics = _built('metrics', metrics)
    if isinstance(metrics, MetricCollection):
        named = [(None, metrics)]
    elif isinstance(metrics, Mapping) and metrics and all(isinstance(name, str) for name in metrics):
        named = [(name, _built(name, value)) for name, value in metrics.items()]
    else:
        raise TypeError(
            'Parameter `metrics` should map names to torchmetrics metrics or their configs, or be a MetricCollection. '
            f'Found {metrics!r}.'
        )
    return _by_name([member for name, value in named for member in _members(name, value)])


def _built(name: str, value: Any) -> Any:
    if isinstance(value, Mapping) and 'type' in value:
        kind = value['type']
        cls = _class_of(kind) if isinstance(kind, str) else kind
        arguments = {key: _nested(name, argument) for key, argument in value.items() if key != 'type'}
        try:
            value = cls(**arguments)
        except (TypeError, ValueError) as error:
            raise type(error)(f'Metric {name!r} ({kind}) cannot be built: {error}') from error
    if not isinstance(value, (Metric, MetricCollection)):
        raise TypeError(
            f'Metric {name!r} should be a torchmetrics Metric or MetricCollection, or its config with a `type`. '
            f'Found {value!r}.'
        )
    return value


def _nested(name: str, value: Any) -> Any:
    """Build the metrics within an argument of a metric."""
    if isinstance(value, Mapping):
        return _built(name, value) if 'type' in value else {key: _nested(name, item) for key, item in value.items()}
    return [_nested(name, item) for item in value] if isinstance(value, list) else value


def _class_of(name: str) -> Any:
    module, _, attribute = name.rpartition('.')
    if not module:
        if name in ours.__all__:
            return getattr(ours, name)
    elif find_spec(module.split('.')[0]) is not None:
        try:
            return getattr(import_module(module), attribute)
        except (ModuleNotFoundError, AttributeError) as error:
            if isinstance(error, ModuleNotFoundError) and not module.startswith(error.name or ' '):
                raise
    known = {name: name for name in ours.__all__}
    for package in ('classification', 'segmentation', 'detection'):
        for public in import_module(f'torchmetrics.{package}').__all__:
            known.setdefault(public, f'torchmetrics.{package}.{public}')
    near = difflib.get_close_matches(attribute, known, n=3)
    hint = f' Did you mean {" or ".join(repr(known[match]) for match in near)}?' if near else ''
    raise ValueError(
        f'Metric type {name!r} is not known.{hint} Metrics of mmseg_nondecomp.metrics go by their names alone, all '
        'others by their full names.'
    )


def _members(name: str | None, value: Metric | MetricCollection) -> list[tuple[str, Metric]]:
    """Return a metric, or the metrics of a collection, by name."""
    if not isinstance(value, MetricCollection):
        return [(str(name), value)]
    prefix = '' if name is None else f'{name}.'
    return [(f'{prefix}{key}', metric) for key, metric in value.items(keep_base=False)]


def _by_name(members: list[tuple[str, Metric]]) -> dict[str, Metric]:
    """Return the metrics by name; raise ValueError if two have the same name or state."""
    metrics: dict[str, Metric] = {}
    owners: dict[int, str] = {}
    for name, metric in members:
        if name in metrics:
            raise ValueError(f'Metrics should have different names. Found {name!r} twice.')
        metrics[name] = metric
        for part in inner_metrics(metric):
            owner = owners.setdefault(id(part), name)
            if owner != name:
                raise ValueError(
                    f'Metrics should have states of their own. Found one {type(part).__name__} in {owner!r} and in '
                    f'{name!r}, which would count everything twice: `clone()` it.'
                )
    return metrics

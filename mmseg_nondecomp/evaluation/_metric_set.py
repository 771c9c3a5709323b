"""Metrics that are updated together on this process and computed from the states of all processes."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from mmseg_nondecomp.evaluation._batch import Batch
from mmseg_nondecomp.evaluation._checks import check_batch, check_number_of_classes
from mmseg_nondecomp.evaluation._confusion_matrix import ConfusionMatrix, confusion_matrix_of, has_state, metric_state
from mmseg_nondecomp.evaluation._input_spec import KINDS, InputSpec, inner_metrics, input_spec_of
from mmseg_nondecomp.evaluation._metrics_from_config import build_metrics

State = dict[str, list[dict[str, Any]]]
MANY_NUMBERS = 2**20
INPUT_ERRORS = (IndexError, RuntimeError, TypeError, ValueError)


class MetricSet:
    """Torchmetrics metrics by name, built from configs.

    ``inputs`` has the kind of input of metrics, where their class does not determine it.
    No collective operation is called here: `state` returns the states to gather, and `merge` takes them.
    """

    def __init__(self, metrics: Any, inputs: Mapping[str, str] | None = None) -> None:
        self.metrics = build_metrics(metrics)
        inputs = inputs or {}
        if not isinstance(inputs, Mapping) or not set(inputs) <= set(self.metrics):
            raise ValueError(
                f'Parameter `inputs` should give one of {KINDS} by name, for metrics of {sorted(self.metrics)}. '
                f'Found {inputs!r}.'
            )
        self.specs = {name: input_spec_of(name, metric, inputs.get(name)) for name, metric in self.metrics.items()}
        self.matrices: dict[ConfusionMatrix, Tensor] = {}
        self._may_share = {
            name: settings
            for name, metric in self.metrics.items()
            if (settings := confusion_matrix_of(metric, self.specs[name])) is not None
        }
        self._shares: dict[str, ConfusionMatrix] = {}
        for metric in self.metrics.values():
            for part in inner_metrics(metric):
                part.distributed_available_fn = _no_gathering
        self.reset()

    def check_number_of_classes(self, n_classes: int) -> None:
        """Raise ValueError if a metric is for another number of classes."""
        for name, metric in self.metrics.items():
            check_number_of_classes(name, metric, n_classes)

    def update(self, batch: Batch) -> None:
        """Update the metrics with a batch."""
        checked: set[Any] = set()
        for name, metric in self.metrics.items():
            preds, target = batch.inputs[self.specs[name]]
            if isinstance(preds, Tensor):
                if preds.numel() == 0:  # an image without detections
                    continue
                check_batch(name, metric, self.specs[name], preds, target, checked)
            if name not in self._shares:
                self._update(name, metric, preds, target)
        self._update_matrices(batch)

    def state(self) -> State:
        """Return the states of the metrics, on the CPU."""
        self._copy_matrices()
        return {
            name: [_moved(part.metric_state, torch.device('cpu')) for part in inner_metrics(metric)]
            for name, metric in self.metrics.items()
        }

    def merge(self, states: list[State]) -> None:
        """Replace the states of this process by the merged states of all processes, itself included."""
        self.matrices.clear()
        for name, metric in self.metrics.items():
            for i, part in enumerate(inner_metrics(metric)):
                _set_merged(part, [state[name][i] for state in states])

    def compute(self) -> dict[str, Any]:
        """Return the value of each metric."""
        self._copy_matrices()
        for metric in self.metrics.values():
            for part in inner_metrics(metric):
                # torchmetrics warns if `update` was never called: only another process had images, or they were counted
                # in a shared confusion matrix.
                part._update_count = max(part._update_count, 1)
        return {name: metric.compute() for name, metric in self.metrics.items()}

    def reset(self) -> None:
        """Reset all states."""
        self.matrices.clear()
        for metric in self.metrics.values():
            metric.reset()

    def _update(self, name: str, metric: Metric, preds: Any, target: Any) -> None:
        device = preds.device if isinstance(preds, Tensor) else preds[0]['labels'].device
        if metric.device != device:
            metric.to(device)
        first = not metric.update_called
        try:
            metric.update(preds, target)
        except INPUT_ERRORS as error:
            if type(error) not in INPUT_ERRORS:  # out of memory, for example
                raise
            raise type(error)(
                f'Metric {name!r} ({type(metric).__name__}), which was given {self.specs[name].kind}, cannot be '
                f'updated with {_described(preds)} and {_described(target)}: {error}'
            ) from error
        if first:
            _warn_of_growth(name, metric)
        if self.specs[name].form != 'multilabel':
            # The first batch was valid; later ones are checked here, without sorting all pixels.
            for part in inner_metrics(metric):
                if hasattr(part, 'validate_args'):
                    part.validate_args = False

    def _update_matrices(self, batch: Batch) -> None:
        """Update the confusion matrices; metrics whose first update agrees with theirs share it from now on."""
        for settings in set(self._may_share.values()):
            matrix = settings.count(*batch.inputs[InputSpec('labels')])
            self.matrices[settings] = self.matrices[settings] + matrix if settings in self.matrices else matrix
        for name in self._may_share.keys() - self._shares.keys():
            settings, metric = self._may_share[name], self.metrics[name]
            if has_state(metric, metric_state(metric, self.matrices[settings])):
                self._shares[name] = settings
            else:  # another version of torchmetrics
                del self._may_share[name]

    def _copy_matrices(self) -> None:
        for name, settings in self._shares.items():
            if settings in self.matrices:
                metric = self.metrics[name].to(self.matrices[settings].device)
                for attribute, value in metric_state(metric, self.matrices[settings]).items():
                    setattr(metric, attribute, value)


def _set_merged(metric: Metric, states: list[dict[str, Any]]) -> None:
    """Set the state of a metric to the reduction of several states, as torchmetrics does after gathering.

    torchmetrics gathers tensor by tensor. This blocks for ever if one process has a longer list than another, or an
    empty list, whose number of dimensions is unknown.
    """
    for attribute, reduction in metric._reductions.items():
        parts = _moved([state[attribute] for state in states], metric.device)
        if isinstance(parts[0], Tensor):
            stacked = torch.stack(parts)
            setattr(metric, attribute, stacked if reduction is None else reduction(stacked))  # type: ignore[operator]
        else:
            setattr(metric, attribute, [item for part in parts for item in part])


def _warn_of_growth(name: str, metric: Metric) -> None:
    lists = [state for part in inner_metrics(metric) for state in part.metric_state.values() if isinstance(state, list)]
    n_kept = sum(item.numel() for state in lists for item in state if isinstance(item, Tensor))
    if n_kept > MANY_NUMBERS:
        warnings.warn(
            f'Metric {name!r} ({type(metric).__name__}) keeps all that it is given, {n_kept} numbers of the first '
            'batch. With `thresholds` (torchmetrics) or `bins` (`DirectAveragePrecision`), if it has them, it counts.',
            stacklevel=2,
        )


def _moved(value: Any, device: torch.device) -> Any:
    """Return a state with all tensors on a device."""
    if isinstance(value, dict):
        return {name: _moved(item, device) for name, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, device) for item in value]
    return value.to(device) if isinstance(value, Tensor) else value


def _no_gathering() -> bool:
    """Return False, so that torchmetrics does not gather states by itself."""
    return False


def _described(value: Any) -> str:
    return f'{value.dtype} {tuple(value.shape)}' if isinstance(value, Tensor) else f'a list of {len(value)}'

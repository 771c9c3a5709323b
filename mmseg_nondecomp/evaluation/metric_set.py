"""Metrics that are updated together, on this process, and computed from the states of all processes."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from mmseg_nondecomp.evaluation.batch import Batch
from mmseg_nondecomp.evaluation.build import build_metrics
from mmseg_nondecomp.evaluation.checks import check_batch, check_number_of_classes
from mmseg_nondecomp.evaluation.class_pairs import ClassPairs, is_in_state, pairs_counted_by, state_of_pairs
from mmseg_nondecomp.evaluation.need import KINDS, Need, inner_metrics, need_of

State = dict[str, list[dict[str, Any]]]
MANY_NUMBERS = 2**20
OF_WRONG_INPUT = (IndexError, RuntimeError, TypeError, ValueError)


class MetricSet:
    """Torchmetrics metrics by name, built from configs.

    No collective is called here: `state` gives what there is to gather, and `merge` takes it.

    Args:
        metrics: Names with metrics or their configs, or a collection.
        inputs: What a metric takes, where its class does not tell: one of `KINDS` by name.
    """

    def __init__(self, metrics: Any, inputs: Mapping[str, str] | None = None) -> None:
        self.metrics = build_metrics(metrics)
        inputs = inputs or {}
        if not isinstance(inputs, Mapping) or not set(inputs) <= set(self.metrics):
            raise ValueError(
                f'Parameter `inputs` should give one of {KINDS} by name, for metrics of {sorted(self.metrics)}. '
                f'Found {inputs!r}.'
            )
        self.needs = {name: need_of(name, metric, inputs.get(name)) for name, metric in self.metrics.items()}
        self.pairs: dict[ClassPairs, Tensor] = {}
        self._may_count_pairs = {
            name: pairs
            for name, metric in self.metrics.items()
            if (pairs := pairs_counted_by(metric, self.needs[name])) is not None
        }
        self._counts_pairs: dict[str, ClassPairs] = {}
        for metric in self.metrics.values():
            for part in inner_metrics(metric):
                part.distributed_available_fn = _on_its_own
        self.reset()

    def check_number_of_classes(self, n_classes: int) -> None:
        """Raise ValueError if a metric is for another number of classes."""
        for name, metric in self.metrics.items():
            check_number_of_classes(name, metric, n_classes)

    def update(self, batch: Batch) -> None:
        """Add a batch."""
        checked: set[Any] = set()
        for name, metric in self.metrics.items():
            preds, target = batch.inputs[self.needs[name]]
            if isinstance(preds, Tensor):
                if preds.numel() == 0:  # an image without detections
                    continue
                check_batch(name, metric, self.needs[name], preds, target, checked)
            if name not in self._counts_pairs:
                self._update(name, metric, preds, target)
        self._count_pairs(batch)

    def state(self) -> State:
        """What the metrics hold, on the CPU."""
        self._hand_out_pairs()
        return {
            name: [_on_cpu(part.metric_state) for part in inner_metrics(metric)]
            for name, metric in self.metrics.items()
        }

    def merge(self, states: list[State]) -> None:
        """Put the states of all processes, this one's too, in the place of this one's."""
        self.pairs.clear()
        for name, metric in self.metrics.items():
            for i, part in enumerate(inner_metrics(metric)):
                _set_merged(part, [state[name][i] for state in states])

    def compute(self) -> dict[str, Any]:
        """The value of each metric."""
        self._hand_out_pairs()
        for metric in self.metrics.values():
            for part in inner_metrics(metric):
                # Another process may have seen all, or the pairs were counted here: torchmetrics would warn.
                part._update_count = max(part._update_count, 1)
        return {name: metric.compute() for name, metric in self.metrics.items()}

    def reset(self) -> None:
        """Forget what was seen."""
        self.pairs.clear()
        for metric in self.metrics.values():
            metric.reset()

    def _update(self, name: str, metric: Metric, preds: Any, target: Any) -> None:
        device = preds.device if isinstance(preds, Tensor) else preds[0]['labels'].device
        if metric.device != device:
            metric.to(device)
        first = not metric.update_called
        try:
            metric.update(preds, target)
        except OF_WRONG_INPUT as error:
            if type(error) not in OF_WRONG_INPUT:  # out of memory, say
                raise
            raise type(error)(
                f'Metric {name!r} ({type(metric).__name__}), which was given {self.needs[name].kind}, cannot be '
                f'updated with {_described(preds)} and {_described(target)}: {error}'
            ) from error
        if first:
            _warn_of_growth(name, metric)
        if self.needs[name].form != 'multilabel':
            # It has seen a batch; what may change from one to the next is checked here, without sorting all pixels.
            for part in inner_metrics(metric):
                if hasattr(part, 'validate_args'):
                    part.validate_args = False

    def _count_pairs(self, batch: Batch) -> None:
        """Count for all metrics that only need it, once their first update has shown that this is so."""
        for pairs in set(self._may_count_pairs.values()):
            counted = pairs.count(*batch.inputs[Need('labels')])
            self.pairs[pairs] = self.pairs[pairs] + counted if pairs in self.pairs else counted
        for name in self._may_count_pairs.keys() - self._counts_pairs.keys():
            pairs = self._may_count_pairs[name]
            if is_in_state(self.metrics[name], state_of_pairs(self.metrics[name], self.pairs[pairs])):
                self._counts_pairs[name] = pairs
            else:  # not the version of torchmetrics that this is written for
                del self._may_count_pairs[name]

    def _hand_out_pairs(self) -> None:
        for name, pairs in self._counts_pairs.items():
            if pairs in self.pairs:
                metric = self.metrics[name].to(self.pairs[pairs].device)
                for attribute, value in state_of_pairs(metric, self.pairs[pairs]).items():
                    setattr(metric, attribute, value)


def _set_merged(metric: Metric, states: list[dict[str, Any]]) -> None:
    """What torchmetrics does to states that it has gathered.

    It gathers them tensor by tensor, which blocks for ever where one process has more of a list than another, or has no
    list yet whose number of dimensions it could know.
    """
    for attribute, reduction in metric._reductions.items():
        parts = [state[attribute] for state in states]
        if isinstance(parts[0], Tensor):
            stacked = torch.stack(parts).to(metric.device)
            setattr(metric, attribute, stacked if reduction is None else reduction(stacked))  # type: ignore[operator]
        else:
            setattr(metric, attribute, [_moved(item, metric.device) for part in parts for item in part])


def _on_cpu(state: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.cpu() if isinstance(value, Tensor) else [_moved(item, torch.device('cpu')) for item in value]
        for name, value in state.items()
    }


def _warn_of_growth(name: str, metric: Metric) -> None:
    lists = [state for part in inner_metrics(metric) for state in part.metric_state.values() if isinstance(state, list)]
    n_kept = sum(item.numel() for state in lists for item in state if isinstance(item, Tensor))
    if n_kept > MANY_NUMBERS:
        warnings.warn(
            f'Metric {name!r} ({type(metric).__name__}) keeps all that it is given, {n_kept} numbers of the first '
            'batch. With `thresholds` (torchmetrics) or `bins` (`DirectAveragePrecision`), if it has them, it counts.',
            stacklevel=2,
        )


def _moved(item: Any, device: torch.device) -> Any:
    return item.to(device) if isinstance(item, Tensor) else item


def _on_its_own() -> bool:
    """What torchmetrics asks before it gathers states by itself."""
    return False


def _described(value: Any) -> str:
    return f'{value.dtype} {tuple(value.shape)}' if isinstance(value, Tensor) else f'a list of {len(value)}'

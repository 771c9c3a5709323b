"""Metrics that depend on nothing but how often each class was decided where each class is true."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassConfusionMatrix, MulticlassStatScores

from mmseg_nondecomp.evaluation.need import Need
from mmseg_nondecomp.functional.jaccard_counts import count_pairs

UPDATES = {MulticlassConfusionMatrix.update, MulticlassStatScores.update}


@dataclass(frozen=True)
class ClassPairs:
    """The classes of which pairs are counted, and the label of items that do not count.

    torchmetrics copies the pixels that count, for each metric anew: more than half of the time of an update. Counting
    takes a fifth of that time, and serves all metrics.
    """

    n_classes: int
    ignore_index: int | None

    def count(self, labels: Tensor, target: Tensor) -> Tensor:
        """The pairs of labels that are in range or ignored, int64 of shape [C, C], the true class first."""
        if self.ignore_index is not None and 0 <= self.ignore_index < self.n_classes:  # no other label is counted
            target = target.masked_fill(target == self.ignore_index, -1)
        return count_pairs(labels, target, self.n_classes)


def pairs_counted_by(metric: Metric, need: Need) -> ClassPairs | None:
    """The pairs that a metric of torchmetrics counts, if that is all it does; else ``None``."""
    cls = type(metric)
    of_torchmetrics = cls.update in UPDATES and cls.__module__.startswith('torchmetrics.')
    n_classes = getattr(metric, 'num_classes', None)
    if need.kind != 'labels' or not of_torchmetrics or not isinstance(n_classes, int):
        return None
    if getattr(metric, 'multidim_average', 'global') != 'global':
        return None
    return ClassPairs(n_classes, metric.ignore_index)  # type: ignore[arg-type]


def state_of_pairs(metric: Metric, pairs: Tensor) -> dict[str, Tensor]:
    """The state in which a metric is that has seen these pairs."""
    if 'confmat' in metric.metric_state:
        return {'confmat': pairs}
    hit = pairs.diagonal()
    state = {'tp': hit, 'fp': pairs.sum(0) - hit, 'fn': pairs.sum(1) - hit}
    state['tn'] = pairs.sum() - sum(state.values())
    shape = metric.metric_state['tp'].shape  # type: ignore[union-attr]
    return {name: value if shape == value.shape else value.sum().reshape(shape) for name, value in state.items()}


def is_in_state(metric: Metric, state: dict[str, Tensor]) -> bool:
    """Whether the state of a metric is this one, to the last bit."""
    found = metric.metric_state
    return found.keys() == state.keys() and all(
        isinstance(value, Tensor) and torch.equal(value, state[name]) for name, value in found.items()
    )

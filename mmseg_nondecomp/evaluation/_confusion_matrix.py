"""One confusion matrix for all metrics that depend on nothing else."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassConfusionMatrix, MulticlassStatScores

from mmseg_nondecomp.evaluation._input_spec import InputSpec
from mmseg_nondecomp.functional._averaging import confusion_matrix

UPDATES = {MulticlassConfusionMatrix.update, MulticlassStatScores.update}


@dataclass(frozen=True)
class ConfusionMatrix:
    """The settings of a confusion matrix.

    torchmetrics copies the pixels that count for each metric, which is more than half of the time of an update. Here
    they are counted once for all metrics, in a fifth of that time.
    """

    n_classes: int
    ignore_index: int | None

    def count(self, labels: Tensor, target: Tensor) -> Tensor:
        """Count labels that are in range or ignored; int64 of shape [C, C], the true class first."""
        if self.ignore_index is not None and 0 <= self.ignore_index < self.n_classes:  # no other label is counted
            target = target.masked_fill(target == self.ignore_index, -1)
        return confusion_matrix(labels, target, self.n_classes)


def confusion_matrix_of(metric: Metric, spec: InputSpec) -> ConfusionMatrix | None:
    """Return the settings of the confusion matrix that determines a metric of torchmetrics; else ``None``."""
    cls = type(metric)
    of_torchmetrics = cls.update in UPDATES and cls.__module__.startswith('torchmetrics.')
    is_global = getattr(metric, 'multidim_average', 'global') == 'global'
    n_classes = getattr(metric, 'num_classes', None)
    if spec.kind == 'labels' and of_torchmetrics and is_global and isinstance(n_classes, int):
        return ConfusionMatrix(n_classes, metric.ignore_index)  # type: ignore[arg-type]
    return None


def metric_state(metric: Metric, matrix: Tensor) -> dict[str, Tensor]:
    """Return the state of a metric after updates with the items of this confusion matrix."""
    if 'confmat' in metric.metric_state:
        return {'confmat': matrix}
    hit = matrix.diagonal()
    state = {'tp': hit, 'fp': matrix.sum(0) - hit, 'fn': matrix.sum(1) - hit}
    state['tn'] = matrix.sum() - sum(state.values())
    shape = metric.metric_state['tp'].shape  # type: ignore[union-attr]
    return {name: value if shape == value.shape else value.sum().reshape(shape) for name, value in state.items()}


def has_state(metric: Metric, state: dict[str, Tensor]) -> bool:
    """Return whether the state of a metric equals this one."""
    present = metric.metric_state
    return present.keys() == state.keys() and all(
        isinstance(value, Tensor) and torch.equal(value, state[name]) for name, value in present.items()
    )

"""Check that metrics and data have the same classes."""

from typing import Any

from torch import Tensor
from torchmetrics import Metric

from mmseg_nondecomp.evaluation._input_spec import InputSpec, inner_metrics
from mmseg_nondecomp.functional._inputs import IGNORED_BY_DEFAULT


def check_number_of_classes(name: str, metric: Metric, n_classes: int) -> None:
    """Raise ValueError if a metric is for another number of classes than the data set has."""
    for part in inner_metrics(metric):
        for attribute in ('num_classes', 'num_labels'):
            number = getattr(part, attribute, None)
            one_of_two = attribute == 'num_classes' and (number, n_classes) == (1, 2)
            if isinstance(number, int) and number != n_classes and not one_of_two:
                raise ValueError(
                    f'Parameter `{attribute}` of metric {name!r} ({type(part).__name__}) should be {n_classes}, the '
                    f'number of classes of the data set. Found {number}.'
                )


def check_batch(name: str, metric: Metric, spec: InputSpec, preds: Tensor, target: Tensor, checked: set) -> None:
    """Raise ValueError if labels are no classes of the metric, or its scores are of other classes.

    Settings that passed the check are added to ``checked`` and are not checked again for another metric.
    """
    part, n_classes = _classes_of(metric, spec)
    if n_classes is None or spec.form == 'multilabel':
        return
    ignore_index = getattr(part, 'ignore_index', None)
    if ignore_index is None and type(part).__module__.startswith('mmseg_nondecomp.'):
        ignore_index = IGNORED_BY_DEFAULT
    if (spec, n_classes, ignore_index) in checked:
        return
    who = f'metric {name!r} ({type(part).__name__})'
    expected = f'Labels for {who} should be from 0 to {n_classes - 1}, as its `num_classes` says.'
    if spec.kind == 'labels':
        label = _first_outside(preds, n_classes, None)
        if label is not None:
            raise ValueError(f'{expected} Found {label} in the predictions.')
    elif spec.form == 'classes' and preds.shape[1] != n_classes:
        raise ValueError(
            f'Parameter `num_classes` of {who} should be {preds.shape[1]}, the number of channels of the model. '
            f'Found {n_classes}.'
        )
    label = _first_outside(target, n_classes, ignore_index)
    if label is not None:
        hint = (
            f'If pixels of this label do not count, set `ignore_index={label}`.'
            if hasattr(part, 'ignore_index')
            else 'It has no `ignore_index`: where labels do not count, take MulticlassJaccardIndex or '
            'JaccardIndexByImage.'
        )
        raise ValueError(f'{expected} Found {label} in the ground truth. {hint}')
    checked.add((spec, n_classes, ignore_index))


def _classes_of(metric: Metric, spec: InputSpec) -> tuple[Metric, int | None]:
    """Return the metric that has a number of classes, and this number; 2 for a metric of two classes."""
    for part in inner_metrics(metric):
        n_classes: Any = getattr(part, 'num_classes', None)
        if isinstance(n_classes, int):
            return part, max(n_classes, 2)
    return inner_metrics(metric)[-1], 2 if spec.form in ('binary', 'channel') else None


def _first_outside(labels: Tensor, n_classes: int, ignore_index: int | None) -> int | None:
    """Return a label that is no class and is not ignored."""
    if labels.numel() == 0:
        return None
    outside = (labels < 0) | (labels >= n_classes)
    if ignore_index is not None:
        outside &= labels != ignore_index
    return int(labels[outside][0]) if outside.any() else None

"""Whether metrics and data have the same classes."""

from typing import Any

from torch import Tensor
from torchmetrics import Metric

from mmseg_nondecomp.evaluation.need import Need, inner_metrics
from mmseg_nondecomp.functional.items import IGNORED_BY_DEFAULT


def check_number_of_classes(name: str, metric: Metric, n_classes: int) -> None:
    """Raise ValueError if a metric is for another number of classes than the data set has."""
    for part in inner_metrics(metric):
        for attribute in ('num_classes', 'num_labels'):
            found = getattr(part, attribute, None)
            one_of_two = attribute == 'num_classes' and (found, n_classes) == (1, 2)
            if isinstance(found, int) and found != n_classes and not one_of_two:
                raise ValueError(
                    f'Parameter `{attribute}` of metric {name!r} ({type(part).__name__}) should be {n_classes}, the '
                    f'number of classes of the data set. Found {found}.'
                )


def check_batch(name: str, metric: Metric, need: Need, preds: Tensor, target: Tensor, checked: set) -> None:
    """Raise ValueError if labels are no classes of the metric, or its scores are of other classes.

    What was found right for one metric is added to ``checked`` and not looked at for the next.
    """
    part, n_classes = _classes_of(metric, need)
    if n_classes is None or need.form == 'multilabel':
        return
    ignore_index = getattr(part, 'ignore_index', None)
    if ignore_index is None and type(part).__module__.startswith('mmseg_nondecomp.'):
        ignore_index = IGNORED_BY_DEFAULT
    if (need, n_classes, ignore_index) in checked:
        return
    who = f'metric {name!r} ({type(part).__name__})'
    if need.kind == 'labels':
        found = _first_outside(preds, n_classes, None)
        if found is not None:
            raise ValueError(f'{_classes(who, n_classes)} Found {found} in the predictions.')
    elif need.form == 'classes' and preds.shape[1] != n_classes:
        raise ValueError(
            f'Parameter `num_classes` of {who} should be {preds.shape[1]}, the number of channels of the model. '
            f'Found {n_classes}.'
        )
    found = _first_outside(target, n_classes, ignore_index)
    if found is not None:
        hint = (
            f'If pixels of this label do not count, set `ignore_index={found}`.'
            if hasattr(part, 'ignore_index')
            else 'It has no `ignore_index`: where labels do not count, take MulticlassJaccardIndex or '
            'JaccardIndexByImage.'
        )
        raise ValueError(f'{_classes(who, n_classes)} Found {found} in the ground truth. {hint}')
    checked.add((need, n_classes, ignore_index))


def _classes(who: str, n_classes: int) -> str:
    return f'Labels for {who} should be from 0 to {n_classes - 1}, as its `num_classes` says.'


def _classes_of(metric: Metric, need: Need) -> tuple[Metric, int | None]:
    """The metric that has classes, and how many; its labels may be 0 and 1 without its saying so."""
    for part in inner_metrics(metric):
        n_classes: Any = getattr(part, 'num_classes', None)
        if isinstance(n_classes, int):
            return part, max(n_classes, 2)
    return inner_metrics(metric)[-1], 2 if need.form in ('binary', 'channel') else None


def _first_outside(labels: Tensor, n_classes: int, ignore_index: int | None) -> int | None:
    """A label that is no class and is not ignored."""
    if labels.numel() == 0:
        return None
    outside = (labels < 0) | (labels >= n_classes)
    if ignore_index is not None:
        outside &= labels != ignore_index
    return int(labels[outside][0]) if outside.any() else None

"""Choice of a threshold of a grid by a criterion, and its report."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import check_integer, check_number, check_option, is_integer
from mmseg_nondecomp.functional.decisions._promises import (
    allowed_misses,
    predictions_needed,
    required_mean,
    smallest_precise,
    units_needed,
)
from mmseg_nondecomp.functional.decisions._threshold_counts import ONE, ThresholdCounts

UNITS = ('item', 'image')
MEASURES = ('recall', 'precision', 'f_beta')
STARTS = (12.0, 8.0, 5.0, 2.5, 0.0, -2.5, -5.0, -8.0)  # log-odds at which tests of precision start


class ClassReport(NamedTuple):
    """Threshold of a class, and the data on which it was fitted."""

    channel: int  # channel of the class
    threshold: float  # NaN if there is none
    n_units: int  # positives for a recall of items; images with positives for a recall of images; else items
    needed: float | None  # number of units from which on the promise is possible; None without a promise
    recall: float  # recall at the threshold on these data: of items, or the mean over images
    precision: float  # precision at the threshold on these data, of items; NaN if none is predicted


class Criterion(NamedTuple):
    """Purpose of fitted thresholds: a promised recall or precision, or the best F-measure."""

    measure: str  # one of `MEASURES`
    value: float  # promised value, or beta of the F-measure
    confidence: float | None  # None for the F-measure
    unit: str  # one of `UNITS`
    n_new: float | None  # least number of units of new data: that of the fitted data if None, or math.inf

    def place(self, counts: ThresholdCounts, row: int) -> int | None:
        """Return the index of the threshold of a class; None if there is none."""
        above, reached, n_images = counts.above[row], counts.reached[row], int(counts.n_images[row])
        if self.measure == 'f_beta':
            return _best_f_beta(above, self.value)
        if self.measure == 'precision':
            hits, predicted = above[1].tolist(), above.sum(0).tolist()
            return smallest_precise(hits, predicted, self.value, self._confidence, starts_of(counts.thresholds))
        if self.unit == 'item':
            missed = above[1, 0] - above[1]
            return _last_true(missed <= self._allowed(int(above[1, 0])))
        mean = self._required(n_images)
        return None if mean == math.inf else _last_true(reached >= math.ceil(mean * n_images * 2**ONE))

    def report(self, counts: ThresholdCounts, row: int) -> ClassReport:
        """Return the report of a class."""
        place = self.place(counts, row)
        negatives, positives = counts.above[row]
        channel, n_images = int(counts.classes[row]), int(counts.n_images[row])
        n_units = n_images if self.unit == 'image' else int(positives[0])
        if self.measure != 'recall':
            n_units = int(negatives[0] + positives[0])
        if place is None:
            return ClassReport(channel, math.nan, n_units, self.needed(), math.nan, math.nan)
        hits, wrong = int(positives[place]), int(negatives[place])
        recall = hits / int(positives[0]) if positives[0] else math.nan
        if self.unit == 'image':
            recall = int(counts.reached[row, place]) / 2**ONE / n_images
        precision = hits / (hits + wrong) if hits + wrong else math.nan
        return ClassReport(channel, counts.thresholds[place].item(), n_units, self.needed(), recall, precision)

    def needed(self) -> float | None:
        """Return the number of units from which on the promise is possible; for precision, of predicted positives."""
        if self.measure == 'f_beta':
            return None
        if self.measure == 'precision':
            return predictions_needed(self.value, self._confidence, len(STARTS))
        return _units_needed(self)

    def is_possible(self, n: int) -> bool:
        """Return whether a promise of recall is possible with n units."""
        return self._allowed(n) >= 0 if self.unit == 'item' else self._required(n) < math.inf

    def shortage(self, reports: Sequence[ClassReport]) -> str:
        """Return why these classes have no threshold."""
        channels, found = [report.channel for report in reports], [report.n_units for report in reports]
        names = f'classes {channels}' if len(channels) > 1 else f'class {channels[0]}'
        if self.measure == 'f_beta':
            return f'There is no threshold for {names}: no item of them.'
        kept = f'a {self.measure} of {self.value} with confidence {self.confidence}'
        if self.measure == 'precision':
            return (
                f'There is no threshold for {names} that keeps {kept}. It needs at least {self.needed()} predicted '
                'positives, and more if some are wrong.'
            )
        unit = 'images with the class' if self.unit == 'image' else 'positives'
        new = '' if self.n_new is None else f' for `n_new={self.n_new}`'
        return (
            f'There is no threshold for {names} that keeps {kept}{new}. It needs at least {self.needed()} {unit}. '
            f'Found {found if len(found) > 1 else found[0]}.'
        )

    @property
    def _confidence(self) -> float:
        return 0.0 if self.confidence is None else self.confidence

    def _allowed(self, n: int) -> int:
        return allowed_misses(n, self.value, self._confidence, self.n_new)

    def _required(self, n: int) -> float:
        return required_mean(n, self.value, self._confidence, self.n_new)


def read_criterion(
    recall: Any, precision: Any, f_beta: Any, confidence: Any, unit: Any, n_new: Any, has_positions: bool | None
) -> Criterion:
    """Check the arguments of a fit and return the criterion; the unit depends on the layout once that is known."""
    given = {
        name: value for name, value in zip(MEASURES, (recall, precision, f_beta), strict=True) if value is not None
    }
    if len(given) != 1:
        raise ValueError(f'Exactly one of `recall`, `precision` and `f_beta` should be given. Found {given}.')
    ((measure, value),) = given.items()
    check_number(measure, value, '(0, inf)' if measure == 'f_beta' else '(0, 1)')
    check_number('confidence', confidence, '(0, 1)')
    if unit is not None:
        check_option('unit', unit, UNITS)
    if n_new is not None and not (is_integer(n_new) or n_new == math.inf):
        raise TypeError(f'Parameter `n_new` should be an integer, math.inf or None. Found {n_new!r}.')
    if n_new is not None and n_new != math.inf:
        check_integer('n_new', n_new, lowest=1)
    if measure != 'recall' and n_new not in (None, math.inf):
        raise ValueError(f'Parameter `n_new` is for `recall`; a {measure} is that of the population. Found {n_new}.')
    _check_unit(measure, unit, has_positions)
    default = 'image' if has_positions and measure == 'recall' else 'item'
    return Criterion(measure, value, None if measure == 'f_beta' else confidence, unit or default, n_new)


def starts_of(thresholds: Tensor) -> list[int]:
    """Return the places of `STARTS` in a grid."""
    starts = torch.tensor(STARTS, dtype=torch.float64).sigmoid().to(thresholds.dtype)
    return torch.bucketize(starts, thresholds).clamp(max=len(thresholds) - 1).tolist()


def _check_unit(measure: str, unit: str | None, has_positions: bool | None) -> None:
    """Raise ValueError if a measure or a layout does not have such units."""
    if measure != 'recall' and unit == 'image':
        raise ValueError(f"Parameter `unit` should be 'item' for `{measure}`. Found 'image'.")
    if has_positions is False and unit == 'image':
        raise ValueError("With `unit='image'`, logits should have positions, [N, C, H, W]. Found items.")
    if has_positions and measure == 'precision' and unit is None:
        raise ValueError(
            'A promise of `precision` is for independent items, and pixels of an image depend on each other. '
            "Pass logits of items, [N, C], or `unit='item'` if positions are independent. Found logits with positions."
        )


@cache
def _units_needed(criterion: Criterion) -> float:
    return units_needed(criterion.is_possible)


def _last_true(mask: Tensor) -> int | None:
    """Return the index of the last True; None if there is none."""
    places = mask.nonzero()
    return int(places[-1]) if len(places) else None


def _best_f_beta(above: Tensor, beta: float) -> int | None:
    """Return the place of the largest F-measure, the middle one of several; None without positives."""
    negatives, positives = above.double()
    if positives[0] == 0:
        return None
    value = (1 + beta**2) * positives / (beta**2 * positives[0] + positives + negatives)
    best = (value == value.max()).nonzero()
    return int(best[len(best) // 2])

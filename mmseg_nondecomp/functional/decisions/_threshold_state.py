"""Fitted thresholds as numbers, strings, lists and dictionaries, which JSON can hold."""

import math
from collections.abc import Sequence
from typing import Any

from mmseg_nondecomp.functional._inputs import check_integer, check_option, is_number
from mmseg_nondecomp.functional.decisions._threshold_fit import MEASURES, ClassReport, Criterion, read_criterion

INFINITE = 'inf'


def as_plain(values: Any) -> Any:
    """Return values with None for NaN and a string for infinity, which JSON does not have."""
    if isinstance(values, dict):
        return {name: as_plain(value) for name, value in values.items()}
    if isinstance(values, list):
        return [as_plain(value) for value in values]
    if isinstance(values, float) and not math.isfinite(values):
        return None if math.isnan(values) else INFINITE
    return values


def read_plain_criterion(plain: dict[str, Any]) -> Criterion:
    """Return a criterion; raise unless it is valid."""
    entries = _entries('criterion', plain, Criterion._fields)
    measure, value = entries.pop('measure'), entries.pop('value')
    check_option('measure', measure, MEASURES)
    if measure == 'f_beta':
        entries['confidence'] = 0.5  # there is none
    values = {name: value if name == measure else None for name in MEASURES}
    return read_criterion(**values, **entries, has_positions=None)


def read_plain_row(plain: dict[str, Any], values: Sequence[float]) -> ClassReport:
    """Return a row of a report; raise unless it is valid for a list of thresholds."""
    entries = _entries('report', plain, ClassReport._fields)
    for name in ('threshold', 'recall', 'precision'):
        entries[name] = math.nan if entries[name] is None else entries[name]
        if not is_number(entries[name]):
            raise TypeError(f'Entry `{name}` should be a number or None. Found {plain[name]!r}.')
    row = ClassReport(**entries)
    check_integer('channel', row.channel, 0, len(values) - 1)
    check_integer('n_units', row.n_units, 0)
    if row.needed is not None and not is_number(row.needed):
        raise TypeError(f'Entry `needed` should be a number or None. Found {row.needed!r}.')
    return row


def _entries(name: str, plain: Any, fields: Sequence[str]) -> dict[str, Any]:
    """Return the entries of a dictionary; raise unless they are these fields."""
    if not isinstance(plain, dict) or set(plain) != set(fields):
        raise ValueError(f'Entry `{name}` should be a dictionary with entries {list(fields)}. Found {plain!r}.')
    return {field: math.inf if value == INFINITE else value for field, value in plain.items()}

"""The experiments behind ``tools/reproduce.py``, one file for each."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure


class Reproduction(NamedTuple):
    """What an experiment leaves."""

    results: dict[str, Any]
    """All numbers, for the JSON."""
    rows: list[dict[str, Any]]
    """The table to print."""
    found: str
    """What was found, in a sentence or two made of the numbers."""
    figure: Figure
    """The picture."""


def spread_over_seeds(values: Sequence[float]) -> dict[str, float]:
    """Mean and standard deviation."""
    return {'mean': statistics.fmean(values), 'std': statistics.stdev(values) if len(values) > 1 else 0.0}

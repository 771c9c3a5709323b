"""Experiments of ``tools/reproduce.py``, one file each."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure


class Reproduction(NamedTuple):
    """Result of an experiment."""

    results: dict[str, Any]
    """Numbers for the JSON."""
    rows: list[dict[str, Any]]
    """Table to print."""
    found: str
    """Findings in one or two sentences generated from the numbers."""
    figure: Figure
    """Picture."""


def spread_over_seeds(values: Sequence[float]) -> dict[str, float]:
    """Return mean and standard deviation."""
    return {'mean': statistics.fmean(values), 'std': statistics.stdev(values) if len(values) > 1 else 0.0}

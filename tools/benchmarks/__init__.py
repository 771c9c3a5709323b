"""The benchmarks behind ``tools/benchmark.py``, one file for each."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor

Step = Callable[[], Any]
Row = dict[str, Any]


class Case(NamedTuple):
    """What is timed in turns: several ways to do one thing with the same data."""

    group: str
    """What is done; the cases of a group differ in size."""
    label: str
    """The data, in short."""
    size: int
    """How large they are."""
    unit: str
    """What the size counts."""
    steps: Mapping[str, Step]
    """The candidates by name. Times are compared with that of the first."""
    data: Tensor | None = None
    """What the peak memory is compared with."""
    also: Callable[[Row], Row] = lambda row: {}
    """Further columns of a row, asked for when all has been timed."""

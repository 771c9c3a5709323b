"""Benchmarks of ``tools/benchmark.py``, one file each."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor

Step = Callable[[], Any]
Row = dict[str, Any]


class Case(NamedTuple):
    """One measurement: several candidates for the same task, timed in turns on the same data."""

    group: str
    """Task; the cases of a group differ in size."""
    label: str
    """Short description of the data."""
    size: int
    """Size of the data."""
    unit: str
    """Unit of the size."""
    steps: Mapping[str, Step]
    """Candidates by name. Times are relative to that of the first."""
    data: Tensor | None = None
    """Tensors to which the peak memory is compared."""
    also: Callable[[Row], Row] = lambda row: {}
    """Further columns of a row, computed after the timing."""

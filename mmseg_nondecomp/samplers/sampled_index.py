"""Index of an image with the class that it was sampled for."""

from __future__ import annotations

from typing import Any


class SampledIndex(int):
    """An index into a data set with the class that it was drawn for.

    It is an integer, so stock data sets accept it. Those of MMEngine pass it to transforms as
    ``results['sample_idx']``, also in worker processes; their wrappers subtract an offset or take a remainder, which
    keeps the class.

    Args:
        value: The index.
        cls: The class.
        place: A place of the class in the image: (y, x) in units of its height and width. None if not known.

    Example:
        >>> index = SampledIndex(1007, cls=3)
        >>> index, (index - 1000) % 5, ((index - 1000) % 5).cls
        (1007, 2, 3)
    """

    cls: int
    place: tuple[float, float] | None

    def __new__(type_, value: int, cls: int, place: tuple[float, float] | None = None) -> SampledIndex:  # noqa: D102
        self = super().__new__(type_, value)
        self.cls = cls
        self.place = place
        return self

    def __add__(self, other: Any) -> Any:
        return self._moved(super().__add__(other))

    def __sub__(self, other: Any) -> Any:
        return self._moved(super().__sub__(other))

    def __mod__(self, other: Any) -> Any:
        return self._moved(super().__mod__(other))

    def __reduce__(self) -> tuple:
        return SampledIndex, (int(self), self.cls, self.place)

    def _moved(self, value: Any) -> Any:
        return value if value is NotImplemented else SampledIndex(value, self.cls, self.place)

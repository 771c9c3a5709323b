"""Values of metrics as named numbers and as a table of the classes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor


class Report:
    """Numbers by name, and columns of the values of each class, from the values of metrics by name.

    A scalar has the name of its metric, an entry of a dict ``<metric>.<key>``, the value of a class
    ``<metric>.<class>``. Other values, such as a confusion matrix, are not changed.
    """

    def __init__(self, values: Mapping[str, Any], classes: Sequence[str] | None) -> None:
        self.classes = classes
        self.numbers: dict[str, Any] = {}
        self.columns: dict[str, dict[str, float]] = {}
        for name, value in values.items():
            self._add(name, value)

    def table(self) -> str:
        """Return a table of the values of each class, one row a class; empty if there are none."""
        if not self.columns:
            return ''
        names = list(dict.fromkeys(name for column in self.columns.values() for name in column))
        columns = self.columns.values()
        rows = [['class', *self.columns]]
        rows += [[name, *(f'{column[name]:.4f}' if name in column else '' for column in columns)] for name in names]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ['  '.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return '\n'.join([lines[0], '-' * len(lines[0]), *lines[1:]])

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in _of_observed_classes(value).items():
                self._add(f'{name}.{key}', item)
        elif isinstance(value, _OfClasses):
            self._add_column(name, [self.classes[c] if self.classes else str(c) for c in value.classes], value.values)
        elif isinstance(value, Tensor) and value.numel() == 1:
            self._add_number(name, value.item())
        elif isinstance(value, Tensor) and value.dim() == 1 and len(value) == len(self.classes or value):
            self._add_column(name, list(self.classes or map(str, range(len(value)))), value.tolist())
        else:
            self._add_number(name, value.cpu() if isinstance(value, Tensor) else value)

    def _add_column(self, name: str, classes: list[str], values: list[float]) -> None:
        self.columns[name] = dict(zip(classes, values, strict=True))
        for of_class, value in self.columns[name].items():
            self._add_number(f'{name}.{of_class}', value)

    def _add_number(self, name: str, value: Any) -> None:
        if name in self.numbers:
            raise ValueError(f'Results should have different names. Found two called {name!r}: rename a metric.')
        self.numbers[name] = value


class _OfClasses(NamedTuple):
    classes: list[int]
    values: list[float]


def _of_observed_classes(value: Mapping[str, Any]) -> dict[str, Any]:
    """Use the list of classes that `MeanAveragePrecision` returns; drop the values of -1 that it does not compute."""
    classes = value.get('classes')
    if not isinstance(classes, Tensor) or classes.is_floating_point():
        return dict(value)
    observed = classes.reshape(-1).tolist()
    items: dict[str, Any] = {}
    for key, item in value.items():
        if key.endswith('_per_class') and isinstance(item, Tensor):
            if item.numel() == len(observed) and not (item == -1).all():
                items[key] = _OfClasses(observed, item.reshape(-1).tolist())
        elif key != 'classes':
            items[key] = item
    return items

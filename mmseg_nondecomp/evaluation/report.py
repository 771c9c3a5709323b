"""Values of metrics as numbers with names, and as a table of the classes."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor


class Report:
    """Numbers by name, and what there is for each class.

    A scalar has the name of its metric, an entry of a dict ``<metric>.<key>``, the value of a class
    ``<metric>.<class>``. Anything else, such as a confusion matrix, stays as it is.

    Args:
        values: The values of metrics, by name.
        classes: The names of the classes, or None where they have none.

    Raises:
        ValueError: If two values have the same name.
    """

    def __init__(self, values: Mapping[str, Any], classes: Sequence[str] | None) -> None:
        self.classes = classes
        self.numbers: dict[str, Any] = {}
        self.columns: dict[str, dict[str, float]] = {}
        for name, value in values.items():
            self._add(name, value)

    def table(self) -> str:
        """The values of each class, one row a class; empty if there are none."""
        if not self.columns:
            return ''
        names = list(dict.fromkeys(name for column in self.columns.values() for name in column))
        rows = [['class', *self.columns]]
        rows += [[name, *(_shown(column.get(name)) for column in self.columns.values())] for name in names]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ['  '.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return '\n'.join([lines[0], '-' * len(lines[0]), *lines[1:]])

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in _of_observed_classes(value).items():
                self._add(f'{name}.{key}', item)
        elif isinstance(value, _OfClasses):
            names = [self.classes[c] if self.classes else str(c) for c in value.classes]
            self._add_column(name, dict(zip(names, value.values, strict=True)))
        elif isinstance(value, Tensor) and value.numel() == 1:
            self._add_number(name, value.item())
        elif isinstance(value, Tensor) and value.dim() == 1 and len(value) == len(self.classes or value):
            names = list(self.classes or map(str, range(len(value))))
            self._add_column(name, dict(zip(names, value.tolist(), strict=True)))
        else:
            self._add_number(name, value.cpu() if isinstance(value, Tensor) else value)

    def _add_column(self, name: str, column: dict[str, float]) -> None:
        self.columns[name] = column
        for of_class, value in column.items():
            self._add_number(f'{name}.{of_class}', value)

    def _add_number(self, name: str, value: Any) -> None:
        if name in self.numbers:
            raise ValueError(f'Results should have different names. Found two called {name!r}: rename a metric.')
        self.numbers[name] = value


class _OfClasses:
    """Values of some of the classes."""

    def __init__(self, classes: list[int], values: list[float]) -> None:
        self.classes = classes
        self.values = values


def _of_observed_classes(value: Mapping[str, Any]) -> dict[str, Any]:
    """`MeanAveragePrecision` says which classes it has met, and gives -1 for what was not asked for."""
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


def _shown(value: float | None) -> str:
    return '' if value is None else f'{value:.4f}'

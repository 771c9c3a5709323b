"""Tables of results, as rows and as Markdown."""

import math
from collections.abc import Sequence
from typing import Any

from benchmarks import Row

BETWEEN = ' · '
IN_BINS = (
    *('measured', 'unit', 'size', 'case', 'candidate', 'rounds'),
    *('median ms', 'quartiles ms', 'IQR ms', 'IQR of that'),
)


def compact(results: Sequence[Row]) -> list[Row]:
    """Return a row for each candidate of a group, with its times from the smallest to the largest size in one cell.

    The other columns are for the largest size. The growth is the exponent of the time as a power of the size, fitted to
    all sizes.
    """
    rows = []
    for group in dict.fromkeys(row['measured'] for row in results):
        in_group = [row for row in results if row['measured'] == group]
        cases = list(dict.fromkeys(row['case'] for row in in_group))
        for candidate in dict.fromkeys(row['candidate'] for row in in_group):
            own = {row['case']: row for row in in_group if row['candidate'] == candidate}
            rows.append(compact_row(group, candidate, [own.get(case, {'case': case}) for case in cases]))
    return rows


def compact_row(group: str, candidate: str, cells: Sequence[Row]) -> Row:
    """Return the row of a candidate; cells without a time are for sizes that were not measured."""
    timed = [cell for cell in cells if 'median ms' in cell]
    last = timed[-1]
    against = against_of(last)
    row: Row = {
        'measured': group,
        'candidate': candidate,
        'size': BETWEEN.join(cell['case'] for cell in cells),
        'ms': BETWEEN.join(number(cell.get('median ms', '–')) for cell in cells),
        'IQR of ms': BETWEEN.join(number(cell.get('IQR ms', '–')) for cell in cells),
        'relative': BETWEEN.join(number(cell.get(against, '–')) for cell in cells),
        'IQR of relative': BETWEEN.join(number(cell.get('IQR of that', '–')) for cell in cells),
    }
    sizes = [cell['size'] for cell in timed]
    if len(set(sizes)) > 1:
        row['growth'] = f'{last["unit"]}^{slope(sizes, [cell["median ms"] for cell in timed]):.2f}'
    return row | {name: number(last[name]) for name in last if name not in (*IN_BINS, against)}


def against_of(row: Row) -> str:
    """Return the name of the column with the time relative to that of the first candidate."""
    return next(name for name in row if name.startswith('time against '))


def slope(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Return the exponent of the time as a power of the size, by least squares of the logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(time) for time in times]
    middle = sum(x) / len(x)
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


def number(value: Any) -> str:
    """Return a cell with three significant digits of a float, without an exponent."""
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f'{value:.{max(digits, 0)}f}' if value else '0'


def filled_up(rows: Sequence[Row]) -> list[Row]:
    """Return the same rows with the columns of all of them; missing cells are empty."""
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name, '') for name in columns} for row in rows]


def table(results: Sequence[Row]) -> str:
    """Return the results in Markdown, one table for each set of columns."""
    blocks, columns = [], None
    for row in results:
        if columns != list(row):
            columns = list(row)
            blocks += ['', f'| {" | ".join(columns)} |', f'|{"---|" * len(columns)}']
        blocks.append(f'| {" | ".join(str(value) for value in row.values())} |')
    return '\n'.join(blocks).strip()

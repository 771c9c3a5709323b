"""Write the tables of the documentation from results: ``python tools/fill_tables.py [--check]``.

A table of ``README.md``, ``docs/`` or ``configs/*/README.md`` is between two comments::

    <!-- table: benchmarks/lmp.json columns="candidate, ms" where="measured=the weights of losses" -->
    <!-- end of table -->

Its rows are those under "table" in the file, whose path is relative to the root of the repository. ``columns`` selects
and orders columns; ``where`` selects rows by the text in a column, with ``;`` between several conditions. With
``--check`` nothing is written, and an outdated table is an error.
"""

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.table import filled_up, number, table
from markdown_text import escaped

ROOT = Path(__file__).parents[1]
DOCUMENTS = ('README.md', 'docs/**/*.md', 'configs/*/README.md')
START = re.compile(r'^<!-- table: (?P<arguments>.*) -->$')
END = '<!-- end of table -->'


def main() -> None:
    """Write the tables, or check that they are up to date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--check', action='store_true', help='write nothing; fail if a table is out of date')
    args = parser.parse_args()
    try:
        old = outdated(ROOT)
    except ValueError as error:
        sys.exit(str(error))
    for document, text in old.items():
        print(f'{document.relative_to(ROOT)} {"has a table that is out of date" if args.check else "is written"}')
        if not args.check:
            document.write_text(text)
    if args.check and old:
        sys.exit('Run `python tools/fill_tables.py`.')


def outdated(root: Path) -> dict[Path, str]:
    """Return the documents with outdated tables, and their new text."""
    found = {}
    for document in sorted({path for pattern in DOCUMENTS for path in root.glob(pattern)}):
        text = document.read_text()
        try:
            new = filled(text, root)
        except ValueError as error:
            raise ValueError(f'{document.relative_to(root)}, {error}') from error
        if new != text:
            found[document] = new
    return found


def filled(text: str, root: Path) -> str:
    """Return a document with its tables filled from the results.

    Raises:
        ValueError: If a table has no end, or its results do not exist.
    """
    return '\n'.join(lines_of(text, root)) + ('\n' if text.endswith('\n') else '')


def lines_of(text: str, root: Path) -> Iterator[str]:
    """Yield the lines of the document with new tables."""
    fence, begun = '', 0
    for place, line in enumerate(text.splitlines(), 1):
        if not begun and line.startswith(('```', '~~~')):
            fence = '' if line.startswith(fence or '\0') else fence or line[:3]
        start = None if fence else START.match(line)
        if begun and start:
            break
        if begun and line != END:
            continue
        begun = 0
        yield line
        if start:
            begun = place
            try:
                yield from ('', table_of(start['arguments'], root), '')
            except ValueError as error:
                raise ValueError(f'line {place}: {error}') from error
    if begun:
        raise ValueError(f'line {begun}: a table should end with "{END}".')


def table_of(arguments: str, root: Path) -> str:
    """Return the table described by a comment."""
    name, *settings = shlex.split(arguments)
    chosen = dict(setting.partition('=')[::2] for setting in settings)
    if unknown := chosen.keys() - {'columns', 'where'}:
        raise ValueError(f'a table has `columns` and `where`. Found {", ".join(sorted(unknown))}.')
    if not (root / name).resolve().is_relative_to(root.resolve()):
        raise ValueError(f'{name} is not in the repository.')
    rows = rows_of(root / name, name)
    for condition in filter(None, chosen.get('where', '').split(';')):
        column, _, value = (part.strip() for part in condition.partition('='))
        rows = [row for row in rows if str(row.get(column, '')) == value]
        if not rows:
            raise ValueError(f'{name} has no rows where {column} is "{value}".')
    rows = filled_up(rows)
    columns = [column.strip() for column in chosen['columns'].split(',')] if 'columns' in chosen else list(rows[0])
    if missing := [column for column in columns if column not in rows[0]]:
        raise ValueError(f'{name} has no column {", ".join(missing)}, but {", ".join(rows[0])}.')
    return table([{escaped(column): cell(row[column]) for column in columns} for row in rows])


def rows_of(path: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows under "table" in a file of results."""
    if not path.is_file():
        raise ValueError(f'there is no {name}.')
    report = json.loads(path.read_text())
    rows = report.get('table') if isinstance(report, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f'{name} has no rows under "table".')
    return rows


def cell(value: Any) -> str:
    """Return a number with three significant digits, or a text with Markdown characters escaped."""
    return '' if value is None else escaped(number(value))


if __name__ == '__main__':
    main()

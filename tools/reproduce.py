"""Reproduce figures and numbers of the papers: ``python tools/reproduce.py NAME...``; without a name, list them.

Each reproduction writes ``<name>.png`` and ``<name>.json`` to the folder ``--out``, and prints its table and findings,
including claims that do not hold. In *-speed only ratios are meaningful, on an otherwise idle machine.
"""

import argparse
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks.table import table
from reproductions.catalogue import REPRODUCTIONS
from whole_file import whole_file, write_whole

DIGITS = 6
"""Significant digits in the JSON: more than the experiments resolve, few enough to agree between machines."""


def main() -> None:
    """Run the named reproductions, or list all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', metavar='NAME', help='see --list')
    parser.add_argument('--all', action='store_true', help='run all reproductions, which takes hours')
    parser.add_argument('--list', action='store_true', help='list the reproductions with their content and duration')
    parser.add_argument('--seeds', nargs='+', type=int, default=list(range(10)))
    parser.add_argument('--out', type=Path, default=Path('benchmarks/reproduce'))
    args = parser.parse_args()
    unknown = set(args.names) - set(REPRODUCTIONS)
    if unknown:
        parser.error(f'no reproduction is called {", ".join(sorted(unknown))}')
    names = list(REPRODUCTIONS) if args.all else args.names
    if args.list or not names:
        print(listing())
        return
    args.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        run(name, args.seeds, args.out)


def listing() -> str:
    """Return the list of reproductions."""
    lines = [f'{name} ({e.source}; {e.takes})\n    {e.shows}' for name, e in REPRODUCTIONS.items()]
    return '\n'.join(['Times are of one seed on 2 cores; most grow with the number of --seeds.', *lines])


def run(name: str, seeds: Sequence[int], out: Path) -> None:
    """Run one reproduction; write its two files and print its results."""
    done = REPRODUCTIONS[name].run(seeds)
    rows = [readable(row) for row in done.rows]
    report = {'metadata': metadata(seeds), 'found': done.found, 'table': rows, 'results': rounded(done.results)}
    numbers, picture = (out / f'{name}.{suffix}' for suffix in ('json', 'png'))
    write_whole(numbers, json.dumps(report, indent=1, ensure_ascii=False) + '\n')
    with whole_file(picture) as path:
        done.figure.savefig(path, dpi=110)
    print(f'{name}: {numbers}, {picture}\n\n{table(rows)}\n\n{done.found}\n', flush=True)


def metadata(seeds: Sequence[int]) -> dict[str, Any]:
    """Return the metadata that the numbers depend on."""
    return {
        'torch': torch.__version__,
        'python': platform.python_version(),
        'machine': platform.machine(),
        'device': 'cpu',
        'threads': torch.get_num_threads(),
        'seeds': list(seeds),
    }


def rounded(value: Any) -> Any:
    """Return the same nested lists and dicts with floats rounded to a few significant digits."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return float(f'{value:.{DIGITS}g}') if isinstance(value, float) else value


def readable(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the table with few digits, and each mean and standard deviation in one cell."""

    def cell(value: Any) -> Any:
        if isinstance(value, dict):
            return f'{value["mean"]:.3g} ± {value["std"]:.2g}'
        return f'{value:.3g}' if isinstance(value, float) else value

    return {title: cell(value) for title, value in row.items()}


if __name__ == '__main__':
    main()

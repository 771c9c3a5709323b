"""Reproduce figures and numbers of the papers: ``python tools/reproduce.py NAME...``; without a name, list them.

Each reproduction writes ``<name>.png`` and ``<name>.json`` to the folder ``--out``, and prints its table and findings,
including claims that do not hold. In *-speed only ratios are meaningful, on an otherwise idle machine. ``--quick`` runs
the short version of those that have one; its files go to ``work_dirs/quick`` by default.
"""

import argparse
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks.table import table
from reproductions import Reproduction
from reproductions.catalogue import REPRODUCTIONS
from whole_file import whole_file, write_whole

OUT, QUICK_OUT = Path('benchmarks/reproduce'), Path('work_dirs/quick')
DIGITS = 6
"""Significant digits in the JSON: more than the experiments resolve, few enough to agree between machines."""


def main() -> None:
    """Run the named reproductions, or list all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', metavar='NAME', help='see --list')
    parser.add_argument('--all', action='store_true', help='run all reproductions, which takes hours')
    parser.add_argument('--list', action='store_true', help='list the reproductions with their content and duration')
    parser.add_argument('--seeds', nargs='+', type=int, help='default: 0 to 9, with --quick 0 and 1')
    parser.add_argument('--quick', action='store_true', help='run the short version, in minutes')
    parser.add_argument('--out', type=Path, help='default: benchmarks/reproduce, with --quick work_dirs/quick')
    args = parser.parse_args()
    unknown = set(args.names) - set(REPRODUCTIONS)
    if unknown:
        parser.error(f'no reproduction is called {", ".join(sorted(unknown))}')
    names = list(REPRODUCTIONS) if args.all else args.names
    if args.list or not names:
        print(listing())
        return
    if args.quick and (without := [name for name in names if REPRODUCTIONS[name].quick is None]):
        parser.error(f'there is no --quick for {", ".join(without)}')
    seeds = args.seeds or list(range(2 if args.quick else 10))
    out = args.out or (QUICK_OUT if args.quick else OUT)
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        (run_quick if args.quick else run)(name, seeds, out)


def listing() -> str:
    """Return the list of reproductions."""
    lines = [f'{name} ({e.source}; {e.takes})\n    {e.shows}' for name, e in REPRODUCTIONS.items()]
    return '\n'.join(['Times are of one seed on 2 cores; most grow with the number of --seeds.', *lines])


def run(name: str, seeds: Sequence[int], out: Path) -> None:
    """Run one reproduction; write its two files and print its results."""
    write(name, REPRODUCTIONS[name].run(seeds), seeds, out)


def run_quick(name: str, seeds: Sequence[int], out: Path) -> None:
    """Run the short version of one reproduction; write its two files and print its results."""
    write(name, REPRODUCTIONS[name].quick(seeds), seeds, out)


def write(name: str, done: Reproduction, seeds: Sequence[int], out: Path) -> None:
    """Write the two files of a reproduction and print its results."""
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

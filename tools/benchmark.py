"""Speed of losses, samplers, metrics and decisions compared with their peers: ``python tools/benchmark.py [NAME...]``.

Only ratios within one run are comparable, not times of different machines or days. Candidates are timed in turns, so
that a busy machine slows all of them equally, for as many rounds as fit into ``--seconds`` per size, at least three.
Each benchmark writes ``<name>.json`` and ``<name>.png``, or only the numbers if it counts or times processes. The
documentation shows the rows under "table" (``tools/fill_tables.py``).

Peers that are not installed are skipped. The extra ``bench`` installs some of them. The others depend on torchvision or
another torch, which their losses do not need. Install them with ``pip install --no-deps --target work_dirs/peers libauc
segmentation-models-pytorch`` and set ``PYTHONPATH=work_dirs/peers``.
"""

import argparse
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from benchmarks.measure import measured
from benchmarks.peers import versions
from benchmarks.plot import draw
from benchmarks.table import compact, filled_up, table
from whole_file import whole_file, write_whole

from benchmarks import (
    Case,
    Row,
    ap,
    busy,
    decisions,
    launches,
    lmp,
    lovasz,
    lovasz_hinge,
    metric_updates,
    metrics,
    overhead,
    s_measure,
    sampling,
    soft_iou,
    topk,
    traffic,
    zero_one,
)

BENCHMARKS: dict[str, Callable[[bool], Iterator[Case]]] = {
    'ap': ap.cases,
    'decisions': decisions.cases,
    'lmp': lmp.cases,
    'lovasz': lovasz.cases,
    'lovasz-hinge': lovasz_hinge.cases,
    'metric-updates': metric_updates.cases,
    'metrics': metrics.cases,
    'overhead': overhead.cases,
    's-measure': s_measure.cases,
    'sampling': sampling.cases,
    'soft-iou': soft_iou.cases,
    'topk': topk.cases,
    'zero-one': zero_one.cases,
}
COUNTS: dict[str, Callable[[bool], list[Row]]] = {'launches': launches.rows, 'traffic': traffic.rows}
"""Benchmarks that count instead of time; table only."""
IN_PROCESSES: dict[str, Callable[[bool], list[Row]]] = {'busy': busy.rows}
"""Benchmarks timed in separate processes; table only."""


def main() -> None:
    """Run the named benchmarks, or all."""
    everything: dict[str, Callable[[bool], Any]] = BENCHMARKS | COUNTS | IN_PROCESSES
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', help=f'names out of {", ".join(everything)} (default: all)')
    parser.add_argument('--list', action='store_true', help='list the benchmarks and exit')
    parser.add_argument('--quick', action='store_true', help='tiny sizes and two rounds, to check that everything runs')
    parser.add_argument('--repeats', type=int, default=30, help='maximum number of rounds')
    parser.add_argument('--seconds', type=float, default=2, help='seconds per size after the first three rounds')
    parser.add_argument('--threads', type=int, default=torch.get_num_threads())
    parser.add_argument('--out', type=Path, default=Path('benchmarks'))
    args = parser.parse_args()
    unknown = set(args.names) - set(everything)
    if unknown:
        parser.error(f'no benchmark is called {", ".join(sorted(unknown))}')
    if args.repeats < 2:
        parser.error(f'--repeats should be at least 2. Found {args.repeats}.')
    if args.list:
        for name, function in everything.items():
            print(f'{name:15} {sys.modules[function.__module__].__doc__}')
        return
    if args.quick:
        args.repeats = 2
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or everything:
        if name in BENCHMARKS:
            run(name, args)
        else:
            leave_table(name, everything[name], args)


def run(name: str, args: argparse.Namespace) -> None:
    """Measure, and write numbers and a picture."""
    about = metadata(args)
    begin = time.monotonic()
    results: list[Row] = []
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # warnings of the peers about themselves
        for case in BENCHMARKS[name](args.quick):
            print(f'{name}: {case.group}, {case.label} ...', end='', file=sys.stderr, flush=True)
            start = time.monotonic()
            results += measured(case, args.repeats, args.seconds)
            print(f' {time.monotonic() - start:.1f} s', file=sys.stderr, flush=True)
    rows = compact(results)
    about['seconds'] = round(time.monotonic() - begin)
    report = {'metadata': about, 'table': rows, 'results': results}
    numbers, picture = (args.out / f'{name}.{suffix}' for suffix in ('json', 'png'))
    write_whole(numbers, json.dumps(report, indent=1, ensure_ascii=False) + '\n')
    with whole_file(picture) as path:
        draw(results, f'python tools/benchmark.py {name}').savefig(path, dpi=110)
    print(f'{name}: {numbers}, {picture}\n\n{table(filled_up(rows))}\n', flush=True)


def leave_table(name: str, function: Callable[[bool], list[Row]], args: argparse.Namespace) -> None:
    """Write only the numbers; counts are the same on every machine."""
    about = {'torch': torch.__version__, 'quick': args.quick} if name in COUNTS else metadata(args)
    rows = filled_up(function(args.quick))
    numbers = args.out / f'{name}.json'
    write_whole(numbers, json.dumps({'metadata': about, 'table': rows}, indent=1, ensure_ascii=False) + '\n')
    print(f'{name}: {numbers}\n\n{table(rows)}\n', flush=True)


def metadata(args: argparse.Namespace) -> dict[str, Any]:
    """Return the metadata that the numbers depend on."""
    return {
        'torch': torch.__version__,
        'python': platform.python_version(),
        'machine': platform.machine(),
        'device': 'cpu',
        'threads': args.threads,
        'load of the machine before': round(os.getloadavg()[0], 1) if hasattr(os, 'getloadavg') else None,
        'most rounds': args.repeats,
        'quick': args.quick,
        'peers': versions(),
    }


if __name__ == '__main__':
    main()

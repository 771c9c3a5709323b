"""Figures and numbers of the papers: ``python tools/reproduce.py [NAME...]``.

Each reproduction writes ``<name>.png`` and ``<name>.json`` to the folder ``--out``, and prints its table and what was
found. Where a paper's claim does not hold, it says so. The experiment topk-noise trains small networks: half a minute
for each seed and noise. Those of direct-linear, direct-linear-noise, direct-synthetic and direct-synthetic-large search
a grid: a minute and a half for each seed, on one core. s-sky takes as long for a seed; s-digits and s-classifiers train
all seeds at once, for minutes. In *-speed ratios count, on a machine that does nothing else.
"""

import argparse
import json
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from benchmark import table
from reproductions import (
    Reproduction,
    direct_loss,
    direct_speed,
    lovasz_prox,
    lovasz_synthetic,
    s_classifiers,
    s_digits,
    s_sky,
    topk_noise,
    topk_speed,
    topk_stability,
)

DIGITS = 6
"""Significant digits in the JSON: more than the experiments resolve, fewer than machines differ in."""


def main() -> None:
    """Run the reproductions that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', help=f'which of {", ".join(REPRODUCTIONS)} (default: all)')
    parser.add_argument('--seeds', nargs='+', type=int, default=list(range(10)))
    parser.add_argument('--out', type=Path, default=Path('benchmarks/reproduce'))
    args = parser.parse_args()
    unknown = set(args.names) - set(REPRODUCTIONS)
    if unknown:
        parser.error(f'no reproduction is called {", ".join(sorted(unknown))}')
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or REPRODUCTIONS:
        done = REPRODUCTIONS[name](args.seeds)
        report = {'metadata': metadata(args.seeds), 'found': done.found, 'results': rounded(done.results)}
        numbers, picture = (args.out / f'{name}.{suffix}' for suffix in ('json', 'png'))
        numbers.write_text(json.dumps(report, indent=1, ensure_ascii=False) + '\n')
        done.figure.savefig(picture, dpi=110)
        rows = [readable(row) for row in done.rows]
        print(f'{name}: {numbers}, {picture}\n\n{table(rows)}\n\n{done.found}\n', flush=True)


def metadata(seeds: Sequence[int]) -> dict[str, Any]:
    """What one needs to know to read the numbers."""
    return {
        'torch': torch.__version__,
        'python': platform.python_version(),
        'machine': platform.machine(),
        'device': 'cpu',
        'threads': torch.get_num_threads(),
        'seeds': list(seeds),
    }


def rounded(value: Any) -> Any:
    """The same nested lists and dicts with floats of a few significant digits."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return float(f'{value:.{DIGITS}g}') if isinstance(value, float) else value


def readable(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table with few digits, and a mean with its standard deviation in one cell."""

    def cell(value: Any) -> Any:
        if isinstance(value, dict):
            return f'{value["mean"]:.3g} ± {value["std"]:.2g}'
        return f'{value:.3g}' if isinstance(value, float) else value

    return {title: cell(value) for title, value in row.items()}


REPRODUCTIONS: dict[str, Callable[[Sequence[int]], Reproduction]] = {
    'direct-linear': direct_loss.linear,
    'direct-linear-noise': direct_loss.linear_noise,
    'direct-speed': direct_speed.reproduce,
    'direct-synthetic': direct_loss.synthetic,
    'direct-synthetic-large': direct_loss.synthetic_large,
    'lovasz-synthetic': lovasz_synthetic.reproduce,
    'lovasz-prox': lovasz_prox.reproduce,
    's-classifiers': s_classifiers.reproduce,
    's-digits': s_digits.reproduce,
    's-sky': s_sky.reproduce,
    'topk-noise': topk_noise.reproduce,
    'topk-speed': topk_speed.reproduce,
    'topk-stability': topk_stability.reproduce,
}

if __name__ == '__main__':
    main()

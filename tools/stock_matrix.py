"""Stock models of MMSegmentation and MMDetection with the losses of this package: ``python tools/stock_matrix.py``.

Each config is shrunk (narrow layers, few classes, images of 64 pixels, no weights). For each slot of its heads and each
loss that belongs there, one training step and one prediction run on random data, beside the stock loss. The outcome is

- ``ok``: all losses and gradients are finite, and scores to which the stock loss descends have a lower loss than
  inverted ones. A `MaskLoss` is also compared with the losses of its masks one by one;
- ``refused``: the first sentence of the message of this package;
- ``warns``: the same of its warning;
- ``not used``: the stock head does not call the loss of this slot;
- ``control fails``: the stock loss does not run here, with the reason;
- ``FAIL``: anything else.
"""

import argparse
import json
import logging
import sys
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from stock import Row
from stock.catalogue import StockModel, stock_models
from stock.cells import FAIL, REFUSED, STOCK, WARNS, rows_of
from stock.summary import table
from whole_file import write_whole

TOOLBOXES = ('mmseg', 'mmdet')


def main() -> None:
    """Run the matrix or a part of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', help='parts of the paths of configs, such as encnet/ (default: all)')
    parser.add_argument('--toolbox', choices=TOOLBOXES, help='run the configs of one toolbox')
    parser.add_argument('--list', action='store_true', help='list the configs and exit')
    parser.add_argument('--out', type=Path, help='file of results (default: benchmarks/stock.json if all configs run)')
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    stocks, folders = [], {}
    for toolbox in [args.toolbox] if args.toolbox else TOOLBOXES:
        models, folders[toolbox] = stock_models(toolbox)
        stocks += [each for each in models if not args.names or any(name in each.config for name in args.names)]
    if not stocks:
        parser.error(f'no config contains {", ".join(args.names)}')
    if args.list:
        print('\n'.join(f'{each.name:90} {" ".join(each.heads)}' for each in stocks))
        return
    begin = time.monotonic()
    rows = [row for stock in stocks for row in _followed(stock)]
    seconds = round(time.monotonic() - begin)
    complete = not (args.names or args.toolbox)
    out = args.out or (Path('benchmarks/stock.json') if complete else None)
    if out is not None:
        write_whole(out, _report(rows, folders, seconds))
    _summarise(rows, seconds)
    if any(row['outcome'].startswith(FAIL) for row in rows):
        sys.exit(1)


def _followed(stock: StockModel) -> list[Row]:
    """Return the rows of a model, and print their number by outcome."""
    print(f'{stock.name} ...', end='', file=sys.stderr, flush=True)
    start = time.monotonic()
    rows = list(rows_of(stock))
    counts = Counter(_kind(row['outcome']) for row in rows)
    found = ', '.join(f'{n} {kind}' for kind, n in counts.items())
    print(f' {found or "no slot"}, {time.monotonic() - start:.1f} s', file=sys.stderr, flush=True)
    return rows


def _kind(outcome: str) -> str:
    return outcome.partition(':')[0]


def _report(rows: list[Row], folders: dict[str, dict[str, list[str]]], seconds: int) -> str:
    """Return the file of results: one line for each row."""
    about: dict[str, Any] = {
        'torch': torch.__version__,
        **{name: version(name) for name in ('mmengine', 'mmcv', 'mmsegmentation', 'mmdet')},
        'seconds': seconds,
    }
    lines = {
        'metadata': json.dumps(about, ensure_ascii=False),
        'folders': json.dumps(folders, ensure_ascii=False),
        'table': _lines(table(rows)),
        'results': _lines(rows),
    }
    return '{\n' + ',\n'.join(f' "{key}": {text}' for key, text in lines.items()) + '\n}\n'


def _lines(rows: list[Row]) -> str:
    return '[\n' + ',\n'.join(f'  {json.dumps(row, ensure_ascii=False)}' for row in rows) + '\n ]'


def _summarise(rows: list[Row], seconds: int) -> None:
    """Print the number of cells by outcome, and those that are refused or fail."""
    for outcome, cells in Counter((_kind(row['outcome']), row['loss'] == STOCK) for row in rows).items():
        print(f'{cells:5} {"controls" if outcome[1] else "cells"}: {outcome[0]}')
    for kind in (REFUSED, WARNS, FAIL):
        found = Counter((row['loss'], row['head'], row['outcome']) for row in rows if _kind(row['outcome']) == kind)
        for (loss, head, outcome), n in sorted(found.items()):
            print(f'{n:3} {head}, {loss}: {outcome}')
    print(f'{len(rows)} rows, {seconds} s')


if __name__ == '__main__':
    main()

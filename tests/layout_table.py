"""Table of layouts in docs/layouts.md: ``python tests/layout_table.py [--write]`` prints it or puts it into the page.

A row is a prediction and a target; a cell is the reading of `reference.reading` in a mode.
"""

import argparse
import re
from pathlib import Path

import torch
from layouts import scores
from reference.reading import MODES, RefusedError, read_layout

PAGE = Path(__file__).parents[1] / 'docs/layouts.md'
TABLE = re.compile(r'(?<=^<!-- layouts -->\n).*(?=^<!-- end of layouts -->$)', re.DOTALL | re.MULTILINE)
KINDS = {
    'softmax': ('LovaszSoftmaxLoss', {}),
    'sigmoid': ('LossMaxPooling', dict(pixel_loss='bce')),
    'direct losses': ('DirectZeroOneLoss', {}),
    'hinge, S-measure': ('LovaszHingeLoss', {}),
}
"""A loss of each kind. Those of the last two are sigmoid losses."""


def labels(*shape):
    return torch.arange(torch.Size(shape).numel()).view(shape) % 3


def mask(*shape):
    return torch.arange(torch.Size(shape).numel()).view(shape) % 2


def one_hot(*shape):
    return torch.nn.functional.one_hot(labels(shape[0], *shape[2:]), shape[1]).movedim(-1, 1).float()


def several(*shape):
    return one_hot(*shape).roll(1, 1).add(one_hot(*shape)) * mask(shape[0], 1, *shape[2:])


ROWS = [
    ('`[n]`', (6,), '0 or 1, `[n]`', mask(6), {}),
    ('`[n]`', (6,), '0 or 1, `[n]`, with `avg_factor`', mask(6), dict(avg_factor=2.0)),
    ('`[N, 1]`', (6, 1), '0 or 1, `[N]` or `[N, 1]`', mask(6), {}),
    ('`[N, 1]`', (6, 1), '0 or 1, `[N]`, of a box head', mask(6), dict(weight=torch.ones(6), avg_factor=6.0)),
    ('`[N, 1, H, W]`', (2, 1, 4, 5), '0 or 1, `[N, H, W]` or `[N, 1, H, W]`', mask(2, 4, 5), {}),
    ('`[N, H, W]`', (2, 4, 5), '0 or 1, `[N, 1, H, W]`', mask(2, 1, 4, 5), {}),
    ('`[N, H, W]`', (2, 4, 5), '0 or 1, `[N, H, W]`', mask(2, 4, 5), {}),
    ('`[masks, points]`', (2, 5), '0 or 1, `[masks, points]`', mask(2, 5), {}),
    ('`[N, 2, H, W]`', (2, 2, 4, 5), 'labels, `[N, H, W]` or `[N, 1, H, W]`', mask(2, 4, 5), {}),
    ('`[N, C, H, W]`', (2, 3, 4, 5), 'labels, `[N, H, W]` or `[N, 1, H, W]`', labels(2, 4, 5), {}),
    ('`[N, C, H, W]`', (2, 3, 4, 5), 'one-hot or soft labels, `[N, C, H, W]`', one_hot(2, 3, 4, 5), {}),
    ('`[N, C, H, W]`', (2, 3, 4, 5), 'several labels, `[N, C, H, W]`', several(2, 3, 4, 5), {}),
    ('`[N, C, L]`', (2, 3, 5), 'labels, `[N, L]` or `[N, 1, L]`', labels(2, 5), {}),
    ('`[N, C, L]`', (2, 3, 5), 'one-hot or soft labels, `[N, C, L]`', one_hot(2, 3, 5), {}),
    ('`[N, C, L]`', (2, 3, 5), 'several labels, `[N, C, L]`', several(2, 3, 5), {}),
    ('`[N, C]`', (6, 3), 'labels, `[N]` or `[N, 1]`', labels(6), {}),
    ('`[N, C]`', (6, 3), 'labels, `[N]`, of a box head', labels(6), dict(weight=torch.ones(6), avg_factor=6.0)),
    ('`[N, C]`', (6, 3), 'one-hot or soft labels, `[N, C]`', one_hot(6, 3), {}),
    ('`[N, C]`', (6, 3), 'several labels, `[N, C]`', several(6, 3), {}),
    ('`[N, C]`', (6, 3), 'several labels, `[N, C]`, with `avg_factor=N`', several(6, 3), dict(avg_factor=6)),
]


def calls():
    """Yield the index of a row, and a call of it. Where a row has two shapes of the target, both are called."""
    for row, (_, shape, text, target, how) in enumerate(ROWS):
        call = dict(pred=scores(shape), target=target) | how
        yield row, call
        if ' or `[' in text:
            yield row, call | dict(target=target.unsqueeze(1))


def reading(kind, mode, call):
    """Return the reading of a call in a mode, in words."""
    name, args = KINDS[kind]
    try:
        found = read_layout(name, args | dict(mode=mode), **call)
    except RefusedError:
        return 'refused'
    return f'{found.kind}, 0 is the object' if found.zero_is_class else found.kind


def cell(mode, row_calls):
    """Return the reading of the calls of a row by softmax losses, and by others where it differs."""
    found = {kind: ' or '.join(dict.fromkeys(reading(kind, mode, call) for call in row_calls)) for kind in KINDS}
    texts = [found['softmax']]
    for kind, text in list(found.items())[1:]:
        if text != found['softmax' if kind == 'sigmoid' else 'sigmoid']:
            texts.append(f'{text} ({kind})')
    return '; '.join(texts)


def table():
    """Return the lines of the table."""
    found = {}
    for row, call in calls():
        found.setdefault(row, []).append(call)
    lines = ['| prediction | target | by default | ' + ' | '.join(f"`'{mode}'`" for mode in MODES[1:]) + ' |']
    lines.append('|---' * (2 + len(MODES)) + '|')
    for row, row_calls in found.items():
        pred, _, target, *_ = ROWS[row]
        lines.append('| ' + ' | '.join([pred, target, *(cell(mode, row_calls) for mode in MODES)]) + ' |')
    return '\n'.join(lines)


def filled(text):
    """Return the page with its table."""
    return TABLE.sub(f'\n{table()}\n\n', text)


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--write', action='store_true', help='write the table into docs/layouts.md')
    if parser.parse_args().write:
        PAGE.write_text(filled(PAGE.read_text()))
    else:
        print(table())

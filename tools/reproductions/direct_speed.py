r"""Time of loss-augmented rankings and of a step of average precision losses over the number of items.

The program of the paper fills a table of positives by negatives. The positive update does not need it: its time should
grow like that of a sort of the negatives, which is shown for the paper's 1 000 positives and up to a million negatives.
A step of the loss is compared with losses over pairs: LibAUC's if installed, and the smooth approximation.

Only ratios of one run are comparable between machines; candidates are timed in turns.

Reference:
    Y. Song, A. G. Schwing, R. S. Zemel, R. Urtasun: Training deep neural networks via direct loss minimization.
    ICML 2016. https://arxiv.org/abs/1511.06411
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from benchmarks.ap import ap_steps
from benchmarks.measure import timed
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mmseg_nondecomp.functional import loss_augmented_ranking
from reproductions import Reproduction

N_POSITIVES = 1000
N_NEGATIVES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
N_ITEMS = (1024, 4096, 16_384, 65_536)
EPSILON = 0.1
SORT, UPDATE = 'sort of the negatives', 'positive update'

Rows = list[dict[str, Any]]


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Measure rankings over the number of negatives and steps over the number of items."""
    ranking_rows = [row for n in N_NEGATIVES for row in rankings(n, seeds[0])]
    step_rows = [{'items': n, **row} for n in N_ITEMS for row in ap_steps(n, 10)]
    results = {'rankings': ranking_rows, 'steps': step_rows}
    return Reproduction(results, [*ranking_rows, *step_rows], found(ranking_rows), draw(results))


def rankings(n: int, seed: int) -> Rows:
    """Return a ranking with n negatives in any order, and their sort."""
    generator = torch.Generator().manual_seed(seed)
    pos, neg = (torch.randn(size, generator=generator).double() for size in (N_POSITIVES, n))
    steps: dict[str, Callable[[], Tensor]] = {
        SORT: lambda: neg.sort(descending=True).values,
        UPDATE: lambda: loss_augmented_ranking(pos + 1, neg, EPSILON),
    }
    return [{'negatives': n, **row} for row in timed(steps, f'{N_POSITIVES} x {n}', 9)]


def found(rows: Rows) -> str:
    """Return the time relative to a sort, and its growth relative to n log n."""
    own = [row for row in rows if row['candidate'] == UPDATE]
    ratios = ', '.join(f'{row[f"time against {SORT}"]:.2g}' for row in own)
    first, last = own[0], own[-1]
    sizes = ((N_POSITIVES + row['negatives']) for row in (first, last))
    few, many = (n * math.log(n) for n in sizes)
    grown = last['median ms'] / first['median ms']
    return (
        f'The positive update takes {ratios} times a sort of {", ".join(str(n) for n in N_NEGATIVES)} negatives. '
        f'From the first to the last its time grows {grown:.0f}-fold, and n log n {many / few:.0f}-fold.'
    )


def draw(results: dict[str, Rows]) -> Figure:
    """Plot the time of rankings, and the time and memory of steps."""
    figure = Figure(figsize=(14, 4.4), layout='constrained')
    axes = figure.subplots(1, 3)
    draw_lines(axes[0], results['rankings'], 'negatives', 'median ms')
    own = [row for row in results['rankings'] if row['candidate'] == UPDATE]
    sizes = [row['negatives'] for row in own]
    scale = 2 * own[-1]['median ms'] / (sizes[-1] * math.log(sizes[-1]))
    axes[0].plot(sizes, [scale * n * math.log(n) for n in sizes], color='black', linestyle=':', label='n log n')
    draw_lines(axes[1], results['steps'], 'items', 'median ms')
    draw_lines(axes[2], results['steps'], 'items', 'peak memory / input')
    titles = f'ranking, {N_POSITIVES} positives', 'step of a loss, 2 % positives', 'its memory'
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title)
    axes[0].legend(frameon=False)
    axes[1].legend(frameon=False)
    return figure


def draw_lines(axis: Axes, rows: Rows, over: str, what: str) -> None:
    """Plot a line for each candidate, on logarithmic axes."""
    for name in dict.fromkeys(row['candidate'] for row in rows):
        own = [row for row in rows if row['candidate'] == name]
        axis.plot([row[over] for row in own], [row[what] for row in own], marker='o', label=name)
    axis.set_xscale('log')
    axis.set_yscale('log')
    axis.set_xlabel(f'number of {over}')
    axis.set_ylabel('time (ms)' if what == 'median ms' else 'peak memory over that of the scores')
    axis.grid(alpha=0.3)

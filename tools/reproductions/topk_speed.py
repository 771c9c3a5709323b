r"""Tables 3 and 4 of the smooth top-k paper: time of the forward and the backward pass, and its growth.

The paper measures on a GPU, this experiment on the CPU: the loss of a batch of 256 for k = 5 with each of the paper's
algorithms, the package's own and cross-entropy. SA is the summation algorithm, DC divide and conquer, both on
logarithms. The time of a backward pass is that of the gradient alone, from a retained graph. Growth with n and k is
that of both passes together.

Only ratios of one run are comparable between machines; candidates are timed in turns. The time hardly depends on the
scores, so only those of the first seed are used.

Reference:
    L. Berrada, A. Zisserman, M. P. Kumar: Smooth loss functions for deep top-k classification. ICLR 2018, appendix B.3.
    https://arxiv.org/abs/1802.07595
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.measure import compare, timed, training_step
from benchmarks.peers import difftopk_peer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mmseg_nondecomp.functional import smooth_topk_loss
from reproductions import Reproduction
from reproductions.topk_algorithms import divide_and_conquer, log_summation, loss_by, with_custom_backward

BATCH, K = 256, 5
TABLE_SIZES = (100, 1000, 10_000)
SIZES = (100, 1000, 10_000, 100_000)
DEGREES, SIZE_OF_DEGREES = (1, 2, 5, 10, 20), 10_000

Loss = Callable[[Tensor, Tensor], Tensor]
Rows = list[dict[str, Any]]

CROSS_ENTROPY, OWN, DIFFTOPK = 'cross-entropy', 'smooth_topk_loss', 'TopKCrossEntropyLoss of difftopk, m = 16'
SUMMATION, DIFFERENTIATED, CUSTOM = 'SA, differentiated', 'DC, differentiated (AD)', 'DC, Algorithm 2 (CB)'
COLORS = {
    CROSS_ENTROPY: 'tab:blue',
    OWN: 'tab:red',
    SUMMATION: 'tab:gray',
    DIFFERENTIATED: 'tab:green',
    CUSTOM: 'tab:orange',
    DIFFTOPK: 'tab:purple',
}


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Measure the tables, and the growth with n and k."""
    seed = seeds[0]
    results = {
        'passes': [row for n in TABLE_SIZES for row in passes(n, seed)],
        'over n': [row for n in SIZES for row in steps(n, K, seed)],
        'over k': [row for k in DEGREES for row in steps(SIZE_OF_DEGREES, k, seed)],
    }
    rows = [*results['passes'], *results['over n'], *results['over k']]
    return Reproduction(results, rows, found(results), draw(results))


def data(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return a batch of scores and labels."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(BATCH, n, generator=generator, requires_grad=True)
    return scores, torch.randint(n, (BATCH,), generator=generator)


def losses(n: int) -> dict[str, Loss]:
    """Return the candidates for n labels."""
    return {
        CROSS_ENTROPY: F.cross_entropy,
        OWN: partial(smooth_topk_loss, k=K),
        CUSTOM: partial(loss_by, with_custom_backward, k=K),
        DIFFERENTIATED: partial(loss_by, divide_and_conquer, k=K),
        SUMMATION: partial(loss_by, log_summation, k=K),
        **difftopk_peer(n, K),
    }


def repeats_of(n: int) -> int:
    """Return the number of rounds, more for small n."""
    return min(30, max(5, 30_000 // n))


def passes(n: int, seed: int) -> Rows:
    """Return Table 3 and Table 4 for n labels."""
    scores, target = data(n, seed)
    candidates = losses(n)
    forward = timed(
        {name: partial(loss, scores, target) for name, loss in candidates.items()}, 'forward', repeats_of(n)
    )
    values = {name: loss(scores, target) for name, loss in candidates.items()}
    gradients = {name: partial(torch.autograd.grad, value, scores, retain_graph=True) for name, value in values.items()}
    backward = timed(gradients, 'backward', repeats_of(n))
    against = f'time against {CROSS_ENTROPY}'
    return [
        {
            'algorithm': there['candidate'],
            'n': n,
            'forward ms': there['median ms'],
            'backward ms': back['median ms'],
            'forward / cross-entropy': there[against],
            'backward / cross-entropy': back[against],
            'backward / forward': back['median ms'] / there['median ms'],
        }
        for there, back in zip(forward, backward, strict=True)
    ]


def steps(n: int, k: int, seed: int) -> Rows:
    """Return time of both passes and peak memory of the package's loss and of cross-entropy."""
    scores, target = data(n, seed)
    candidates: dict[str, Loss] = {CROSS_ENTROPY: F.cross_entropy, OWN: partial(smooth_topk_loss, k=k)}
    both = {name: training_step(loss, scores, target) for name, loss in candidates.items()}
    return [
        {'step': row.pop('candidate'), 'n': n, 'k': k, **{name: row[name] for name in row if name != 'case'}}
        for row in compare(both, '', scores, repeats_of(n))
    ]


def found(results: dict[str, Rows]) -> str:
    """Return the comparison of the passes, and the exponents of the growth of the package's loss with n and k."""
    n = TABLE_SIZES[1]
    at_n = {row['algorithm']: row for row in results['passes'] if row['n'] == n}
    whole = {name: row['forward ms'] + row['backward ms'] for name, row in at_n.items()}
    shares = ', '.join(f'{name} {at_n[name]["backward / forward"]:.2g}' for name in (DIFFERENTIATED, CUSTOM, OWN))
    others = ', '.join(f'{name} {whole[name] / whole[OWN]:.2g}' for name in whole if name != OWN)
    return (
        f'At n = {n} the backward pass takes, over the forward pass: {shares} (the paper, on a GPU: AD 7.7, CB 0.33). '
        f'Both together take, over {OWN}: {others}. Its time grows as {growth(results["over n"], "n")} '
        f'(cross-entropy: {growth(results["over n"], "n", CROSS_ENTROPY)}) and as {growth(results["over k"], "k")}.'
    )


def growth(rows: Rows, variable: str, name: str = OWN) -> str:
    """Return the exponent of n or k between the last two points."""
    before, last = [row for row in rows if row['step'] == name][-2:]
    power = math.log(last['median ms'] / before['median ms']) / math.log(last[variable] / before[variable])
    return f'{variable}^{power:.2f} from {before[variable]} to {last[variable]}'


def draw(results: dict[str, Rows]) -> Figure:
    """Plot the two tables, and the growth with n and k."""
    figure = Figure(figsize=(17, 4.6), layout='constrained')
    axes = figure.subplots(1, 4)
    for axis, which in zip(axes, ('forward', 'backward'), strict=False):
        draw_pass(axis, which, results['passes'])
    draw_growth(axes[2], 'n', results['over n'])
    draw_growth(axes[3], 'k', results['over k'])
    axes[2].set_title(f'forward and backward, k = {K}')
    axes[3].set_title(f'forward and backward, n = {SIZE_OF_DEGREES}')
    figure.legend(*axes[0].get_legend_handles_labels(), loc='outside lower center', ncols=len(COLORS), frameon=False)
    return figure


def draw_pass(axis: Axes, which: str, rows: Rows) -> None:
    """Plot the time of one pass with each algorithm over n."""
    for name in dict.fromkeys(row['algorithm'] for row in rows):
        own = [row for row in rows if row['algorithm'] == name]
        axis.plot(
            [row['n'] for row in own], [row[f'{which} ms'] for row in own], marker='o', color=COLORS[name], label=name
        )
    axis.set_title(f'{which} pass, k = {K}')
    name_axes(axis, 'n')


def draw_growth(axis: Axes, variable: str, rows: Rows) -> None:
    """Plot the time of a step over n or k, a line of slope 1, and the ratio to cross-entropy."""
    for name in (CROSS_ENTROPY, OWN):
        own = [row for row in rows if row['step'] == name]
        x, y = [row[variable] for row in own], [row['median ms'] for row in own]
        axis.plot(x, y, marker='o', color=COLORS[name])
    for position, time, row in zip(x, y, own, strict=True):
        ratio = f'×{row[f"time against {CROSS_ENTROPY}"]:.0f}'
        axis.annotate(ratio, (position, time), (2, -16), textcoords='offset points', ha='center', color=COLORS[OWN])
    line = [2 * y[-1] * position / x[-1] for position in x]
    axis.plot(x, line, color='black', linestyle=':', label='slope 1')
    axis.legend(loc='upper left', frameon=False)
    name_axes(axis, variable)
    axis.margins(x=0.1)
    axis.set_xticks(x, [str(value) for value in x])
    axis.minorticks_off()


def name_axes(axis: Axes, variable: str) -> None:
    """Set logarithmic axes."""
    axis.set_xscale('log')
    axis.set_yscale('log')
    axis.set_xlabel(variable)
    axis.set_ylabel('time (ms)')
    axis.grid(alpha=0.3)

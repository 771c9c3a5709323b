r"""Table 1 of the smooth top-k paper in small: cross-entropy and the smooth loss with label noise and early stopping.

With probability :math:`\nu` a label is replaced by a random one of its group of k classes. Even at :math:`\nu = 1` the
k most likely labels of an item can be learned, but not the first of them. Data and network are those of
`reproductions.topk_training`: vectors of 100 classes (k = 5), and Fashion-MNIST in pairs of similar classes (k = 2).

The accuracy on a hold-out is measured after each of 30 epochs. A row is the last epoch, or the epoch with the highest
top-k accuracy on the hold-out, whose labels are as noisy as those of the training set, or correct. Each loss has six
settings: six learning rates of Adam, or three with two temperatures each. The search has a seed of its own. The setting
of a row has the highest top-k accuracy on the hold-out at the epoch of the row; at the last epoch, with noisy labels.

Reference:
    L. Berrada, A. Zisserman, M. P. Kumar: Smooth loss functions for deep top-k classification. ICLR 2018, section 5.1.
    https://arxiv.org/abs/1802.07595
"""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from comparison.statistics import Difference
from matplotlib.figure import Figure

from mmseg_nondecomp.functional import smooth_topk_loss
from reproductions import Reproduction, fashion_mnist, spread_over_seeds
from reproductions.resampling import Measured, Weights, draw_weights, measured, paired_gain
from reproductions.topk_training import CLEAN, LAST, NOISY, STOPS, Data, Loss, Stop, fashion, generated, train

NOISE = (0.0, 0.3, 0.6, 1.0)
SEARCH_SEED = 1000
N_RESAMPLES = 500
CROSS_ENTROPY, SMOOTH = 'cross-entropy', 'smooth top-k'
GENERATED, FASHION = 'vectors, k = 5', 'Fashion-MNIST, k = 2'
LINES = {LAST: ('-', 'o'), NOISY: ('--', 's'), CLEAN: (':', '^')}
COLORS = {CROSS_ENTROPY: 'tab:blue', SMOOTH: 'tab:red'}


class Setting(NamedTuple):
    """Setting of a loss."""

    learning_rate: float
    tau: float | None = None


GRIDS = {
    CROSS_ENTROPY: [Setting(rate) for rate in (5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2)],
    SMOOTH: [Setting(rate, tau) for rate in (1e-3, 3e-3, 1e-2) for tau in (0.1, 1.0)],
}


class Cell(NamedTuple):
    """Row of the table."""

    data: str
    noise: float
    stop: str


class Accuracies(NamedTuple):
    """Accuracies of a network on the test set."""

    top1: Measured
    topk: Measured


MEASURES = {'top-k': 'topk', 'top-1': 'top1'}
Source = Callable[[int, float], Data]
"""Function of the seed and the noise."""
HeldOut = dict[str, float]
"""Top-k accuracy on the hold-out for each stop."""
Runs = dict[Cell, dict[str, list[Accuracies]]]
"""Accuracies of each loss and seed."""
Settings = dict[Cell, dict[str, Setting]]


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Search the settings of both losses for each row, and train with all seeds."""
    images = fashion_mnist.load()
    sources: dict[str, Source] = {GENERATED: generated, FASHION: partial(fashion, images)}
    runs: Runs = {}
    chosen: Settings = {}
    searched: list[dict[str, Any]] = []
    for name, source in sources.items():
        for noise in NOISE:
            tried = {
                loss: {setting: search(source, noise, setting) for setting in grid} for loss, grid in GRIDS.items()
            }
            cells = [Cell(name, noise, stop) for stop in STOPS]
            for cell in cells:
                chosen[cell] = {loss: best_setting(of_loss, cell.stop) for loss, of_loss in tried.items()}
                runs[cell] = {loss: [] for loss in GRIDS}
            searched += [search_row(name, noise, loss, *pair) for loss in tried for pair in tried[loss].items()]
            for seed in seeds:
                add_seed(source(seed, noise), seed, {cell: chosen[cell] for cell in cells}, runs)
    rows = [row_of(cell, runs[cell]) for cell in runs]
    results = {
        'summary': rows,
        'search': searched,
        'early stopping': [stopping_row(cell, runs) for cell in runs if cell.stop == LAST],
        'runs': [
            {**cell._asdict(), 'loss': loss, 'seed': seed, **chosen[cell][loss]._asdict(), **values_of(of_seed)}
            for cell, of_cell in runs.items()
            for loss, of_loss in of_cell.items()
            for seed, of_seed in zip(seeds, of_loss, strict=True)
        ],
    }
    return Reproduction(results, rows, found(runs), draw(runs))


def search(source: Source, noise: float, setting: Setting) -> HeldOut:
    """Return the top-k accuracy on the hold-out for each stop."""
    stops = run(source(SEARCH_SEED, noise), SEARCH_SEED, setting)
    return {stop: stops[stop].held_out for stop in STOPS}


def run(data: Data, seed: int, setting: Setting) -> dict[str, Stop]:
    """Train with a setting."""
    optimizer = partial(torch.optim.Adam, fused=True)
    return train(data, seed, loss_of(setting, data.k), optimizer, setting.learning_rate)


def loss_of(setting: Setting, k: int) -> Loss:
    """Return the loss of a setting; cross-entropy has no temperature."""
    return F.cross_entropy if setting.tau is None else partial(smooth_topk_loss, k=k, tau=setting.tau)


def best_setting(tried: dict[Setting, HeldOut], stop: str) -> Setting:
    """Return the setting with the highest accuracy on the hold-out."""
    return max(tried, key=lambda setting: tried[setting][stop])


def search_row(data: str, noise: float, loss: str, setting: Setting, held_out: HeldOut) -> dict[str, Any]:
    """Return the accuracies of a setting on the hold-out."""
    return {'data': data, 'noise': noise, 'loss': loss, **setting._asdict(), **held_out}


def add_seed(data: Data, seed: int, chosen: Settings, runs: Runs) -> None:
    """Train each loss once for each of its chosen settings, and append the accuracies to the runs of each row."""
    weights = draw_weights(data.test.labels.numpy(), N_RESAMPLES)
    for loss in GRIDS:
        settings = {of_cell[loss] for of_cell in chosen.values()}
        stops = {setting: run(data, seed, setting) for setting in settings}
        for cell, of_cell in chosen.items():
            runs[cell][loss].append(accuracies(stops[of_cell[loss]][cell.stop], data.k, weights))


def accuracies(stop: Stop, k: int, weights: Weights) -> Accuracies:
    """Return the accuracies of a network."""
    hits = ((stop.ranks <= n) @ weights.T / len(stop.ranks) for n in (1, k))
    return Accuracies(*map(measured, hits))


def values_of(run: Accuracies) -> dict[str, float]:
    """Return the accuracies on the test set itself."""
    return {name: getattr(run, field).value for name, field in MEASURES.items()}


def gain(ours: list[Accuracies], theirs: list[Accuracies], name: str) -> Difference:
    """Return the paired difference of an accuracy."""
    return paired_gain(*([getattr(run, MEASURES[name]) for run in runs] for runs in (ours, theirs)))


def row_of(cell: Cell, of_cell: dict[str, list[Accuracies]]) -> dict[str, Any]:
    """Return the row of the table."""
    row: dict[str, Any] = cell._asdict()
    for name, field in MEASURES.items():
        for loss in GRIDS:
            row[f'{name}: {loss}'] = spread_over_seeds([getattr(run, field).value for run in of_cell[loss]])
        row[f'{name}: gain'] = str(gain(of_cell[SMOOTH], of_cell[CROSS_ENTROPY], name))
    return row


def stopping_row(last: Cell, runs: Runs) -> dict[str, Any]:
    """Return the gain in top-k accuracy of the best epoch over the last for each loss."""
    best = last._replace(stop=NOISY)
    gains = {loss: str(gain(runs[best][loss], runs[last][loss], 'top-k')) for loss in GRIDS}
    return {'data': last.data, 'noise': last.noise, **gains}


def found(runs: Runs) -> str:
    """Return the gains of the smooth loss in top-k accuracy."""
    parts = []
    for name in dict.fromkeys(cell.data for cell in runs):
        for stop in STOPS:
            cells = [cell for cell in runs if (cell.data, cell.stop) == (name, stop)]
            told = '; '.join(
                f'{gain(runs[cell][SMOOTH], runs[cell][CROSS_ENTROPY], "top-k")} at noise {cell.noise:g}'
                for cell in cells
            )
            parts.append(f'{name}, {stop}: {told}.')
    return 'Gain of the smooth loss over cross-entropy in top-k accuracy, in points. ' + ' '.join(parts)


def draw(runs: Runs) -> Figure:
    """Plot both accuracies over the noise, a column for each data set."""
    figure = Figure(figsize=(10, 7), layout='constrained')
    names = list(dict.fromkeys(cell.data for cell in runs))
    for axes, measure in zip(figure.subplots(2, len(names), squeeze=False), ('top-k', 'top-1'), strict=True):
        for axis, name in zip(axes, names, strict=True):
            for loss in GRIDS:
                for stop, (line, marker) in LINES.items():
                    cells = [cell for cell in runs if (cell.data, cell.stop) == (name, stop)]
                    means = [
                        statistics.fmean(getattr(run, MEASURES[measure]).value for run in runs[cell][loss])
                        for cell in cells
                    ]
                    noise = [cell.noise for cell in cells]
                    axis.plot(noise, means, line, marker=marker, color=COLORS[loss], label=f'{loss}, {stop}')
            axis.set_title(f'{name}: {measure} accuracy', fontsize=10)
            axis.set_xlabel('noise ν: share of labels drawn anew within their group')
            axis.set_ylabel('test accuracy (%)')
            axis.grid(alpha=0.3)
    figure.axes[0].legend(frameon=False, fontsize=8)
    return figure

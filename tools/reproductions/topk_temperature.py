r"""Figure 2 and table 6 of the smooth top-k paper in small: accuracy and share of non-zero gradients by temperature.

The smooth top-5 loss with temperatures :math:`\tau` from 1e-3 to 100, its limit at 0, the hard loss, and cross-entropy
train a network of two hidden layers, and one of ten with batch normalisation. The data are vectors of 100 classes with
correct labels (`reproductions.topk_training`). As in the paper the optimizer is SGD with Nesterov momentum 0.9. In
contrast to the paper the learning rate is searched, among the same seven rates for all losses, by the top-5 accuracy on
the hold-out after the last epoch. The search has a seed of its own.

Gradients are those of the loss of each training item with respect to its 100 scores, in float32. The paper counts the
elements that are not numerically zero. Here two counts are made: elements other than 0, and elements above 1e-7 of the
largest of their item, which is about the precision of float32.

Reference:
    L. Berrada, A. Zisserman, M. P. Kumar: Smooth loss functions for deep top-k classification. ICLR 2018, section 3.2
    and appendix D.1. https://arxiv.org/abs/1802.07595
"""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from comparison.statistics import Difference
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmseg_nondecomp.functional import hard_topk_loss, smooth_topk_loss
from reproductions import Reproduction, spread_over_seeds
from reproductions.resampling import Measured, draw_weights, measured, paired_gain
from reproductions.topk_training import (
    EPOCHS,
    LAST,
    Data,
    Items,
    Ranks,
    deep_network,
    generated,
    ranks,
    shallow_network,
    top_k,
    train,
)

HARD, CROSS_ENTROPY = '0 (hard)', 'cross-entropy'
TEMPERATURES = {HARD: 0.0, **{f'{tau:g}': tau for tau in (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)}}
LOSSES = (*TEMPERATURES, CROSS_ENTROPY)
SHALLOW, DEEP = '2 hidden layers', '10 hidden layers'
NETWORKS = {SHALLOW: shallow_network, DEEP: deep_network}
RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
SEARCH_SEED = 1000
N_RESAMPLES = 500
PRECISION = 1e-7
"""Gradients below this share of the largest of their item count as numerically zero."""
WHEN = {'start': 0, 'halfway': EPOCHS // 2, 'end': EPOCHS}
"""Epochs after which gradients are counted."""


class Shares(NamedTuple):
    """Shares of the elements of the gradient in percent."""

    other_than_0: float
    above_precision: float


class Run(NamedTuple):
    """Training with a loss."""

    held_out: float
    """Top-5 accuracy on the hold-out in percent, after the last epoch."""
    test: Ranks
    """Ranks of the labels of the test set, after the last epoch."""
    train_top1: list[float]
    """Top-1 accuracy on the training set in percent, at the start and after each epoch."""
    train_top5: list[float]
    shares: dict[str, Shares]
    """Shares of gradients at the start, halfway and at the end."""


Runs = dict[str, list[Run]]
"""Trainings with each loss, one for each seed."""


class Experiment(NamedTuple):
    """Trainings of a network."""

    searched: dict[str, dict[float, float]]
    """Top-5 accuracy on the hold-out for each loss and learning rate of the search."""
    chosen: dict[str, float]
    """Best learning rate of each loss."""
    runs: Runs
    """With the best learning rate."""
    tests: dict[str, list[Measured]]
    """Top-5 accuracy on the test set of ``runs``, also resampled."""


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Search the learning rate of each loss, and train with all seeds."""
    experiments = {network: experiment(network, seeds) for network in NETWORKS}
    rows = [row_of(network, done, loss) for network, done in experiments.items() for loss in done.runs]
    results = {
        'summary': rows,
        'search': [
            {'network': network, 'τ': loss, 'learning rate': rate, 'top-5 on the hold-out': value}
            for network, done in experiments.items()
            for loss, of_loss in done.searched.items()
            for rate, value in of_loss.items()
        ],
        'runs': [
            {
                'network': network,
                'τ': loss,
                'learning rate': done.chosen[loss],
                'seed': seed,
                'test top-1': top_k(run.test, 1),
                'test top-5': top_k(run.test, 5),
                'training top-5 by epoch': run.train_top5,
                'shares': {when: shares._asdict() for when, shares in run.shares.items()},
            }
            for network, done in experiments.items()
            for loss, runs in done.runs.items()
            for seed, run in zip(seeds, runs, strict=True)
        ],
    }
    return Reproduction(results, rows, found(experiments), draw(experiments))


def experiment(network: str, seeds: Sequence[int]) -> Experiment:
    """Return the search and the trainings of a network."""
    data = generated(SEARCH_SEED, 0.0)
    searched = {loss: {rate: run(data, SEARCH_SEED, loss, rate, network).held_out for rate in RATES} for loss in LOSSES}
    chosen = {loss: max(of_loss, key=lambda rate: of_loss[rate]) for loss, of_loss in searched.items()}
    runs = {loss: [run(generated(seed, 0.0), seed, loss, chosen[loss], network) for seed in seeds] for loss in LOSSES}
    return Experiment(searched, chosen, runs, {loss: top5_of_test(seeds, runs[loss]) for loss in LOSSES})


def loss_of(name: str) -> Callable[..., Tensor]:
    """Return the loss of scores and labels, with the argument ``reduction``."""
    if name == CROSS_ENTROPY:
        return F.cross_entropy
    tau = TEMPERATURES[name]
    return partial(smooth_topk_loss, k=5, tau=tau) if tau else partial(hard_topk_loss, k=5)


def run(data: Data, seed: int, loss: str, rate: float, network: str, epochs: int = EPOCHS) -> Run:
    """Train, and count correct labels and non-zero gradients on the training set."""
    top1, top5, shares = [], [], []

    def watch(network: nn.Module) -> None:
        with torch.no_grad():
            of_labels = ranks(network(data.train.features), data.train.labels)
        top1.append(top_k(of_labels, 1))
        top5.append(top_k(of_labels, 5))
        if len(top1) - 1 in (0, epochs // 2, epochs):
            shares.append(nonzero_shares(network, data.train, loss))

    optimizer = partial(torch.optim.SGD, momentum=0.9, nesterov=True)
    last = train(data, seed, loss_of(loss), optimizer, rate, epochs, watch, NETWORKS[network])[LAST]
    return Run(last.held_out, last.ranks, top1, top5, dict(zip(WHEN, shares, strict=True)))


def nonzero_shares(network: nn.Module, items: Items, loss: str) -> Shares:
    """Return the shares of the gradient with respect to the scores that are not zero, over all items."""
    scores = network(items.features).detach().requires_grad_()
    loss_of(loss)(scores, items.labels, reduction='sum').backward()
    size = scores.grad.abs()
    counts = (size > 0), (size > PRECISION * size.amax(1, keepdim=True))
    return Shares(*(100 * count.float().mean().item() for count in counts))


def top5_of_test(seeds: Sequence[int], runs: Sequence[Run]) -> list[Measured]:
    """Return the top-5 accuracy on the test set of each seed, also resampled."""
    labels = [generated(seed, 0.0).test.labels.numpy() for seed in seeds]
    weights = draw_weights(labels[0], N_RESAMPLES)
    return [measured(weights @ (run.test <= 5) / len(run.test)) for run in runs]


def row_of(network: str, done: Experiment, loss: str) -> dict[str, Any]:
    """Return the row of the table."""
    runs = done.runs[loss]
    return {
        'network': network,
        'τ': loss,
        'learning rate': f'{done.chosen[loss]:g}',
        'training top-1': spread_over_seeds([run.train_top1[-1] for run in runs]),
        'training top-5': spread_over_seeds([run.train_top5[-1] for run in runs]),
        'test top-1': spread_over_seeds([top_k(run.test, 1) for run in runs]),
        'test top-5': spread_over_seeds([top_k(run.test, 5) for run in runs]),
        'test top-5: gain over the hard loss': '' if loss == HARD else str(gain(done, loss)),
        'other than 0 at the start': share_of([run.shares['start'].other_than_0 for run in runs]),
        **{
            f'above 1e-7 of the largest: {when}': share_of([run.shares[when].above_precision for run in runs])
            for when in WHEN
        },
    }


def share_of(percentages: Sequence[float]) -> str:
    """Return the mean of percentages as text."""
    return f'{statistics.fmean(percentages):.1f} %'


def gain(done: Experiment, loss: str) -> Difference:
    """Return the paired gain of a loss over the hard loss in top-5 accuracy on the test set."""
    return paired_gain(done.tests[loss], done.tests[HARD])


def found(experiments: dict[str, Experiment]) -> str:
    """Return the gains over the hard loss."""
    told = (
        f'{network}: ' + '; '.join(f'{gain(done, loss)} at {loss}' for loss in done.runs if loss != HARD)
        for network, done in experiments.items()
    )
    return f'Test top-5 against the hard loss, in points, with searched learning rates. {". ".join(told)}.'


def draw(experiments: dict[str, Experiment]) -> Figure:
    """Plot a row of panels for each network."""
    figure = Figure(figsize=(13, 7.5), layout='constrained')
    for axes, (network, done) in zip(figure.subplots(len(NETWORKS), 3), experiments.items(), strict=True):
        draw_network(axes, network, done)
    return figure


def draw_network(axes: Sequence[Axes], network: str, done: Experiment) -> None:
    """Plot the training error, the share of non-zero gradients, and the accuracy."""
    errors, shares, accuracies = axes
    runs, losses = done.runs, list(done.runs)
    for place, loss in enumerate(losses):
        color = 'black' if loss == CROSS_ENTROPY else colormaps['viridis'](place / len(LOSSES))
        means = [100 - statistics.fmean(values) for values in zip(*(r.train_top5 for r in runs[loss]), strict=True)]
        errors.plot(means, color=color, label=loss if loss == CROSS_ENTROPY else f'τ = {loss}')
    errors.set_yscale('symlog', linthresh=1)
    errors.set_xlabel('epoch')
    errors.set_ylabel('training top-5 error (%)')
    errors.legend(frameon=False, fontsize=8)
    for when, line in zip(WHEN, ('-o', '--s', ':^'), strict=True):
        shares.plot(
            losses,
            [statistics.fmean(r.shares[when].above_precision for r in runs[loss]) for loss in losses],
            line,
            label=when,
        )
    shares.set_ylabel('gradients above 1e-7 of the largest (%)')
    for name, values in (
        ('training', [[run.train_top5[-1] for run in runs[loss]] for loss in losses]),
        ('test', [[top_k(run.test, 5) for run in runs[loss]] for loss in losses]),
    ):
        [line] = accuracies.plot(losses, [statistics.fmean(of_loss) for of_loss in values], '-o', label=name)
        lows, highs = ([pick(of_loss) for of_loss in values] for pick in (min, max))
        accuracies.fill_between(losses, lows, highs, color=line.get_color(), alpha=0.15)
    accuracies.set_ylabel('top-5 accuracy (%)')
    titles = ('training', 'non-zero gradients', 'last epoch')
    for axis, title in zip((errors, shares, accuracies), titles, strict=True):
        axis.set_title(f'{network}: {title}', fontsize=10)
        axis.grid(alpha=0.3)
    for axis in (shares, accuracies):
        axis.set_xlabel('temperature τ')
        axis.tick_params(axis='x', rotation=45)
    shares.legend(frameon=False, loc=(0.5, 0.5))
    accuracies.legend(frameon=False)

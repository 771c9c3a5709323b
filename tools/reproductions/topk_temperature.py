r"""Figure 2 and table 6 of the smooth top-k paper in small: accuracy and share of non-zero gradients by temperature.

The smooth top-5 loss with temperatures :math:`\tau` from 1e-3 to 100, its limit at 0, the hard loss, and cross-entropy
train a network of two hidden layers on vectors of 100 classes with correct labels (`reproductions.topk_training`). As
in the paper the optimizer is SGD with Nesterov momentum 0.9. All losses are trained with the learning rate 0.1, and
with the best of the same five rates, by the top-5 accuracy on the hold-out after the last epoch. The search has a seed
of its own.

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
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmseg_nondecomp.functional import hard_topk_loss, smooth_topk_loss
from reproductions import Reproduction, spread_over_seeds
from reproductions.resampling import Measured, draw_weights, measured, paired_gain
from reproductions.topk_training import EPOCHS, LAST, Data, Items, Ranks, generated, ranks, top_k, train

HARD, CROSS_ENTROPY = '0 (hard)', 'cross-entropy'
TEMPERATURES = {HARD: 0.0, **{f'{tau:g}': tau for tau in (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)}}
LOSSES = (*TEMPERATURES, CROSS_ENTROPY)
RATES = (0.03, 0.1, 0.3, 1.0, 3.0)
COMMON_RATE = 0.1
"""Learning rate of the rows in which it is not searched."""
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


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Search the learning rate of each loss, and train with all seeds."""
    data = generated(SEARCH_SEED, 0.0)
    searched = {loss: {rate: run(data, SEARCH_SEED, loss, rate).held_out for rate in RATES} for loss in LOSSES}
    chosen = {loss: max(of_loss, key=lambda rate: of_loss[rate]) for loss, of_loss in searched.items()}
    runs, common = (
        {loss: [run(generated(seed, 0.0), seed, loss, rates[loss]) for seed in seeds] for loss in LOSSES}
        for rates in (chosen, dict.fromkeys(LOSSES, COMMON_RATE))
    )
    tests = {loss: top5_of_test(seeds, runs[loss]) for loss in LOSSES}
    rows = [row_of(loss, chosen[loss], runs[loss], common[loss], tests) for loss in LOSSES]
    results = {
        'summary': rows,
        'search': [
            {'τ': loss, 'learning rate': rate, 'top-5 on the hold-out': value}
            for loss, of_loss in searched.items()
            for rate, value in of_loss.items()
        ],
        'runs': [
            {
                'τ': loss,
                'learning rate': rate,
                'seed': seed,
                'test top-1': top_k(run.test, 1),
                'test top-5': top_k(run.test, 5),
                'training top-5 by epoch': run.train_top5,
                'shares': {when: shares._asdict() for when, shares in run.shares.items()},
            }
            for loss in LOSSES
            for rate, of_rate in ((chosen[loss], runs[loss]), (COMMON_RATE, common[loss]))
            for seed, run in zip(seeds, of_rate, strict=True)
        ],
    }
    return Reproduction(results, rows, found(runs, common, tests), draw(runs, common))


def loss_of(name: str) -> Callable[..., Tensor]:
    """Return the loss of scores and labels, with the argument ``reduction``."""
    if name == CROSS_ENTROPY:
        return F.cross_entropy
    tau = TEMPERATURES[name]
    return partial(smooth_topk_loss, k=5, tau=tau) if tau else partial(hard_topk_loss, k=5)


def run(data: Data, seed: int, loss: str, rate: float, epochs: int = EPOCHS) -> Run:
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
    last = train(data, seed, loss_of(loss), optimizer, rate, epochs, watch)[LAST]
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


def row_of(
    loss: str, rate: float, runs: Sequence[Run], common: Sequence[Run], tests: dict[str, list[Measured]]
) -> dict[str, Any]:
    """Return the row of the table."""
    return {
        'τ': loss,
        'learning rate': f'{rate:g}',
        'training top-1': spread_over_seeds([run.train_top1[-1] for run in runs]),
        'training top-5': spread_over_seeds([run.train_top5[-1] for run in runs]),
        'test top-1': spread_over_seeds([top_k(run.test, 1) for run in runs]),
        'test top-5': spread_over_seeds([top_k(run.test, 5) for run in runs]),
        'test top-5: gain over the hard loss': '' if loss == HARD else str(gain(tests, loss)),
        'training top-5 at rate 0.1': spread_over_seeds([run.train_top5[-1] for run in common]),
        'test top-5 at rate 0.1': spread_over_seeds([top_k(run.test, 5) for run in common]),
        'other than 0 at the start': share_of([run.shares['start'].other_than_0 for run in runs]),
        **{
            f'above 1e-7 of the largest: {when}': share_of([run.shares[when].above_precision for run in runs])
            for when in WHEN
        },
    }


def share_of(percentages: Sequence[float]) -> str:
    """Return the mean of percentages as text."""
    return f'{statistics.fmean(percentages):.1f} %'


def gain(tests: dict[str, list[Measured]], loss: str) -> Difference:
    """Return the paired gain of a loss over the hard loss in top-5 accuracy on the test set."""
    return paired_gain(tests[loss], tests[HARD])


def found(runs: Runs, common: Runs, tests: dict[str, list[Measured]]) -> str:
    """Return training accuracies, and gains over the hard loss."""
    searched, given = (
        ', '.join(f'{statistics.fmean(run.train_top5[-1] for run in of_rate[loss]):.1f} at {loss}' for loss in LOSSES)
        for of_rate in (runs, common)
    )
    gains = '; '.join(f'{gain(tests, loss)} at {loss}' for loss in LOSSES if loss != HARD)
    return (
        f'Training top-5 by temperature: {searched}; with the learning rate 0.1: {given}. '
        f'Test top-5 against the hard loss, in points, with searched rates: {gains}.'
    )


def draw(runs: Runs, common: Runs) -> Figure:
    """Plot the training error, the share of non-zero gradients, and the accuracy with both choices of the rate."""
    figure = Figure(figsize=(13, 4), layout='constrained')
    errors, shares, accuracies = figure.subplots(1, 3)
    for place, loss in enumerate(LOSSES):
        color = 'black' if loss == CROSS_ENTROPY else colormaps['viridis'](place / len(LOSSES))
        means = [100 - statistics.fmean(values) for values in zip(*(r.train_top5 for r in runs[loss]), strict=True)]
        errors.plot(means, color=color, label=loss if loss == CROSS_ENTROPY else f'τ = {loss}')
    errors.set_yscale('symlog', linthresh=1)
    errors.set_xlabel('epoch')
    errors.set_ylabel('training top-5 error (%)')
    errors.legend(frameon=False, fontsize=8)
    for when, line in zip(WHEN, ('-o', '--s', ':^'), strict=True):
        shares.plot(
            LOSSES,
            [statistics.fmean(r.shares[when].above_precision for r in runs[loss]) for loss in LOSSES],
            line,
            label=when,
        )
    shares.set_ylabel('gradients above 1e-7 of the largest (%)')
    for name, of_rate in (('searched rate', runs), ('rate 0.1', common)):
        values = [[top_k(run.test, 5) for run in of_rate[loss]] for loss in LOSSES]
        [line] = accuracies.plot(LOSSES, [statistics.fmean(of_loss) for of_loss in values], '-o', label=name)
        lows, highs = ([pick(of_loss) for of_loss in values] for pick in (min, max))
        accuracies.fill_between(LOSSES, lows, highs, color=line.get_color(), alpha=0.15)
    accuracies.set_ylabel('top-5 accuracy (%)')
    titles = ('training, searched rates', 'gradients that are not numerically zero', 'test set after the last epoch')
    for axis, title in zip((errors, shares, accuracies), titles, strict=True):
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    for axis in (shares, accuracies):
        axis.set_xlabel('temperature τ')
        axis.tick_params(axis='x', rotation=45)
    shares.legend(frameon=False, loc=(0.5, 0.5))
    accuracies.legend(frameon=False)
    return figure

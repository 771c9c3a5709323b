"""Recipe for mIoU, ``metric_loss('miou')``, against constant factors: two data sets, and both with one frequent class.

The recipe has no setting that depends on the data. It is compared with cross-entropy, and with cross-entropy and
another loss in constant proportion, at two lengths on LongTailShapes and LandCover. In the settings "rare" all classes
but the rarest, which together have 3 % of the pixels, are one class. On LandCover no loss finds these: "snow" has two
rare classes that some losses find. The setting "bar" has one rare class against the rest. Each row has the learning
rate of its config, on LandCover the searched one. Measured on test images.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from comparison.job import Job
from comparison.pool import train_missing
from comparison.results import Trained
from comparison.statistics import Difference, paired_difference
from matplotlib.figure import Figure

from mmseg_nondecomp.datasets import CLASSES
from mmseg_nondecomp.datasets.land_cover import LEGEND, PIXELS
from reproductions import Reproduction, land_cover, spread_over_seeds

OUT = land_cover.OUT.with_name('recipe')
RECIPE = 'metric'
WAYS = {
    'ce': 'cross-entropy',
    'ce-dice': 'cross-entropy + Dice',
    'ce-lovasz': 'cross-entropy + 3 · Lovász',
    'lovasz': 'Lovász-Softmax',
    RECIPE: "metric_loss('miou')",
}
SHAPES, EARTH = 'configs/long_tail_shapes/tiny-unet_{way}_lts.py', 'configs/land_cover/tiny-unet_{way}_lc.py'
RARE_SHAPES = CLASSES[9:]
RARE_SHARE = 0.03
SNOW = ('evergreen needleleaf forest', 'snow and ice')
"""Classes of LandCover with less than 1.5 % of the pixels and a test IoU above 10 % in the main table."""


class Setting(NamedTuple):
    """Data set, its classes, and length of training."""

    config: str
    schedule: str
    rare: tuple[str, ...] = ()
    """Classes that are kept; all others are one class. By default all are kept."""

    def job(self, way: str, seed: int, rate: float | None = None) -> Job:
        """Return a run that is measured on test images, in the folder of the main table if it is one of these."""
        options = land_cover.ON_TEST | (one_frequent_class(self.rare) if self.rare else {})
        is_of_main_table = self.config == EARTH and not self.rare
        out = land_cover.OUT if is_of_main_table else OUT / f'{len(self.rare)}-rare'
        return Job(self.config.format(way=way), seed, out, self.schedule, rate, options, n_points=1)


def one_frequent_class(rare: Sequence[str]) -> dict[str, Any]:
    """Return the options of a config for these classes and the rest of them."""
    grays = [[255 - 20 * i] * 3 for i in range(len(rare) + 1)]
    metainfo = dict(classes=('rest', *rare), palette=grays)
    sets = {f'{loader}_dataloader.dataset.metainfo': metainfo for loader in ('train', 'val')}
    return sets | {'model.decode_head.num_classes': 1 + len(rare)}


def rare_classes(pixels: Sequence[int], names: Sequence[str], share: float) -> tuple[str, ...]:
    """Return the rarest classes that together have at most a share of the pixels, in the order of their labels.

    Example:
        >>> rare_classes([90, 1, 2, 7], ['sea', 'islet', 'reef', 'ship'], 0.03)
        ('islet', 'reef')
    """
    order = np.argsort(pixels, kind='stable')
    n_rare = int((np.cumsum(np.asarray(pixels)[order]) <= share * sum(pixels)).sum())
    return tuple(names[c] for c in sorted(order[:n_rare]))


SETTINGS = {
    'LongTailShapes, short': Setting(SHAPES, 'short'),
    'LongTailShapes, long': Setting(SHAPES, 'long'),
    'LongTailShapes, rare': Setting(SHAPES, 'short', RARE_SHAPES),
    'LandCover, short': Setting(EARTH, 'short'),
    'LandCover, long': Setting(EARTH, 'long'),
    'LandCover, rare': Setting(EARTH, 'long', rare_classes(PIXELS['train'][:-1], list(LEGEND), RARE_SHARE)),
    'LandCover, snow': Setting(EARTH, 'long', SNOW),
    'LongTailShapes, bar': Setting(SHAPES, 'short', ('bar',)),
}


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Train all rows in all settings, where there is no result yet, and compare them."""
    searched = land_cover.search(land_cover.Setting('tiny-unet', 'short', way) for way in WAYS)
    rates = {setting.way: found.rate for setting, found in searched.items()}
    jobs = {
        (name, way, seed): setting.job(way, seed, rates[way] if setting.config == EARTH else None)
        for seed in seeds
        for name, setting in SETTINGS.items()
        for way in WAYS
    }
    results = train_missing(list(jobs.values()), os.cpu_count() or 1)
    trained = {key: Trained(result, job.work_dir) for (key, job), result in zip(jobs.items(), results, strict=True)}
    groups = {name: {way: [trained[name, way, seed] for seed in seeds] for way in WAYS} for name in SETTINGS}
    rows = [row_of(name, group) for name, group in groups.items()]
    scores = {
        name: {WAYS[way]: [each['mIoU'] for each in runs] for way, runs in group.items()}
        for name, group in groups.items()
    }
    of_classes = {
        name: {WAYS[way]: land_cover.class_means(runs) for way, runs in group.items()}
        for name, group in groups.items()
        if SETTINGS[name].rare
    }
    return Reproduction({'mIoU': scores, 'IoU': of_classes}, rows, finding(groups), draw(scores))


Group = Mapping[str, Sequence[Trained]]
"""Runs of a setting, for each row."""


def row_of(name: str, group: Group) -> dict[str, Any]:
    """Return the mIoU of all rows in a setting, and the recipe's difference to the best other row."""
    values = {WAYS[way]: spread_over_seeds([each['mIoU'] for each in runs]) for way, runs in group.items()}
    best, difference = against_best(group)
    iterations = group[RECIPE][0]['iterations']
    return {'setting': f'{name}, {iterations} iterations', **values, 'recipe - best other': f'{difference} ({best})'}


def against_best(group: Group) -> tuple[str, Difference]:
    """Return the best other row, and the recipe's paired difference to it."""
    others = [way for way in group if way != RECIPE]
    best = max(others, key=lambda way: mean_iou(group[way]))
    ours, theirs = ([each.areas for each in group[way]] for way in (RECIPE, best))
    return WAYS[best], paired_difference(ours, theirs, 'data set')


def mean_iou(runs: Sequence[Trained]) -> float:
    """Return the mIoU, averaged over the seeds."""
    return float(np.mean([each['mIoU'] for each in runs]))


def finding(groups: Mapping[str, Group]) -> str:
    """Return in how many settings each row is within 2 points of the best one."""
    near = dict.fromkeys(WAYS, 0)
    for group in groups.values():
        best = max(map(mean_iou, group.values()))
        for way, runs in group.items():
            near[way] += mean_iou(runs) >= best - 2
    counts = ', '.join(f'{WAYS[way]} {count}' for way, count in near.items())
    losing = [name for name, group in groups.items() if against_best(group)[1].mean < -2]
    return (
        f'Settings, of {len(groups)}, in which a row is the best or within 2 points of it: {counts}. '
        f'The recipe is further behind in: {", ".join(losing) or "none"}.'
    )


def draw(scores: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """Plot the mIoU of every run as a dot, with a panel for each setting."""
    figure = Figure(figsize=(11, 5.4), layout='constrained')
    n_columns = -(-len(scores) // 2)
    axes = figure.subplots(2, n_columns, sharey=True, squeeze=False)
    for axis, (name, rows) in zip(axes.flat, scores.items(), strict=False):
        for place, (row, values) in enumerate(rows.items()):
            color = 'tab:red' if row == WAYS[RECIPE] else 'tab:gray'
            axis.plot(values, [place] * len(values), 'o', color=color, alpha=0.6)
            axis.plot([np.mean(values)] * 2, [place - 0.35, place + 0.35], color=color, linewidth=2.5)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel('mIoU on test images (%)', fontsize=9)
        axis.set_yticks(range(len(rows)), list(rows), fontsize=9)
        axis.grid(alpha=0.3, axis='x')
    for axis in axes.flat[len(scores) :]:
        axis.axis('off')
    axes[0, 0].invert_yaxis()
    return figure

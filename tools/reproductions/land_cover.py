"""Losses and samplings on satellite images of the world (LandCover): two networks, two lengths of training.

The learning rate of each row is searched on the validation tiles, by the same rule for all: three rates, and further
ones while the best is at the edge of those tried; one seed that is not among the given ones; the short schedule. The
best rate is used for both lengths, and measured on the test tiles. For each seed all rows have the same initial
weights. Differences to cross-entropy are paired by seed and tile. The column `first` is the share of the comparisons
with resampled seeds and tiles in which a row is the first of all.

Runs stay in ``work_dirs/land-cover``; finished runs are not repeated. After the search they are in the order of the
seeds: an interrupted call leaves complete seeds, and a call with these reports them. ``--quick`` trains the small
network with some of the rows, for the short schedule, at the middle one of the rates.
"""

import itertools
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from comparison.charts import colored, show
from comparison.job import Job
from comparison.pool import train_missing
from comparison.results import Trained
from comparison.schedule import SCHEDULES
from comparison.search import FIRST_RATES, Searched, search_rates
from comparison.statistics import (
    Areas,
    Difference,
    Measure,
    class_accuracy,
    data_set_iou,
    image_iou,
    iou_of_classes,
    paired_difference,
    shares_first,
    value_of,
)
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch
from mmengine.registry import DATASETS, DefaultScope
from numpy.typing import NDArray

from mmseg_nondecomp.class_index import index_classes
from reproductions import Reproduction, spread_over_seeds

OUT = Path('work_dirs/land-cover')
CONFIG = 'configs/land_cover/{network}_{way}_lc.py'
NETWORKS = {'tiny-unet': 'tiny U-Net', 'lite0-fpn': 'EfficientNet-Lite0'}
BASE = 'ce'
WAYS = {
    BASE: 'cross-entropy',
    'imf': 'inverse median frequency',
    'ohem': 'online bootstrapping',
    'focal': 'focal loss',
    'ce-dice': 'cross-entropy + Dice',
    'ce-lovasz': 'cross-entropy + 3 · Lovász',
    'lovasz': 'Lovász-Softmax',
    'lmp': 'loss max-pooling',
    'lmp-iou': 'loss max-pooling, sampling by IoU',
    'ce-equibatch': 'cross-entropy, equibatch',
    'lovasz-equibatch': 'Lovász-Softmax, equibatch',
    'ce-lovasz-equibatch': 'cross-entropy + 3 · Lovász, equibatch',
    'metric': "metric_loss('miou')",
    'metric-equibatch': "metric_loss('miou'), equibatch",
}
"""Rows of the table; the first is the one to compare with."""
QUICK = (BASE, 'ce-dice', 'ce-lovasz', 'metric', 'lovasz', 'lmp')
"""Rows of ``--quick``, as far as they are in `WAYS`."""
SEARCH_SEED = 100
OPTIONS: dict[str, Any] = {}
"""Options of all runs."""
ON_TEST = {'val_dataloader.dataset.split': 'test'}
MIOU, RARE, GAIN = 'mIoU', 'IoU of rare classes', 'against cross-entropy'
MEASURES: dict[str, Measure] = {MIOU: data_set_iou, 'class accuracy': class_accuracy, 'image IoU': image_iou}
BRIGHTNESS = 0.6
"""Exponent of the satellite images in the picture."""
N_TILES = 3
"""Number of tiles in the picture."""
VISIBLE = 0.01
"""Share of a tile from which on a class counts for the choice of the tiles in the picture."""


class Setting(NamedTuple):
    """Runs that differ in their seeds only."""

    network: str
    schedule: str
    way: str

    @property
    def config(self) -> str:
        """Path of the config."""
        return CONFIG.format(network=self.network, way=self.way)

    @property
    def names(self) -> dict[str, str]:
        """The first columns of a table."""
        return {'network': NETWORKS[self.network], 'schedule': self.schedule, 'loss': WAYS[self.way]}


Runs = dict[Setting, list[Trained]]
"""Finished runs, in the order of the seeds."""


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Search the learning rates, do the runs that have no result yet, and compare them."""
    if SEARCH_SEED in seeds:
        raise ValueError(f'Parameter `seeds` should not contain {SEARCH_SEED}, the seed of the search. Found {seeds}.')
    searched = search(Setting(network, 'short', way) for network, way in itertools.product(NETWORKS, WAYS))
    settings = [Setting(*parts) for parts in itertools.product(NETWORKS, SCHEDULES, WAYS)]
    rates = {setting: searched[setting._replace(schedule='short')].rate for setting in settings}
    return compared(train(rates, seeds), searched)


def quick(seeds: Sequence[int]) -> Reproduction:
    """Compare some of the rows, with the small network, for the short schedule, at the middle one of the rates."""
    settings = [Setting('tiny-unet', 'short', way) for way in WAYS if way in QUICK]
    return compared(train(dict.fromkeys(settings, FIRST_RATES[1]), seeds), {})


def search(settings: Iterable[Setting]) -> dict[Setting, Searched]:
    """Return the best learning rate of each setting on the validation tiles."""

    def jobs_of(setting: Setting, rate: float) -> list[Job]:
        return [Job(setting.config, SEARCH_SEED, OUT / 'search', setting.schedule, rate, OPTIONS, n_points=1)]

    return search_rates(settings, jobs_of, os.cpu_count() or 1)


def train(rates: Mapping[Setting, float], seeds: Sequence[int]) -> Runs:
    """Return all runs with these learning rates, measured on the test tiles; do those that have no result, by seed."""
    jobs = {
        (setting, seed): Job(setting.config, seed, OUT, setting.schedule, rate, OPTIONS | ON_TEST, n_points=1)
        for seed in seeds
        for setting, rate in rates.items()
    }
    results = train_missing(list(jobs.values()), os.cpu_count() or 1)
    trained = {key: Trained(result, job.work_dir) for (key, job), result in zip(jobs.items(), results, strict=True)}
    return {setting: [trained[setting, seed] for seed in seeds] for setting in rates}


def compared(runs: Runs, searched: Mapping[Setting, Searched]) -> Reproduction:
    """Return the tables, the findings and the picture."""
    rare = rare_classes(next(iter(runs)))
    measures = MEASURES | {RARE: iou_of_classes(list(rare.values()))}
    groups = groups_of(runs)
    rows = [row for group in groups for row in rows_of(group, measures)]
    results = {
        'rows': rows,
        'rare classes': list(rare),
        'rates': [rate_row(setting, result) for setting, result in searched.items()],
        'runs': [run_row(setting, trained, measures) for setting, group in runs.items() for trained in group],
        'classes': [setting.names | class_means(group) for setting, group in runs.items()],
        'seconds of the search': sum(result.seconds for result in searched.values()),
        'seconds of all other runs': sum(trained['seconds'] for group in runs.values() for trained in group),
    }
    told = ' '.join([*(first_and_ahead(group) for group in groups), *rates_at_the_edge(searched)])
    return Reproduction(results, rows, told, draw(groups))


def groups_of(runs: Runs) -> list[Runs]:
    """Return the runs that are compared with each other together: those of a network and a schedule."""
    groups: dict[tuple[str, str], Runs] = {}
    for setting, group in runs.items():
        groups.setdefault((setting.network, setting.schedule), {})[setting] = group
    return list(groups.values())


def rare_classes(setting: Setting) -> dict[str, int]:
    """Return the third of the classes that has the fewest pixels in the training data, the rarest first."""
    cfg = Job(setting.config, 0, OUT, options=OPTIONS).settings()
    with DefaultScope.overwrite_default_scope('mmseg'):
        images = DATASETS.build(cfg.train_dataloader.dataset)
    order = np.argsort(index_classes(images).items_per_class, kind='stable')
    return {images.metainfo['classes'][c]: int(c) for c in order[: len(order) // 3]}


def rows_of(group: Runs, measures: Mapping[str, Measure]) -> list[dict[str, Any]]:
    """Return the rows of a network and a schedule."""
    first = shares_first({setting.way: areas_of(group[setting]) for setting in group}, 'data set')
    rows = []
    for setting, trainings in group.items():
        values = {
            name: spread_over_seeds([value_of(measure, trained.areas) for trained in trainings])
            for name, measure in measures.items()
        }
        row = setting.names | {'iterations': trainings[0]['iterations'], 'rate': trainings[0]['lr']}
        row |= {MIOU: values.pop(MIOU), GAIN: '' if setting.way == BASE else str(gain(group, setting))}
        row |= {'first': f'{100 * first[setting.way]:.0f} %', **values}
        rows.append(row | {'seconds': statistics.fmean(trained['seconds'] for trained in trainings)})
    return rows


def areas_of(trainings: Sequence[Trained]) -> list[Areas]:
    """Return the areas of each seed."""
    return [trained.areas for trained in trainings]


def gain(group: Runs, setting: Setting) -> Difference:
    """Return the difference in mIoU to cross-entropy, paired by seed and tile."""
    return paired_difference(areas_of(group[setting]), areas_of(group[setting._replace(way=BASE)]), 'data set')


def rate_row(setting: Setting, searched: Searched) -> dict[str, Any]:
    """Return the scores of the search of a learning rate."""
    scores = {f'{rate:g}': score for rate, score in searched.scores.items()}
    return {'network': NETWORKS[setting.network], 'loss': WAYS[setting.way], 'rate': searched.rate, 'val mIoU': scores}


def run_row(setting: Setting, trained: Trained, measures: Mapping[str, Measure]) -> dict[str, Any]:
    """Return the measures of one run."""
    values = {name: value_of(measure, trained.areas) for name, measure in measures.items()}
    return {**setting.names, 'seed': trained['seed'], **values, 'seconds': trained['seconds']}


def class_means(trainings: Sequence[Trained]) -> dict[str, float | None]:
    """Return the IoU of each class, averaged over the seeds in which it occurs in labels or decisions."""
    by_class = {name: [trained['IoU'][name] for trained in trainings] for name in trainings[0]['IoU']}
    known = {name: [value for value in values if value is not None] for name, values in by_class.items()}
    return {name: statistics.fmean(values) if values else None for name, values in known.items()}


def mean_iou(trainings: Sequence[Trained]) -> float:
    """Return the mIoU, averaged over the seeds."""
    return statistics.fmean(trained['mIoU'] for trained in trainings)


def first_and_ahead(group: Runs) -> str:
    """Return the first row of a network and a schedule, and the rows that differ from cross-entropy."""
    shares = shares_first({setting.way: areas_of(group[setting]) for setting in group}, 'data set')
    [best, *_] = sorted(group, key=lambda setting: -mean_iou(group[setting]))
    gains = {WAYS[setting.way]: gain(group, setting) for setting in group if setting.way != BASE}
    ahead = ', '.join(f'{name} {found.mean:+.1f}' for name, found in gains.items() if found.low > 0) or 'no row'
    behind = ', '.join(f'{name} {found.mean:+.1f}' for name, found in gains.items() if found.high < 0) or 'no row'
    return (
        f'{NETWORKS[best.network]}, {group[best][0]["iterations"]} iterations: the highest mIoU has {WAYS[best.way]}, '
        f'{mean_iou(group[best]):.1f} (first in {100 * shares[best.way]:.0f} % of the resampled comparisons). '
        f'With an interval above 0, ahead of cross-entropy: {ahead}; with one below 0, behind: {behind}.'
    )


def rates_at_the_edge(searched: Mapping[Setting, Searched]) -> list[str]:
    """Return how many of the searched rates are the lowest or the highest of those that were tried."""
    at_edge = sum(result.is_at_the_edge for result in searched.values())
    return [f'{at_edge} of the {len(searched)} searched learning rates are at the end of the range.'] * bool(searched)


def draw(groups: Sequence[Runs]) -> Figure:
    """Show test tiles with two predictions, and below the mIoU of every run as a dot."""
    ways = list(dict.fromkeys(setting.way for group in groups for setting in group))
    heights = (2.3 * N_TILES + 0.6, 1.4, 0.3 * len(ways) + 1.1)
    figure = Figure(figsize=(10, sum(heights)), layout='constrained')
    above, middle, below = figure.subfigures(3, 1, height_ratios=heights)
    middle.legend(handles=draw_tiles(above, groups[-1]), ncols=4, loc='center', frameon=False, fontsize=9)
    draw_dots(below, groups, ways)
    return figure


def draw_tiles(figure: SubFigure, group: Runs) -> list[Patch]:
    """Show the tiles with the most visible classes, under cross-entropy and the best row; return the legend."""
    base, *others = group
    best = max(others, key=lambda setting: mean_iou(group[setting]))
    theirs, ours = (group[setting][0].last for setting in (base, best))
    visible = theirs['areas'][:, 2] >= VISIBLE * theirs['areas'][:, 2].sum(1, keepdims=True)
    tiles = np.argsort(-visible[theirs['gallery']].sum(1), kind='stable')[:N_TILES]
    titles = ('satellite image', 'labels', WAYS[base.way], WAYS[best.way])
    seen: set[int] = set()
    for line, tile in zip(figure.subplots(N_TILES, 4, squeeze=False), tiles, strict=True):
        picture = theirs['thumbnails'][tile]
        maps = [picture[:, :, 3], picture[:, :, 4], ours['thumbnails'][tile][:, :, 4]]
        for axis, layer in zip(
            line, [brighter(picture[:, :, :3]), *(colored(each, theirs) for each in maps)], strict=True
        ):
            show(axis, layer)
        seen.update(np.unique(maps).tolist())
    for axis, title in zip(figure.axes[:4], titles, strict=True):
        axis.set_title(title, fontsize=11)
    names, palette = [*group[base][0]['IoU']], theirs['palette'] / 255
    figure.suptitle(f'{NETWORKS[base.network]}, {group[base][0]["iterations"]} iterations', fontsize=12)
    known = [Patch(facecolor=palette[c], edgecolor='gray', label=names[c]) for c in sorted(seen - {255})]
    return [*known, *[Patch(facecolor='black', label='not labelled')] * (255 in seen)]


def brighter(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image with more light, for print: land is dark from above."""
    return (255 * (image / 255) ** BRIGHTNESS).astype(np.uint8)


def draw_dots(figure: SubFigure, groups: Sequence[Runs], ways: Sequence[str]) -> None:
    """Plot the mIoU of every run as a dot, with a panel for each network and schedule."""
    for axis, group in zip(figure.subplots(1, len(groups), sharey=True, squeeze=False)[0], groups, strict=True):
        for setting, trainings in group.items():
            row, color = ways.index(setting.way), 'black' if setting.way == BASE else 'tab:blue'
            axis.plot([trained['mIoU'] for trained in trainings], [row] * len(trainings), 'o', color=color, alpha=0.5)
            axis.plot([mean_iou(trainings)] * 2, [row - 0.35, row + 0.35], color=color, linewidth=2.5)
        axis.axvline(mean_iou(group[setting._replace(way=BASE)]), color='black', linewidth=0.8, linestyle='--')
        axis.set_title(f'{NETWORKS[setting.network]},\n{trainings[0]["iterations"]} iterations', fontsize=11)
        axis.set_xlabel('mIoU on the test tiles (%)')
        axis.grid(alpha=0.3, axis='x')
    figure.axes[0].set_yticks(range(len(ways)), [WAYS[way] for way in ways], fontsize=10)
    figure.axes[0].invert_yaxis()

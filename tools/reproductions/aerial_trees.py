"""Average precision of trees detected on aerial photographs: `DirectAPLoss`, cross-entropy and the focal loss.

A RetinaNet with a small backbone from ImageNet is fine-tuned on two thirds of one photograph (see the data set
`AerialTrees`). The methods differ in the classification loss alone. Five learning rates of each are tried on the last
third of the photograph, with a seed of their own. The best one is trained with all other seeds, which are measured on
three other photographs: average precision at an IoU of 0.5, area under the curve, as a percentage.

Runs stay in ``work_dirs/aerial_trees``; finished runs are not repeated.
"""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from comparison.statistics import Difference
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from mmseg_nondecomp.datasets.aerial_trees import AerialTrees
from reproductions import Reproduction, spread_over_seeds
from reproductions.resampling import Measured, Weights, average_precision, draw_weights, measured, paired_gain
from reproductions.tree_detectors import Detected, Training, train_missing

OUT = Path('work_dirs/aerial_trees')
OPTIONS: dict[str, Any] = {}
"""Options of all runs."""
WAYS = {'ce': 'cross-entropy', 'focal': 'focal loss', 'ap': 'DirectAPLoss'}
BASE, OURS = 'ce', 'ap'
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
SEARCH_SEED = 1000
N_RESAMPLES = 2000
IOU = 0.5
MEASURES = {'AP50': '', 'Yellowstone': 'YELL', 'Florida': 'OSBS', 'California': 'SOAP'}
"""Measures, with the beginning of the names of the photographs that count."""


class Tile(NamedTuple):
    """Trees of one tile."""

    place: str
    image: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    """Edges left, top, right, bottom of the trees [n, 4]."""
    ignored: NDArray[np.float32]
    """The same of the boxes that a border cuts."""


Runs = dict[str, list[dict[str, Measured]]]
"""Measures on the test tiles of each way and seed."""


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Search the learning rate of each loss, and train with all seeds."""
    searched = search()
    rates = {way: max(of_way, key=of_way.__getitem__) for way, of_way in searched.items()}
    detected = trained({(way, rate, seed) for way, rate in rates.items() for seed in seeds}, 'test')
    tiles = tiles_of('test')
    weights = draw_weights(np.unique([tile.place for tile in tiles], return_inverse=True)[1], N_RESAMPLES)
    runs = {way: [measure(detected[way, rate, seed], tiles, weights) for seed in seeds] for way, rate in rates.items()}
    rows = [row_of(way, rate, runs) for way, rate in rates.items()]
    results = {
        'summary': rows,
        'search': [
            {'loss': WAYS[way], 'learning rate': rate, 'AP50 on validation tiles': value}
            for way, of_way in searched.items()
            for rate, value in of_way.items()
        ],
        'runs': [
            {'loss': WAYS[way], 'seed': seed, **{name: each.value for name, each in run.items()}}
            for way, group in runs.items()
            for seed, run in zip(seeds, group, strict=True)
        ],
    }
    shown = {WAYS[way]: detected[way, rate, seeds[0]] for way, rate in rates.items()}
    return Reproduction(results, rows, found(runs), draw(runs, tiles, shown))


def search() -> dict[str, dict[float, float]]:
    """Return the average precision on the validation tiles for each way and learning rate."""
    detected = trained({(way, rate, SEARCH_SEED) for way in WAYS for rate in RATES}, 'val')
    tiles = tiles_of('val')
    once = np.ones((1, len(tiles)), np.float32)
    return {
        way: {rate: measure(detected[way, rate, SEARCH_SEED], tiles, once)['AP50'].value for rate in RATES}
        for way in WAYS
    }


def trained(keys: Iterable[tuple[str, float, int]], split: str) -> dict[tuple[str, float, int], list[Detected]]:
    """Return the detections in the tiles of a split for each way, learning rate and seed."""
    keys = sorted(keys)
    return dict(zip(keys, train_missing([Training(*key, split, OUT, OPTIONS) for key in keys]), strict=True))


def tiles_of(split: str) -> list[Tile]:
    """Return the tiles of a split."""
    dataset = AerialTrees(split)
    tiles = []
    for index in range(len(dataset)):
        item = dataset.get_data_info(index)
        kept, ignored = (
            np.array([box['bbox'] for box in item['instances'] if box['ignore_flag'] == flag], np.float32).reshape(
                -1, 4
            )
            for flag in (0, 1)
        )
        tiles.append(Tile(item['place'], item['img'], kept, ignored))
    return tiles


def measure(detected: Sequence[Detected], tiles: Sequence[Tile], weights: Weights) -> dict[str, Measured]:
    """Return the average precision on tiles with weights [B, n], for each of the measures."""
    n_trees = np.array([len(tile.boxes) for tile in tiles])
    is_hit, index = matched(detected, tiles)
    measures = {}
    for name, prefix in MEASURES.items():
        of_tiles = weights * np.array([tile.place.startswith(prefix) for tile in tiles])
        values = average_precision(is_hit, of_tiles[:, index], of_tiles @ n_trees, envelope=True)
        measures[name] = measured(values)
    return measures


def matched(detected: Sequence[Detected], tiles: Sequence[Tile]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return whether each detection is the first one of a tree, in descending order of the scores, and its tile.

    Detections that match an ignored box are left out. As in `VOCMetric`, sides are counted in pixels, first and last.
    """
    from mmdet.evaluation.functional.mean_ap import tpfp_default  # no other reproduction needs MMDetection

    scores, hits, places = [], [], []
    for place, (found, tile) in enumerate(zip(detected, tiles, strict=True)):
        boxes = np.concatenate([found.boxes, found.scores[:, None]], 1)
        hit, miss = tpfp_default(boxes, tile.boxes, tile.ignored, IOU, use_legacy_coordinate=True)
        counts = (hit + miss)[0] > 0
        scores.append(found.scores[counts])
        hits.append(hit[0][counts] > 0)
        places.append(np.full(counts.sum(), place))
    order = (-np.concatenate(scores)).argsort(kind='stable')
    return np.concatenate(hits)[order], np.concatenate(places)[order]


def gain(runs: Runs, way: str, name: str, base: str = BASE) -> Difference:
    """Return the gain of a way over another, paired by seed and tile."""
    return paired_gain([run[name] for run in runs[way]], [run[name] for run in runs[base]])


def row_of(way: str, rate: float, runs: Runs) -> dict[str, Any]:
    """Return the row of a loss."""
    row: dict[str, Any] = {'loss': WAYS[way], 'learning rate': rate}
    for name in MEASURES:
        row[name] = spread_over_seeds([run[name].value for run in runs[way]])
        row[f'{name}: gain'] = '' if way == BASE else str(gain(runs, way, name))
    return row


def found(runs: Runs) -> str:
    """Return the gains of `DirectAPLoss` over both other losses."""
    parts = [
        f'{WAYS[OURS]} against {WAYS[base]}: '
        + ', '.join(f'{name} {gain(runs, OURS, name, base)}' for name in MEASURES)
        for base in WAYS
        if base != OURS
    ]
    return 'Points on the test tiles. ' + '. '.join(parts) + '.'


def draw(runs: Runs, tiles: Sequence[Tile], shown: dict[str, list[Detected]]) -> Figure:
    """Plot the detections of each loss in one tile, as many as there are trees, and the measures of every seed."""
    figure = Figure(figsize=(12, 6.6), layout='constrained')
    above, below = figure.subfigures(2, 1, height_ratios=(1.3, 1))
    place = max(range(len(tiles)), key=lambda index: len(tiles[index].boxes))
    tile, *axes = tiles[place], *above.subplots(1, 1 + len(shown))
    show(axes[0], tile, tile.boxes)
    axes[0].set_title(f'{len(tile.boxes)} trees ({tile.place})', fontsize=9)
    for axis, (name, detected) in zip(axes[1:], shown.items(), strict=True):
        show(axis, tile, detected[place].boxes[: len(tile.boxes)])
        axis.set_title(f'{name}: the highest scores', fontsize=9)
    for axis, name in zip(below.subplots(1, len(MEASURES), sharey=True), MEASURES, strict=True):
        for row, way in enumerate(WAYS):
            values = [run[name].value for run in runs[way]]
            axis.plot(values, [row] * len(values), 'o', color=f'C{row}', alpha=0.5)
            axis.plot([statistics.fmean(values)] * 2, [row - 0.3, row + 0.3], color=f'C{row}', linewidth=2.5)
        axis.set_yticks(range(len(WAYS)), list(WAYS.values()))
        axis.set_xlabel('AP50 on all test tiles (%)' if name == 'AP50' else f'AP50 in {name} (%)')
        axis.grid(alpha=0.3, axis='x')
    axis.invert_yaxis()
    return figure


def show(axis: Axes, tile: Tile, boxes: NDArray[np.float32]) -> None:
    """Draw a tile with boxes."""
    axis.imshow(tile.image)
    axis.set_axis_off()
    for left, top, right, bottom in boxes:
        axis.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, color='tab:red', linewidth=0.8))

r"""The tilings of section 5.2 of the loss max-pooling paper on LongTailShapes: do overlaps help, and is it to cut them?

The paper evaluates Cityscapes in five tiles side by side ("efficient tiling", its Table 1) or in tiles that overlap by
200 pixels, each half of an overlap decided by its own tile ("optimized tiling", Table 2), and finds more with the
latter: 75.06 against 74.64 for its loss, 73.63 against 73.13 for cross-entropy. MMSegmentation averages the scores in
an overlap instead. Here small U-Nets are trained on crops of 64 x 64 by the shipped configs, with both losses, and
predict the validation images of 128 x 128 as a whole and in tiles of two sizes and several overlaps, averaged or cut.

Images are predicted in the batches of the config. All ways take turns on each batch, and the time of one is that of the
whole test step.

Reference:
    S. Rota Bulò, G. Neuhold, P. Kontschieder: Loss Max-Pooling for Semantic Image Segmentation. CVPR 2017, section 5.2.
    https://arxiv.org/abs/1704.02966
"""

import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from comparison.job import Job
from comparison.pool import train_missing
from comparison.results import Trained
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from mmengine.config import Config
from mmengine.registry import DATASETS, MODELS, DefaultScope
from mmengine.runner import load_checkpoint
from torch import Tensor, nn

from mmseg_nondecomp.metrics import JaccardIndexByImage
from reproductions import Reproduction, lmp_table2, spread_over_seeds

OUT = lmp_table2.OUT
"""Where the trainings are, which are those of Table 2."""
CONFIGS = {'cross-entropy': lmp_table2.config_of('ce-iou'), 'loss max-pooling': lmp_table2.config_of('lmp-iou')}
OPTIONS: dict[str, Any] = {}
"""Of the trainings."""
OVERLAPS = {32: (0, 8, 16), 64: (0, 16, 32)}
"""By the size of the tiles."""
WHOLE, AVERAGED, CUT = 'whole', 'averaged', 'cut'
COLORS = {32: 'tab:orange', 64: 'tab:blue'}


class Way(NamedTuple):
    """To predict an image."""

    size: int | None = None
    """Of the tiles; None for the image as a whole."""
    overlap: int = 0
    decided: str = WHOLE
    """How: overlaps are averaged, or cut in the middle."""

    def settings(self) -> dict[str, Any]:
        """What it changes in a config."""
        if self.size is None:
            return {}
        test_cfg = dict(mode='slide', crop_size=(self.size,) * 2, stride=(self.size - self.overlap,) * 2)
        tiled = {'model.type': 'TiledSegmentor', 'model.segmentor': 'EncoderDecoder'} if self.decided == CUT else {}
        return {'model.test_cfg': test_cfg, **tiled}


WAYS = [
    Way(),
    *[
        Way(size, overlap, decided)
        for size, overlaps in OVERLAPS.items()
        for overlap in overlaps
        for decided in (AVERAGED, CUT)[overlap == 0 :]  # without an overlap there is nothing to average
    ],
]


class Score(NamedTuple):
    """Of a way with one model."""

    miou: float
    """Of the data set, in percent."""
    as_whole: float
    """The share of pixels that are decided as from the whole image, in percent."""
    ms: float
    """For an image, median."""


Scores = dict[tuple[str, Way], list[Score]]
"""Of each config and way, for each seed."""


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Train with both losses for each seed, and predict in all ways."""
    scores: Scores = {(name, way): [] for name in CONFIGS for way in WAYS}
    for name, training in zip([name for name in CONFIGS for _ in seeds], trained(seeds), strict=True):
        for way, score in measure(Path(training['config']), training.checkpoint).items():
            scores[name, way].append(score)
    rows = [row_of(scores, name, way) for name, way in scores]
    runs = [
        {'loss': name, **way._asdict(), 'seed': seed, **score._asdict()}
        for (name, way), group in scores.items()
        for seed, score in zip(seeds, group, strict=True)
    ]
    return Reproduction({'ways': rows, 'runs': runs}, rows, found(scores), draw(scores))


def trained(seeds: Sequence[int]) -> list[Trained]:
    """A training of each config and seed, which takes place unless it has before."""
    jobs = [Job(config, seed, OUT, options=OPTIONS) for config in CONFIGS.values() for seed in seeds]
    results = train_missing(jobs, os.cpu_count() or 1)
    return [Trained(result, job.work_dir) for result, job in zip(results, jobs, strict=True)]


def measure(config: Path, checkpoint: Path) -> dict[Way, Score]:
    """One model in all ways, on the validation set of its config."""
    cfg = Config.fromfile(config)
    cfg.merge_from_dict(OPTIONS)
    with DefaultScope.overwrite_default_scope('mmseg'):
        images = DATASETS.build(cfg.val_dataloader.dataset)
        models = {way: predictor(config, way, checkpoint) for way in WAYS}
    n_classes, size = len(images.metainfo['classes']), cfg.val_dataloader.batch_size
    ious = {way: JaccardIndexByImage(n_classes, ignore_index=255) for way in WAYS}
    alike, times = {way: [] for way in WAYS}, {way: [] for way in WAYS}
    for start in range(0, len(images), size):
        batch = [images[i] for i in range(start, min(start + size, len(images)))]
        labels = torch.cat([item['data_samples'].gt_sem_seg.data for item in batch])
        decided = {}
        for way, model in models.items():
            begin = time.perf_counter()
            decided[way] = decisions(model, batch)
            times[way].append(1000 * (time.perf_counter() - begin) / len(batch))
            ious[way].update(decided[way], labels)
            alike[way] += (decided[way] == decided[Way()]).double().mean((1, 2)).tolist()
    return {
        way: Score(
            100 * ious[way].compute()['dataset'].item(),
            100 * statistics.fmean(alike[way]),
            statistics.median(times[way]),
        )
        for way in WAYS
    }


def decisions(model: nn.Module, batch: list[dict[str, Any]]) -> Tensor:
    """The classes of the pixels, of shape [N, H, W]."""
    data = dict(inputs=[x['inputs'] for x in batch], data_samples=[x['data_samples'].clone() for x in batch])
    return torch.cat([sample.pred_sem_seg.data for sample in model.test_step(data)])


def predictor(config: Path, way: Way, checkpoint: Path) -> nn.Module:
    """The trained model, predicting in this way."""
    cfg = Config.fromfile(config)
    cfg.merge_from_dict(way.settings())
    model = MODELS.build(cfg.model)
    load_checkpoint(model, str(checkpoint), map_location='cpu', strict=True, logger='silent')
    return model.eval()


def row_of(scores: Scores, name: str, way: Way) -> dict[str, Any]:
    """A way over the seeds."""
    group, whole = scores[name, way], scores[name, Way()]
    return {
        'loss': name,
        'tiles': way.size or '-',
        'overlap': way.overlap if way.size else '-',
        'decided': way.decided,
        'mIoU': spread_over_seeds([score.miou for score in group]),
        'against whole': spread_over_seeds(gains(group, whole)),
        'ahead of whole in': told_wins(gains(group, whole)),
        'pixels as whole': spread_over_seeds([score.as_whole for score in group]),
        'ms an image': statistics.fmean(score.ms for score in group),
        'time / whole': statistics.fmean(score.ms / base.ms for score, base in zip(group, whole, strict=True)),
    }


def gains(group: list[Score], against: list[Score]) -> list[float]:
    """In mIoU, seed by seed."""
    return [score.miou - other.miou for score, other in zip(group, against, strict=True)]


def told_wins(gained: list[float]) -> str:
    """In how many seeds it is above 0."""
    return f'{sum(gain > 0 for gain in gained)} of {len(gained)}'


def told(gained: list[float]) -> str:
    """A mean gain, and its wins."""
    return f'{statistics.fmean(gained):+.2f} ({told_wins(gained)})'


def found(scores: Scores) -> str:
    """Overlaps against none, cut against averaged, tiles against the whole image; then what they cost."""
    parts = []
    for name in CONFIGS:
        for size, (_, *overlaps) in OVERLAPS.items():
            efficient = scores[name, Way(size, 0, CUT)]
            cut, averaged = ([scores[name, Way(size, o, decided)] for o in overlaps] for decided in (CUT, AVERAGED))
            to_none = ', '.join(told(gains(group, efficient)) for group in cut)
            to_averaged = ', '.join(told(gains(*groups)) for groups in zip(cut, averaged, strict=True))
            parts.append(
                f'{name}, tiles of {size}: side by side {told(gains(efficient, scores[name, Way()]))} to the whole '
                f'image; with overlaps of {", ".join(map(str, overlaps))} cut in the middle, to side by side '
                f'{to_none}; cut, to averaged {to_averaged}.'
            )
    cut, averaged = (time_ratio(scores, Way(64, 32, decided)) for decided in (CUT, AVERAGED))
    return (
        f'Mean gains in points of mIoU, in brackets in how many seeds. {" ".join(parts)} Nine tiles of 64, cut, take '
        f'{cut:.2g} times as long as the whole image, {averaged:.2g} times averaged.'
    )


def time_ratio(scores: Scores, way: Way) -> float:
    """The time of a way against that of the whole image, mean over models."""
    return statistics.fmean(
        score.ms / whole.ms
        for name in CONFIGS
        for score, whole in zip(scores[name, way], scores[name, Way()], strict=True)
    )


def draw(scores: Scores) -> Figure:
    """The mIoU and the agreement with the whole image over the overlap, one row for each loss."""
    figure = Figure(figsize=(13, 8), layout='constrained')
    axes = figure.subplots(len(CONFIGS), 2, sharex=True, squeeze=False)
    for name, (miou, alike) in zip(CONFIGS, axes, strict=True):
        draw_lines(miou, scores, name, 'miou')
        miou.axhline(
            statistics.fmean(score.miou for score in scores[name, Way()]), color='black', linestyle=':', label='whole'
        )
        miou.set_title(f'{name}: mIoU')
        miou.set_ylabel('mIoU in percent')
        draw_lines(alike, scores, name, 'as_whole')
        alike.set_title(f'{name}: decided as from the whole image')
        alike.set_ylabel('percent of the pixels')
        for axis in (miou, alike):
            axis.set_xlabel('overlap / size of the tile')
            axis.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=9)
    return figure


def draw_lines(axis: Axes, scores: Scores, name: str, field: str) -> None:
    """A line for each size and way to decide; faint ones for each seed's cut."""
    for size, overlaps in OVERLAPS.items():
        for decided, style in ((CUT, 'o-'), (AVERAGED, 's--')):
            groups = [scores[name, Way(size, o, decided if o else CUT)] for o in overlaps]
            means = [statistics.fmean(getattr(score, field) for score in group) for group in groups]
            places = [o / size for o in overlaps]
            axis.plot(places, means, style, color=COLORS[size], label=f'tiles of {size}, overlaps {decided}')

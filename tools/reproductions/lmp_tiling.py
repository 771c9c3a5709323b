r"""Tilings of section 5.2 of the loss max-pooling paper on LongTailShapes: effect of overlaps, cut or averaged.

The paper evaluates Cityscapes in five adjacent tiles ("efficient tiling", its Table 1) or in tiles that overlap by 200
pixels, where each tile decides its half of an overlap ("optimized tiling", Table 2). The latter is better: 75.06
against 74.64 for its loss, 73.63 against 73.13 for cross-entropy. MMSegmentation averages the scores in an overlap
instead. Here the shipped configs train small U-Nets on crops of 64 x 64 with both losses. They predict the validation
images of 128 x 128 as a whole and in tiles of two sizes and several overlaps, averaged or cut.

Images are predicted in the batches of the config. All methods take turns on each batch, and are timed over the whole
test step.

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
"""Folder of the runs, which are those of Table 2."""
CONFIGS = {'cross-entropy': lmp_table2.config_of('ce-iou'), 'loss max-pooling': lmp_table2.config_of('lmp-iou')}
OPTIONS: dict[str, Any] = {}
"""Options of the runs."""
OVERLAPS = {32: (0, 8, 16), 64: (0, 16, 32)}
"""Overlaps by the size of the tiles."""
WHOLE, AVERAGED, CUT = 'whole', 'averaged', 'cut'
COLORS = {32: 'tab:orange', 64: 'tab:blue'}


class Way(NamedTuple):
    """Way of predicting an image."""

    size: int | None = None
    """Size of the tiles; None for the whole image."""
    overlap: int = 0
    decided: str = WHOLE
    """Whether overlaps are averaged or cut in the middle."""

    def settings(self) -> dict[str, Any]:
        """Return the changes in a config."""
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
    """Scores of a way with one model."""

    miou: float
    """IoU of the data set, in percent."""
    as_whole: float
    """Share of pixels with the same decision as from the whole image, in percent."""
    ms: float
    """Median time per image."""


Scores = dict[tuple[str, Way], list[Score]]
"""Scores of each config and way, for each seed."""


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
    """Return a run for each config and seed; train those without a result."""
    jobs = [Job(config, seed, OUT, options=OPTIONS) for config in CONFIGS.values() for seed in seeds]
    results = train_missing(jobs, os.cpu_count() or 1)
    return [Trained(result, job.work_dir) for result, job in zip(results, jobs, strict=True)]


def measure(config: Path, checkpoint: Path) -> dict[Way, Score]:
    """Evaluate one model in all ways on the validation set of its config."""
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
    """Return the classes of the pixels, of shape [N, H, W]."""
    data = dict(inputs=[x['inputs'] for x in batch], data_samples=[x['data_samples'].clone() for x in batch])
    return torch.cat([sample.pred_sem_seg.data for sample in model.test_step(data)])


def predictor(config: Path, way: Way, checkpoint: Path) -> nn.Module:
    """Return the trained model with this way of predicting."""
    cfg = Config.fromfile(config)
    cfg.merge_from_dict(way.settings())
    model = MODELS.build(cfg.model)
    load_checkpoint(model, str(checkpoint), map_location='cpu', strict=True, logger='silent')
    return model.eval()


def row_of(scores: Scores, name: str, way: Way) -> dict[str, Any]:
    """Return the row of a way over the seeds."""
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
    """Return the gains in mIoU of each seed."""
    return [score.miou - other.miou for score, other in zip(group, against, strict=True)]


def told_wins(gained: list[float]) -> str:
    """Return the number of seeds in which it is above 0."""
    return f'{sum(gain > 0 for gain in gained)} of {len(gained)}'


def told(gained: list[float]) -> str:
    """Return a mean gain, and the number of seeds that gain."""
    return f'{statistics.fmean(gained):+.2f} ({told_wins(gained)})'


def found(scores: Scores) -> str:
    """Return the gains of overlaps over none, of cut over averaged, and of tiles over the whole image, and the cost."""
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
    """Return the time of a way relative to that of the whole image, mean over models."""
    return statistics.fmean(
        score.ms / whole.ms
        for name in CONFIGS
        for score, whole in zip(scores[name, way], scores[name, Way()], strict=True)
    )


def draw(scores: Scores) -> Figure:
    """Plot the mIoU and the agreement with the whole image over the overlap, one row for each loss."""
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
    """Plot a line for each size and treatment of overlaps; faint ones for the cut of each seed."""
    for size, overlaps in OVERLAPS.items():
        for decided, style in ((CUT, 'o-'), (AVERAGED, 's--')):
            groups = [scores[name, Way(size, o, decided if o else CUT)] for o in overlaps]
            means = [statistics.fmean(getattr(score, field) for score in group) for group in groups]
            places = [o / size for o in overlaps]
            axis.plot(places, means, style, color=COLORS[size], label=f'tiles of {size}, overlaps {decided}')

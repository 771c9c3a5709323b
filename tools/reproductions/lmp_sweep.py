"""Table 1 of the loss max-pooling paper on LongTailShapes: p with 25 % of the pixels, and other shares with p = 1.3.

All rows but the first are the pooled loss with the paper's sampling, at the configs' schedule. As p grows, the optimal
weights become uniform, so that at infinity the pooled loss is the mean: over each image, as in the paper, or with
``scope='batch'`` over the batch, which is cross-entropy averaged over the pixels that are not ignored
(``avg_non_ignore=True``). The last two rows are this pair and must be identical. BASE+ itself is the stock mean, in
which ignored pixels count as zeros.

Reference:
    S. Rota Bulò, G. Neuhold, P. Kontschieder: Loss max-pooling for semantic image segmentation. CVPR 2017, section 5.2.
    https://arxiv.org/abs/1704.02966
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from comparison.job import Job
from comparison.pool import train_missing
from comparison.results import Trained
from comparison.statistics import Difference, paired_difference
from comparison.training import result_of
from matplotlib.figure import Figure

from reproductions import Reproduction, lmp_table2, spread_over_seeds

OUT = Path('work_dirs/lmp-sweep')
P, RATIO = 1.3, 0.25
NORMS = (1.0, 1.1, P, 1.7, 2.3, 4.0, math.inf)
RATIOS = (0.1, RATIO, 0.5)
SETTINGS = sorted({*((p, RATIO) for p in NORMS), *((P, ratio) for ratio in RATIOS)})
BASE_PLUS, LIMIT, MEAN = 'BASE+', 'LMP over the batch, p = ∞', 'BASE+ over valid pixels'
GAIN = 'against BASE+'
LOSS = 'model.decode_head.loss_decode'
Key = str | tuple[float, float]
"""Setting: a name, or p and the share of the pixels."""


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Train each setting that has no result yet, and compare it with BASE+."""
    jobs = {key: [job_of(key, seed) for seed in seeds] for key in (BASE_PLUS, *SETTINGS, LIMIT, MEAN)}
    train_missing([job for group in jobs.values() for job in group], os.cpu_count() or 1)
    trained = {key: [Trained(result_of(job), job.work_dir) for job in group] for key, group in jobs.items()}
    rows = [row_of(key, group, trained[BASE_PLUS]) for key, group in trained.items()]
    return Reproduction({'rows': rows}, rows, told(trained), draw(trained))


def job_of(key: Key, seed: int) -> Job:
    """Return one run; those with the configs' own settings are shared with Table 2."""
    base, ours = (lmp_table2.config_of(way) for way in ('ce-iou', 'lmp-iou'))
    if key == BASE_PLUS:
        return Job(base, seed, lmp_table2.OUT)
    if key == MEAN:
        return Job(base, seed, OUT / 'base-valid', options={f'{LOSS}.avg_non_ignore': True})
    if key == LIMIT:
        return Job(ours, seed, OUT / 'pinf-batch', options={f'{LOSS}.p': math.inf, f'{LOSS}.scope': 'batch'})
    if key == (P, RATIO):
        return Job(ours, seed, lmp_table2.OUT)
    p, ratio = key
    return Job(ours, seed, OUT / f'p{p:g}-ratio{ratio:g}', options={f'{LOSS}.p': p, f'{LOSS}.ratio': ratio})


def row_of(key: Key, group: list[Trained], base: list[Trained]) -> dict[str, Any]:
    """Return one row of the table."""
    named = isinstance(key, str)
    return {
        '': key if named else 'LMP',
        'p': '' if named else name_of(key[0]),
        'share': '' if named else f'{100 * key[1]:.0f} %',
        **{f'seed {trained["seed"]}': f'{trained["mIoU"]:.2f}' for trained in group},
        'mIoU': spread_over_seeds([trained['mIoU'] for trained in group]),
        GAIN: '' if key == BASE_PLUS else str(gain(group, base)),
    }


def name_of(p: float) -> str:
    """Return the text form of p."""
    return '∞' if math.isinf(p) else f'{p:g}'


def gain(ours: list[Trained], theirs: list[Trained]) -> Difference:
    """Return the difference paired by seed and image."""
    return paired_difference([t.areas for t in ours], [t.areas for t in theirs], 'data set')


def told(trained: dict[Key, list[Trained]]) -> str:
    """Return the effects of p and the share, and the distance of the limit from the mean."""
    gains = {key: gain(group, trained[BASE_PLUS]).mean for key, group in trained.items()}
    by_norm = ', '.join(f'{gains[p, RATIO]:+.1f} at p = {name_of(p)}' for p in NORMS)
    by_ratio = ', '.join(f'{gains[P, ratio]:+.1f} at {100 * ratio:.0f} %' for ratio in RATIOS)
    return (
        f'Against BASE+, in points: {by_norm} (25 %); {by_ratio} (p = {P}). {LIMIT}, and {MEAN} differ by at most '
        f'{distance(trained[LIMIT], trained[MEAN]):.2g} points at any validation of any seed.'
    )


def distance(ours: list[Trained], theirs: list[Trained]) -> float:
    """Return the largest difference in mIoU at any validation."""
    curves = [[[point['data set'] for point in t['curve']] for t in group] for group in (ours, theirs)]
    return float(np.abs(np.subtract(*curves)).max())


def draw(trained: dict[Key, list[Trained]]) -> Figure:
    """Plot mIoU over p and over the share; every seed is a dot."""
    figure = Figure(figsize=(9, 3.4), layout='constrained')
    panels = [('p', [(p, RATIO) for p in NORMS]), ('share of the pixels, at least', [(P, ratio) for ratio in RATIOS])]
    for axis, (title, keys) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        scores = [[t['mIoU'] for t in trained[key]] for key in keys]
        for place, values in enumerate(scores):
            axis.plot([place] * len(values), values, 'o', color='tab:blue', alpha=0.5)
        axis.plot([np.mean(values) for values in scores], color='tab:blue', label='LMP, mean')
        for key, style in ((BASE_PLUS, '--'), (MEAN, ':')):
            axis.axhline(np.mean([t['mIoU'] for t in trained[key]]), color='black', linestyle=style, label=key)
        names = [name_of(p) if title == 'p' else f'{100 * ratio:.0f} %' for p, ratio in keys]
        axis.set_xticks(range(len(keys)), names)
        axis.set_xlabel(title)
        axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel('mIoU (%)')
    figure.axes[0].legend(frameon=False)
    return figure

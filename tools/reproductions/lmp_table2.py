"""Table 2 of the loss max-pooling paper and the Lovász loss on LongTailShapes.

Eight methods train the same small network with paired seeds, at the length of the configs and five times as long. As
in the paper, BASE is cross-entropy, BASE+ cross-entropy with the paper's sampling, and LMP the pooled loss with it.
Runs, tables and the page with all pictures stay in ``work_dirs/table2``; finished runs are not repeated.

Reference:
    S. Rota Bulò, G. Neuhold, P. Kontschieder: Loss max-pooling for semantic image segmentation. CVPR 2017, section 5.2.
    https://arxiv.org/abs/1704.02966
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from comparison.charts import colored, most_classes, show
from comparison.job import Job
from comparison.pool import train_missing
from comparison.report import write_report
from comparison.results import Comparison, Trained
from comparison.schedule import SCHEDULES
from comparison.tables import score_rows, summary_rows
from matplotlib.figure import Figure

from reproductions import Reproduction

OUT = Path('work_dirs/table2')
WAYS = {
    'ce': 'BASE (cross-entropy)',
    'ce-iou': 'BASE+ (with sampling by IoU)',
    'imf': 'inverse median frequency',
    'ohem': 'OHEM (online bootstrapping)',
    'lmp': 'loss max-pooling alone',
    'lmp-iou': 'LMP (with sampling by IoU)',
    'lovasz': 'Lovász-Softmax',
    'lovasz-equibatch': 'Lovász-Softmax, equibatch',
}
SHOWN = [WAYS[way] for way in ('ce', 'lmp-iou', 'lovasz-equibatch')]
"""Methods whose predictions are in the picture."""


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Train all methods that have no result yet, and compare them."""
    jobs = [Job(config_of(way), seed, OUT, schedule) for schedule in SCHEDULES for seed in seeds for way in WAYS]
    results = train_missing(jobs, os.cpu_count() or 1)
    trainings = [Trained(result, job.work_dir) for result, job in zip(results, jobs, strict=True)]
    comparison = Comparison(trainings, {Path(config_of(way)).stem: name for way, name in WAYS.items()})
    page = write_report(comparison, OUT, 'Table 2 on LongTailShapes', 'python tools/reproduce.py table2 --seeds 0 1 2')
    tables = {schedule: score_rows(comparison, schedule) for schedule in comparison.schedules}
    found = f'{ranking(comparison)} All pictures: {page}.'
    return Reproduction(tables, summary_rows(comparison), found, draw(comparison))


def config_of(way: str) -> str:
    """Return the config of a row."""
    return f'configs/long_tail_shapes/tiny-unet_{way}_lts.py'


def ranking(comparison: Comparison) -> str:
    """Return the order of the rows in each schedule."""
    parts = []
    for schedule in comparison.schedules:
        means = {name: np.mean(comparison.scores(schedule, name)) for name in comparison.configs}
        order = ', '.join(f'{name} {means[name]:.1f}' for name in sorted(means, key=means.get, reverse=True))
        parts.append(f'After {comparison.iterations(schedule)} iterations, best first: {order}.')
    return ' '.join(parts)


def draw(comparison: Comparison) -> Figure:
    """Plot predictions on a validation image after the short schedule; below, every seed as a dot."""
    figure = Figure(figsize=(10, 5.4), layout='constrained')
    figure.get_layout_engine().set(h_pad=0.1)  # space for the titles
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1.4))
    trainings = {name: comparison.groups['short'][name][0] for name in comparison.configs if name in SHOWN}
    last = {name: trained.last for name, trained in trainings.items()}
    first = next(iter(last.values()))
    place = list(first['gallery']).index(first['shown'][most_classes(first, 1)[0]])
    image = first['thumbnails'][place]
    layers = {'image': image[:, :, :3], 'label': colored(image[:, :, 3], first)}
    layers |= {name: colored(each['thumbnails'][place][:, :, 4], first) for name, each in last.items()}
    for axis, (name, layer) in zip(above.subplots(1, len(layers)), layers.items(), strict=True):
        show(axis, layer)
        axis.set_title(name.split(' (')[0], fontsize=9)
    panels = below.subplots(1, len(comparison.schedules), sharey=True, squeeze=False)[0]
    for axis, schedule in zip(panels, comparison.schedules, strict=True):
        for row, name in enumerate(comparison.configs):
            scores = comparison.scores(schedule, name)
            axis.plot(scores, [row] * len(scores), 'o', color=f'C{row}', alpha=0.6)
            axis.plot([np.mean(scores)] * 2, [row - 0.3, row + 0.3], color=f'C{row}', linewidth=2.5)
        axis.set_yticks(range(len(comparison.configs)), comparison.configs)
        axis.set_xlabel(f'mIoU (%) after {comparison.iterations(schedule)} iterations')
        axis.grid(alpha=0.3, axis='x')
    panels[0].invert_yaxis()
    return figure

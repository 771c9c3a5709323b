"""Gains of decisions for a measure over the argmax, on LongTailShapes.

Networks are trained with five losses and five seeds. Decisions are fitted to the validation images and measured on the
test images: the mean over images of their mean IoU and mean Dice, and the mIoU of the data set. Gains are paired: the
same network, the same images.
"""

import multiprocessing
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from comparison.job import Job
from comparison.pool import train_missing
from comparison.results import Trained
from comparison.statistics import MEASURES, Areas, paired_difference
from matplotlib.figure import Figure
from mmengine.config import Config
from mmengine.registry import DATASETS, MODELS, DefaultScope
from mmengine.runner import load_checkpoint
from torch import Tensor

from mmseg_nondecomp.functional._averaging import jaccard_counts
from mmseg_nondecomp.functional.decisions import ClassOffsets, DenseCRF, ImageOverlap, Temperature
from reproductions import Reproduction, lmp_table2, spread_over_seeds

OUT = Path('work_dirs/decisions')
LOSSES = {
    'cross-entropy': 'ce',
    'cross-entropy + Dice': 'ce-dice',
    'Lovász-Softmax': 'lovasz',
    'cross-entropy + 3 · Lovász': 'ce-lovasz',
    'loss max-pooling': 'lmp',
}
OPTIONS: dict[str, Any] = {}
"""Options of the runs."""
SIZES: dict[str, int | None] = {'val': None, 'test': None}
"""Number of images of the two splits; None for all."""
BATCH = 12
Batches = list[tuple[Tensor, Tensor]]
Decide = Callable[[Tensor, Tensor], Tensor]
"""Decided classes [N, H, W] of logits and images."""
ARGMAX = 'argmax'


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Train with each loss and seed, fit all decisions, and measure them."""
    areas: dict[tuple[str, str], list[Areas]] = {}
    runs, fits = [], []
    for (loss, seed), (of_decisions, reports) in on_all_cores(measure_decisions, trained(LOSSES, seeds)).items():
        for name, found_areas in of_decisions.items():
            areas.setdefault((loss, name), []).append(found_areas)
            scores = {measure: value(measure, found_areas) for measure in MEASURES}
            runs.append({'loss': loss, 'decision': name, 'seed': seed, **scores})
        fits += [{'loss': loss, 'seed': seed, **report} for report in reports]
    rows = [row_of(areas, loss, name) for loss, name in areas]
    return Reproduction({'decisions': rows, 'runs': runs, 'fits': fits}, rows, found(areas), draw(areas))


def on_all_cores(function: Callable[..., Any], trainings: dict[Any, Trained]) -> dict[Any, Any]:
    """Return the results of a function of a training and of `OPTIONS`, computed in a process for each core."""
    context = multiprocessing.get_context('spawn')
    with context.Pool(os.cpu_count(), torch.set_num_threads, (1,)) as pool:
        waiting = [pool.apply_async(function, (training, OPTIONS, SIZES)) for training in trainings.values()]
        return {key: result.get() for key, result in zip(trainings, waiting, strict=True)}


def measure_decisions(
    training: Trained, options: dict[str, Any], sizes: dict[str, int | None]
) -> tuple[dict[str, Areas], list[dict[str, Any]]]:
    """Return the areas of all decisions on the test images, and the reports of their fits."""
    val, test = (predictions(training, split, options, sizes) for split in ('val', 'test'))
    decisions, reports = fitted(*val[:2])
    return {name: areas_of(decide, *test) for name, decide in decisions.items()}, reports


def value(measure: str, areas: Areas) -> float:
    """Return a measure of the data set, in percent."""
    return float(MEASURES[measure](np.ones((1, len(areas))), areas)[0])


def trained(losses: dict[str, str], seeds: Sequence[int]) -> dict[tuple[str, int], Trained]:
    """Return a run for each loss and seed; train those without a result."""
    keys = [(loss, seed) for loss in losses for seed in seeds]
    jobs = [Job(lmp_table2.config_of(losses[loss]), seed, OUT, options=OPTIONS) for loss, seed in keys]
    results = train_missing(jobs, os.cpu_count() or 1)
    return {key: Trained(result, job.work_dir) for key, result, job in zip(keys, results, jobs, strict=True)}


def predictions(
    training: Trained, split: str, options: dict[str, Any], sizes: dict[str, int | None]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits [N, C, H, W], labels [N, H, W] and images [N, 3, H, W] of a split."""
    cfg = Config.fromfile(training['config'])
    cfg.merge_from_dict(options)
    with DefaultScope.overwrite_default_scope('mmseg'):
        images = DATASETS.build({**cfg.val_dataloader.dataset, 'split': split, 'num_images': sizes[split]})
        model = MODELS.build(cfg.model).eval()
    load_checkpoint(model, str(training.checkpoint), map_location='cpu', logger='silent')
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    with torch.no_grad():
        for start in range(0, len(images), BATCH):
            batch = [images[i] for i in range(start, min(start + BATCH, len(images)))]
            data = dict(inputs=[x['inputs'] for x in batch], data_samples=[x['data_samples'] for x in batch])
            labels = torch.cat([x['data_samples'].gt_sem_seg.data for x in batch])
            levels = torch.stack(data['inputs'])
            logits = torch.stack([sample.seg_logits.data for sample in model.test_step(data)])
            parts.append((logits, labels, levels))
    logits, labels, levels = (torch.cat(part) for part in zip(*parts, strict=True))
    return logits, labels, levels


def in_batches(*tensors: Tensor) -> Batches:
    """Return the tensors in batches."""
    return list(zip(*(tensor.split(BATCH) for tensor in tensors), strict=True))


def fitted(logits: Tensor, labels: Tensor) -> tuple[dict[str, Decide], list[dict[str, Any]]]:
    """Return all decisions, fitted to validation predictions, and the reports of the fits."""
    batches = in_batches(logits, labels)
    offsets = ClassOffsets.fit(batches)
    temperature = Temperature.fit(batches).value
    overlaps = {measure: ImageOverlap.fit(batches, measure, temperature=temperature) for measure in ('iou', 'dice')}
    reports = [
        {'decision': repr(decision), **decision.report._asdict(), 'gain': decision.report.gain}
        for decision in (offsets, *overlaps.values())
    ]
    crf = DenseCRF(temperature=temperature)
    decisions: dict[str, Decide] = {
        ARGMAX: lambda logits, image: logits.max(1).indices,
        'image IoU, as it is': lambda logits, image: ImageOverlap()(logits),
        'image IoU, fitted': lambda logits, image: overlaps['iou'](logits),
        'image Dice, fitted': lambda logits, image: overlaps['dice'](logits),
        'class offsets for mIoU': lambda logits, image: offsets(logits),
        'dense CRF, default': crf,
    }
    return decisions, reports


def areas_of(decide: Decide, logits: Tensor, labels: Tensor, images: Tensor) -> Areas:
    """Return intersection and union of each image and class."""
    n_classes, parts = logits.shape[1], []
    for z, label, image in in_batches(logits, labels, images):
        decided, valid = decide(z, image).flatten(1), (label != 255).flatten(1)
        true = torch.where(valid, label.flatten(1).long(), n_classes)
        parts.append(jaccard_counts(decided, true, valid.int(), n_classes))
    return torch.cat(parts).double().numpy()


def row_of(areas: dict[tuple[str, str], list[Areas]], loss: str, name: str) -> dict[str, Any]:
    """Return the row of a decision for the networks of a loss."""
    group, base = areas[loss, name], areas[loss, ARGMAX]
    row: dict[str, Any] = {'loss': loss, 'decision': name}
    for measure in MEASURES:
        row[measure] = spread_over_seeds([value(measure, a) for a in group])
        if name != ARGMAX:
            row[f'{measure}: gain'] = str(paired_difference(group, base, measure))
    return row


def gain(areas: dict[tuple[str, str], list[Areas]], loss: str, name: str, measure: str) -> str:
    """Return the gain of a decision over the argmax."""
    return str(paired_difference(areas[loss, name], areas[loss, ARGMAX], measure))


def found(areas: dict[tuple[str, str], list[Areas]]) -> str:
    """Return the gains of each decision on its own measure."""
    pairs = (
        ('image IoU, fitted', 'image'),
        ('image Dice, fitted', 'image Dice'),
        ('class offsets for mIoU', 'data set'),
    )
    parts = [
        f'{name} ({measure}): ' + '; '.join(f'{loss} {gain(areas, loss, name, measure)}' for loss in LOSSES)
        for name, measure in pairs
    ]
    return 'Gains in points over the argmax of the same network. ' + '. '.join(parts) + '.'


def draw(areas: dict[tuple[str, str], list[Areas]]) -> Figure:
    """Plot the gain of each seed for each decision and measure, one panel for each measure."""
    figure = Figure(figsize=(12, 6), layout='constrained')
    names = [name for name in dict.fromkeys(name for _, name in areas) if name != ARGMAX]
    for axis, measure in zip(figure.subplots(1, len(MEASURES), sharey=True), MEASURES, strict=True):
        ticks = []
        for i, loss in enumerate(LOSSES):
            base = [value(measure, a) for a in areas[loss, ARGMAX]]
            for k, name in enumerate(names):
                place = i * (len(names) + 1) + k
                gains = [value(measure, a) - b for a, b in zip(areas[loss, name], base, strict=True)]
                label = name if i == 0 else None
                axis.plot(gains, [place] * len(gains), 'o', color=f'C{k}', alpha=0.6, markersize=4, label=label)
                axis.plot([statistics.fmean(gains)] * 2, [place - 0.4, place + 0.4], color=f'C{k}', linewidth=2.5)
            ticks.append(i * (len(names) + 1) + (len(names) - 1) / 2)
        axis.axvline(0, color='black', linewidth=0.8)
        axis.set_yticks(ticks, list(LOSSES))
        axis.set_title({'data set': 'mIoU of the data set', 'image': 'image IoU'}.get(measure, measure))
        axis.set_xlabel('gain over the argmax, in points')
        axis.grid(alpha=0.3, axis='x')
    axis.invert_yaxis()
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc='outside lower center', ncols=len(names), fontsize=9)
    return figure

"""Fine-tuning of a cross-entropy network: table 2 of loss max-pooling, tables 1, 2, A.1 and A.2 of Lovász-Softmax.

Both papers start from a trained network. Here a tiny U-Net is trained with cross-entropy for each seed and data set;
from these weights each loss is trained for the same number of iterations, and cross-entropy again as the control: with
SGD, polynomial decay of the learning rate, and the paper's scale jitter of 0.5 to 1.5. The learning rate of each loss
is searched on the validation images by the same rule, with another seed; results are of the test images.

All classes: mIoU, averaged over the last five of ten checkpoints, as in the loss max-pooling paper. One class against
the rest, for two classes of each data set that occur in about half of the images: the image IoU, in which an image
without the class counts 1 if no pixel is decided for it, and the value of each loss under each training. Claims are
tested on the last checkpoint, by differences that are paired by seed and image.

References:
    S. Rota Bulò, G. Neuhold, P. Kontschieder: Loss max-pooling for semantic image segmentation. CVPR 2017, section 5.
    https://arxiv.org/abs/1704.02966

    M. Berman, A. Rannen Triki, M. B. Blaschko: The Lovász-Softmax loss. CVPR 2018, section 4 and appendix A.
    https://arxiv.org/abs/1705.08790
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from benchmarks.table import filled_up
from comparison.results import Trained
from comparison.statistics import Areas, Difference, class_image_iou, paired_difference, value_of
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from mmengine.config import Config
from mmengine.registry import DATASETS, MODELS, DefaultScope
from mmengine.runner import load_checkpoint
from torch import Tensor

from mmseg_nondecomp.functional import lovasz_hinge
from reproductions import Reproduction, spread_over_seeds
from reproductions.fine_tuned import DATA, ONE_CLASS_LOSSES, SEARCH_SEED, WAYS, Tuned, Tuning, tune
from reproductions.hinge_loss import hinge

ALL_CLASSES, ONE_CLASS, CLAIM = 'all classes', 'one class', 'claims'
"""The experiments, and the comparison with the papers."""
BASE, ONE_CLASS_BASE = 'ce', 'cross-entropy'
START = 'start: cross-entropy'
GAIN = 'against cross-entropy'
BATCH = 8
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    'cross-entropy': lambda logits, label: F.binary_cross_entropy_with_logits(
        logits[:, 0][label != 255], label[label != 255].to(logits.dtype)
    ),
    'hinge': hinge,
    'Lovász hinge': lambda logits, label: lovasz_hinge(logits, label, per_image=True, ignore_index=255),
}
"""Losses of one image [1, 1, H, W] by which the networks of one class are compared."""


class Claim(NamedTuple):
    """Claim of a paper that one way is better than another."""

    text: str
    paper: str
    """Difference in the paper, in points."""
    ours: str
    theirs: str
    sign: int
    """1 if ours should be ahead, -1 if it should be behind, 0 for a small difference of either sign."""


CLAIMS = (
    Claim('loss max-pooling is ahead of cross-entropy', '+1.6; VOC +0.3', 'lmp', 'ce', 1),
    Claim('loss max-pooling is ahead of cross-entropy with sampling', '+0.5; VOC +0.6', 'lmp', 'ce-iou', 1),
    Claim('of both with sampling, loss max-pooling is ahead', '+1.4; VOC +0.9', 'lmp-iou', 'ce-iou', 1),
    Claim('sampling improves loss max-pooling', '+0.9; VOC +0.3', 'lmp-iou', 'lmp', 1),
    Claim('sampling improves cross-entropy, not on VOC', '+1.1; VOC -0.3', 'ce-iou', 'ce', 0),
    Claim('inverse median frequency is behind cross-entropy', '-2.7; VOC -0.8', 'imf', 'ce', -1),
    Claim('loss max-pooling with sampling is ahead of online bootstrapping', '+0.4; VOC +1.5', 'lmp-iou', 'ohem', 1),
    Claim('Lovász-Softmax is ahead of cross-entropy', '+1.9', 'lovasz', 'ce', 1),
    Claim('equibatch improves cross-entropy', '+0.9', 'ce-equibatch', 'ce', 1),
    Claim('equibatch hardly changes Lovász-Softmax', '-0.0', 'lovasz-equibatch', 'lovasz', 0),
    Claim('of both with equibatch, Lovász-Softmax is ahead', '+1.0', 'lovasz-equibatch', 'ce-equibatch', 1),
)
"""Claims on mIoU: table 2 of loss max-pooling (Cityscapes; table 4: VOC), table 2 of Lovász-Softmax (VOC)."""
ONE_CLASS_CLAIMS = (
    Claim('the Lovász hinge is ahead of cross-entropy', '+3.4', 'Lovász hinge', 'cross-entropy', 1),
    Claim('the Lovász hinge is ahead of the hinge', '+4.7', 'Lovász hinge', 'hinge', 1),
    Claim('the hinge is behind cross-entropy', '-1.3', 'hinge', 'cross-entropy', -1),
    Claim('the loss of Rahman and Wang is behind the Lovász hinge', '-7.8', 'Rahman-Wang', 'Lovász hinge', -1),
)
"""Claims on the image IoU of one class: tables 1, A.1 and A.2 of Lovász-Softmax (VOC)."""


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Train what has no result yet, and compare the losses and the claims."""
    if SEARCH_SEED in seeds:
        raise ValueError(f'Parameter `seeds` should not contain {SEARCH_SEED}, the seed of the search. Found {seeds}.')
    tunings = [Tuning(data, way) for data in DATA for way in WAYS]
    tunings += [Tuning(data, loss, cls) for data in DATA for loss in ONE_CLASS_LOSSES for cls in DATA[data].classes]
    tuned = tune(tunings, seeds)
    losses = {tuning: [losses_of(trained) for trained in tuned.runs[tuning]] for tuning in tunings if tuning.cls}
    rows = [row for data in DATA for row in all_class_rows(tuned, data)]
    rows += [row for data in DATA for row in one_class_rows(tuned, data, losses)]
    claims = [claim_row(tuned, claim) for claim in (*CLAIMS, *ONE_CLASS_CLAIMS)]
    claims += [class_row(tuned), own_loss_row(tuned, losses)]
    results = {
        'claims': claims,
        'rates': [rate_row(tuning, result.rate, result.scores) for tuning, result in tuned.searched.items()],
        'runs': [row for tuning in tunings for row in run_rows(tuning, tuned.runs[tuning], losses.get(tuning))],
        'seconds of all fine-tuning': sum(trained['seconds'] for group in tuned.runs.values() for trained in group),
    }
    return Reproduction(results, [*claims, *rows], found(claims), draw(tuned))


def losses_of(trained: Trained) -> dict[str, float]:
    """Return each loss of a network of one class, averaged over the images that it was measured on."""
    cfg = Config.fromfile(trained['config'])
    cfg.merge_from_dict(trained['options'])
    with DefaultScope.overwrite_default_scope('mmseg'):
        images, model = DATASETS.build(cfg.val_dataloader.dataset), MODELS.build(cfg.model).eval()
    load_checkpoint(model, str(trained.checkpoint), map_location='cpu', logger='silent')
    values: list[list[float]] = []
    for start in range(0, len(images), BATCH):
        batch = [images[i] for i in range(start, min(start + BATCH, len(images)))]
        data = dict(inputs=[x['inputs'] for x in batch], data_samples=[x['data_samples'] for x in batch])
        with torch.no_grad():
            inputs = model.data_preprocessor(data, False)['inputs']
            logits = model.inference(inputs, [sample.metainfo for sample in data['data_samples']])
        labels = [sample.gt_sem_seg.data.long() for sample in data['data_samples']]
        pairs = zip(logits.split(1), labels, strict=True)
        values += [[loss(z, y).item() for loss in LOSSES.values()] for z, y in pairs if (y != 255).any()]
    return dict(zip(LOSSES, np.mean(values, axis=0).tolist(), strict=True))


def all_class_rows(tuned: Tuned, data: str) -> list[dict[str, Any]]:
    """Return the rows of a data set with all classes: the starting networks, then each way."""
    start = spread_over_seeds([trained['mIoU'] for trained in tuned.starts[data]])
    rows = [first_columns(ALL_CLASSES, data, START) | {'mIoU': start}]
    for way in WAYS:
        group = tuned.runs[Tuning(data, way)]
        scores = [trained.late_scores for trained in group]
        row = first_columns(ALL_CLASSES, data, WAYS[way].title, group[0]['lr'])
        row['mIoU'] = spread_over_seeds([statistics.fmean(values) for values in scores])
        row['deviation of checkpoints'] = statistics.fmean(spread_over_seeds(values)['std'] for values in scores)
        row[GAIN] = '' if way == BASE else str(gain(tuned, data, way, BASE))
        rows.append(row)
    return filled_up(rows)


def one_class_rows(tuned: Tuned, data: str, losses: Mapping[Tuning, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Return the rows of a data set with one class against the rest, averaged over the classes."""
    start = spread_over_seeds([value_of(class_image_iou, areas) for areas in start_areas(tuned, data)])
    rows = [first_columns(ONE_CLASS, data, START) | {'image IoU': start}]
    for loss in ONE_CLASS_LOSSES:
        group = tuned.runs[Tuning(data, loss, DATA[data].classes[0])]
        row = first_columns(ONE_CLASS, data, loss, group[0]['lr'])
        scores = [value_of(class_image_iou, areas) for areas in one_class_areas(tuned, data, loss)]
        row['image IoU'] = spread_over_seeds(scores)
        row[GAIN] = '' if loss == ONE_CLASS_BASE else str(gain(tuned, data, loss, ONE_CLASS_BASE))
        rows.append(row | {f'value of {name}': value for name, value in mean_losses(data, loss, losses).items()})
    return filled_up(rows)


def first_columns(experiment: str, data: str, loss: str, rate: float | str = '') -> dict[str, Any]:
    """Return the first columns of a row."""
    return {'experiment': experiment, 'data': data, 'loss': loss, 'rate': rate}


def mean_losses(data: str, loss: str, losses: Mapping[Tuning, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return each loss under a training, averaged over classes; mean and standard deviation over seeds."""
    seeds = list(zip(*(losses[Tuning(data, loss, cls)] for cls in DATA[data].classes), strict=True))
    return {
        name: spread_over_seeds([statistics.fmean(each[name] for each in seed) for seed in seeds]) for name in LOSSES
    }


def start_areas(tuned: Tuned, data: str) -> list[Areas]:
    """Return the areas of the classes that are told from the rest, in the starting network of each seed."""
    places = [list(tuned.starts[data][0]['IoU']).index(cls) for cls in DATA[data].classes]
    return [trained.areas[:, :, places] for trained in tuned.starts[data]]


def one_class_areas(tuned: Tuned, data: str, loss: str) -> list[Areas]:
    """Return for each seed the areas of the classes that were each trained against the rest."""
    groups = [[trained.areas[:, :, 1] for trained in tuned.runs[Tuning(data, loss, cls)]] for cls in DATA[data].classes]
    return [np.stack(seed, axis=2) for seed in zip(*groups, strict=True)]


def gain(tuned: Tuned, data: str, ours: str, theirs: str) -> Difference:
    """Return the difference of two ways in mIoU, or of two losses in the image IoU of one class."""
    if ours in WAYS:
        groups = [[trained.areas for trained in tuned.runs[Tuning(data, way)]] for way in (ours, theirs)]
        return paired_difference(*groups, 'data set')
    return paired_difference(*(one_class_areas(tuned, data, loss) for loss in (ours, theirs)), class_image_iou)


def verdict(difference: Difference, sign: int) -> str:
    """Return whether an interval supports a claim."""
    if sign == 0:
        return 'the interval holds 0' if difference.low <= 0 <= difference.high else 'the interval is without 0'
    low, high = sorted((sign * difference.low, sign * difference.high))
    return 'confirmed' if low > 0 else 'refuted' if high < 0 else 'open'


def claim_row(tuned: Tuned, claim: Claim) -> dict[str, Any]:
    """Return a claim, the difference in the paper, and those found here."""
    differences = {data: gain(tuned, data, claim.ours, claim.theirs) for data in DATA}
    found_here = {data: f'{found}: {verdict(found, claim.sign)}' for data, found in differences.items()}
    return {'experiment': CLAIM, 'claim': claim.text, 'paper': claim.paper, **found_here}


def class_row(tuned: Tuned) -> dict[str, Any]:
    """Return in how many classes loss max-pooling is ahead of cross-entropy, both with sampling."""

    def of(data: str) -> str:
        means = [class_means(tuned.runs[Tuning(data, way)]) for way in ('lmp-iou', 'ce-iou')]
        gains = [means[0][name] - means[1][name] for name in means[0] if name in means[1]]
        return f'{sum(each > 0 for each in gains)} of {len(gains)}'

    text = 'of both with sampling, loss max-pooling is ahead in most classes'
    return {'experiment': CLAIM, 'claim': text, 'paper': '18 of 19', **{data: of(data) for data in DATA}}


def class_means(group: Sequence[Trained]) -> dict[str, float]:
    """Return the IoU of each class, averaged over the seeds in which it occurs in labels or decisions."""
    values = {name: [trained['IoU'][name] for trained in group] for name in group[0]['IoU']}
    known = {name: [value for value in of_class if value is not None] for name, of_class in values.items()}
    return {name: statistics.fmean(of_class) for name, of_class in known.items() if of_class}


def own_loss_row(tuned: Tuned, losses: Mapping[Tuning, list[dict[str, float]]]) -> dict[str, Any]:
    """Return for which of the losses training with it gives the lowest value of it."""

    def of(data: str) -> str:
        means = {loss: mean_losses(data, loss, losses) for loss in LOSSES}
        lowest = {name: min(LOSSES, key=lambda loss: means[loss][name]['mean']) for name in LOSSES}
        return ', '.join(f'{name}: {"yes" if best == name else best}' for name, best in lowest.items())

    text = 'each loss is lowest after training with it, of cross-entropy, hinge and Lovász hinge'
    return {'experiment': CLAIM, 'claim': text, 'paper': 'yes, in all three', **{data: of(data) for data in DATA}}


def rate_row(tuning: Tuning, rate: float, scores: Mapping[float, float]) -> dict[str, Any]:
    """Return the scores of the search of a learning rate."""
    known = {f'{each:g}': score for each, score in scores.items()}
    return {'data': tuning.data, 'loss': title_of(tuning), 'rate': rate, 'score of each rate': known}


def title_of(tuning: Tuning) -> str:
    """Return the name of the loss."""
    return WAYS[tuning.way].title if tuning.way in WAYS else f'{tuning.way}, one class'


def run_rows(
    tuning: Tuning, group: Sequence[Trained], losses: Sequence[dict[str, float]] | None
) -> list[dict[str, Any]]:
    """Return the measures of each run."""
    rows = []
    for i, trained in enumerate(group):
        row = {'data': tuning.data, 'loss': title_of(tuning), 'seed': trained['seed'], 'seconds': trained['seconds']}
        if losses is None:
            rows.append(row | {'mIoU of checkpoints': trained.late_scores, 'IoU': trained['IoU']})
        else:
            score = value_of(class_image_iou, trained.areas[:, :, 1:])
            rows.append(row | {'class': tuning.cls, 'image IoU': score, 'losses': losses[i]})
    return rows


def found(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return the claims that are confirmed and refuted on each data set."""
    parts = []
    for data in DATA:
        by_verdict = {
            name: [row['claim'] for row in claims if row[data].endswith(f': {name}')]
            for name in ('confirmed', 'refuted', 'open')
        }
        parts.append(
            f'{data}: of the claims with a sign, {len(by_verdict["confirmed"])} are confirmed, '
            f'{len(by_verdict["refuted"])} refuted ({"; ".join(by_verdict["refuted"]) or "none"}) and '
            f'{len(by_verdict["open"])} open.'
        )
    return ' '.join(parts)


def draw(tuned: Tuned) -> Figure:
    """Plot the mIoU of each way and the image IoU of each loss; every seed is a dot."""
    heights = (len(WAYS), len(ONE_CLASS_LOSSES))
    figure = Figure(figsize=(10, 0.36 * sum(heights) + 2.2), layout='constrained')
    axes = figure.subplots(2, len(DATA), sharey='row', height_ratios=heights, squeeze=False)
    for (above, below), data in zip(axes.T, DATA, strict=True):
        scores = {way.title: tuned.runs[Tuning(data, name)] for name, way in WAYS.items()}
        means = {title: [statistics.fmean(t.late_scores) for t in group] for title, group in scores.items()}
        draw_rows(above, means, [trained['mIoU'] for trained in tuned.starts[data]])
        above.set(title=f'{data}: all classes', xlabel='mIoU (%)')
        values = {
            loss: [value_of(class_image_iou, areas) for areas in one_class_areas(tuned, data, loss)]
            for loss in ONE_CLASS_LOSSES
        }
        draw_rows(below, values, [value_of(class_image_iou, areas) for areas in start_areas(tuned, data)])
        below.set(title=f'{data}: one class', xlabel='image IoU (%)')
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc='outside lower center', ncols=2, frameon=False)
    return figure


def draw_rows(axis: Axes, scores: Mapping[str, Sequence[float]], start: Sequence[float]) -> None:
    """Plot a row of dots for each name, and the mean of the starting networks as a line."""
    for row, values in enumerate(scores.values()):
        axis.plot(values, [row] * len(values), 'o', color='tab:blue', alpha=0.5, label='one seed' if row == 0 else None)
        axis.plot([statistics.fmean(values)] * 2, [row - 0.35, row + 0.35], color='tab:blue', linewidth=2.5)
    axis.axvline(statistics.fmean(start), color='black', linewidth=0.9, linestyle='--', label='start, mean')
    axis.set_yticks(range(len(scores)), list(scores))
    if not axis.yaxis_inverted():  # shared by the panels of a row
        axis.invert_yaxis()
    axis.grid(alpha=0.3, axis='x')

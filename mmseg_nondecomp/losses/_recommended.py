"""Recommended losses by measure, as in docs/choosing.md."""

import math
import re
from difflib import get_close_matches
from typing import Any, NamedTuple

from torch import Tensor

from mmseg_nondecomp.losses._base import RegisteredLoss
from mmseg_nondecomp.losses._iou_loss import IoULoss
from mmseg_nondecomp.losses._rising import RISING
from mmseg_nondecomp.losses.direct_ap_loss import DirectAPLoss
from mmseg_nondecomp.losses.loss_max_pooling import LossMaxPooling
from mmseg_nondecomp.losses.s_measure_loss import SMeasureLoss
from mmseg_nondecomp.losses.smooth_topk_loss import SmoothTopKLoss
from mmseg_nondecomp.losses.soft_iou_loss import SoftIoULoss


class CrossEntropy(LossMaxPooling):
    """Mean cross-entropy of the valid items: loss max-pooling without re-weighting."""

    default_name = 'loss_ce'
    shown = ('pixel_loss',)

    def __init__(self, **common: Any) -> None:
        pixel_loss = 'bce' if common.get('mode') == 'multilabel' else 'cross_entropy'
        settings: dict[str, Any] = dict(p=math.inf, ratio=1.0, pixel_loss=pixel_loss, scope='batch')
        super().__init__(**settings | common)

    def measures(self, inputs: Any, statistics: Tensor) -> dict[str, Tensor]:
        """Return no measures: all pixels have full weight."""
        return {}


class Choice(NamedTuple):
    """Recommended loss, its factor, the factor of cross-entropy beside it, and the reason."""

    loss: type[RegisteredLoss]
    settings: dict[str, Any]
    factor: float
    cross_entropy: float | str
    because: str


LOVASZ = (
    'the Lovász loss is the tightest convex surrogate of 1 - IoU; the weight of cross-entropy rises with the IoU, as '
    'a constant one suppresses rare classes'
)
DICE = 'it is one minus the soft Dice coefficient; cross-entropy has a gradient at every pixel'
ONE_CLASS = 'together they had the highest IoU of one class against the rest in docs/choosing.md'
RATES = 'dual ascent needs no class weights; outside MMEngine, call `step()` after each optimizer step'
HALVES = dict(alpha=0.5, beta=0.5)
CHOICES = {
    'miou': Choice(IoULoss, {}, 1.0, RISING, LOVASZ),
    'image_miou': Choice(IoULoss, dict(scope='image'), 1.0, RISING, LOVASZ),
    'class_miou': Choice(IoULoss, dict(scope='class'), 1.0, RISING, LOVASZ),
    'dice': Choice(SoftIoULoss, HALVES, 1.0, 1.0, DICE),
    'image_dice': Choice(SoftIoULoss, dict(scope='image', **HALVES), 1.0, 1.0, DICE),
    'class_dice': Choice(SoftIoULoss, dict(scope='class', **HALVES), 1.0, 1.0, DICE),
    'ap': Choice(DirectAPLoss, {}, 1.0, 0.0, 'its value is 1 - AP, its gradient that of direct loss minimisation'),
    'top5': Choice(SmoothTopKLoss, {}, 1.0, 0.0, 'confusions within the k cost little; search `tau` from 0.01 to 10'),
    'accuracy': Choice(CrossEntropy, {}, 1.0, 0.0, 'no other loss had a better accuracy with clean labels'),
}
CHOICES |= {
    name: Choice(SMeasureLoss, dict(measure=name), 1.0, 0.0, RATES)
    for name in ('f_beta', 'precision_at_recall', 'recall_at_precision', 'auc_roc', 'auc_pr')
}
OTHER_NAMES = {
    'miou': ('iou', 'jaccard', 'jaccard_index', 'mean_iou'),
    'image_miou': ('image_iou',),
    'class_miou': ('class_iou',),
    'dice': ('mdice', 'mean_dice', 'dsc', 'f1', 'f_1', 'f1_score', 'f_score'),
    'f_beta': ('fbeta',),
    'ap': ('map', 'average_precision', 'mean_average_precision'),
    'auc_roc': ('auc', 'auroc', 'roc_auc'),
    'auc_pr': ('auprc', 'pr_auc'),
    'accuracy': ('acc', 'aacc', 'pixel_accuracy', 'top1', 'top_1'),
}
NAMES = {name: name for name in CHOICES} | {other: name for name, others in OTHER_NAMES.items() for other in others}


def choose(measure: str, mode: str | None = None) -> Choice:
    """Return the recommendation for a measure. Case, blanks and hyphens do not matter; 'top5' stands for any k.

    In mode ``'binary'`` the loss for IoU is that for Dice.
    """
    if not isinstance(measure, str):
        raise TypeError(f"Parameter `measure` should be the name of a measure, such as 'miou'. Found {measure!r}.")
    name = re.sub(r'[\W_]+', '_', measure.strip().lower())
    k = re.fullmatch(r'top_?(\d+)', name)
    if mode == 'binary' and NAMES.get(name, '').endswith('miou'):
        return CHOICES[NAMES[name].replace('miou', 'dice')]._replace(because=ONE_CLASS)
    if name in NAMES:
        return CHOICES[NAMES[name]]
    if k is not None:
        return CHOICES['top5']._replace(settings=dict(k=int(k[1])))
    hint = ''.join(f' Did you mean {other!r}?' for other in get_close_matches(name, NAMES, 1))
    raise ValueError(
        f'Parameter `measure` should be {", ".join(map(repr, CHOICES))} (or another k). Found {measure!r}.{hint}'
    )

r"""Losses and measures of classes from counts, and their average over classes and sets.

Histograms of scores stand for a ranking in constant memory. Scores may be probabilities or logits, of any size. Bins
are equally wide in :math:`\operatorname{asinh}(s / \delta) + \operatorname{asinh}((s - 1) / \delta)` with
:math:`\delta = 10^{-7}`: finer towards 0 and 1, where most probabilities are, and far from there of a width in
proportion to the score. With 65 536 bins it is 2e-10 at 0 and at 1, 0.0006 at a half, and a thousandth of scores
above 10.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Classes, check_class_weight

WIDTH = 1e-7  # distance from 0 and 1 down to which bins become finer
LARGEST = 1e9  # scores beyond this share a bin, and so do those below its opposite


class ClassLosses(NamedTuple):
    """Loss of each class in each set."""

    losses: Tensor  # losses of shape [R, C]
    present: Tensor  # whether a class has any foreground in a set, bool of shape [R, C]
    non_empty: Tensor  # whether a set has any item, bool of shape [R]


def class_average(of_classes: ClassLosses, classes: Classes, class_weight: Tensor | None = None) -> Tensor:
    """Average the losses over the classes that count, by their weights [C], and over the non-empty sets.

    The classes that count are those ``'present'`` in the set, ``'all'``, or those listed. The average is a scalar,
    never above the largest loss; 0 where no class counts.
    """
    parts, counted = _weighted(of_classes, classes, class_weight)
    return parts.sum() / counted.sum().clamp(min=1)


def set_averages(of_classes: ClassLosses, classes: Classes, class_weight: Tensor | None = None) -> Tensor:
    """Average the losses over the classes as `class_average` does; return the average of each set, of shape [R]."""
    return _weighted(of_classes, classes, class_weight)[0].sum(1)


def averages_over_sets(of_classes: ClassLosses, classes: Classes) -> ClassLosses:
    """Average the loss of each class over the sets in which it counts, as losses of a single set."""
    losses, present, non_empty = of_classes
    counted = present if classes == 'present' else non_empty.unsqueeze(1).expand_as(present)
    total = losses.masked_fill(~counted, 0).sum(0, keepdim=True)
    means = total / counted.sum(0, keepdim=True).clamp(min=1)
    return ClassLosses(means, present.any(0, keepdim=True), non_empty.any().view(1))


def share_above_one_class(of_classes: ClassLosses, exclusive: bool) -> Tensor:
    """Return how far the mean index of the present classes is on the way from one class everywhere to no error.

    The index of a class is one minus its loss. If classes exclude each other and one of the k in a set is predicted
    everywhere, the indices add up to at most 1: the share is (sum - 1) / (k - 1), at least 0. Else it is their mean,
    and 1 if no class is present. Sets are added up. No gradient is recorded.
    """
    losses, present, _ = of_classes
    index = (1 - losses.detach()).masked_fill(~present, 0).sum()
    n_present = present.sum()
    if not exclusive:
        return torch.where(n_present > 0, index / n_present.clamp(min=1), 1.0)
    n_sets = present.any(1).sum()
    return ((index - n_sets) / (n_present - n_sets).clamp(min=1)).clamp(min=0)


def _weighted(of_classes: ClassLosses, classes: Classes, class_weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the part of each class in the average of its set, [R, C], and whether a set has any, bool [R, 1]."""
    losses, present, non_empty = of_classes
    n_classes = losses.shape[1]
    check_class_weight(class_weight, n_classes)
    if not isinstance(classes, str) and max(classes) >= n_classes:
        raise ValueError(
            f'Parameter `classes` should list classes below {n_classes}, the number of classes. Found {max(classes)}.'
        )
    if classes == 'present':
        counted = present
    elif classes == 'all':
        counted = non_empty.unsqueeze(1).expand_as(present)
    else:
        listed = torch.zeros(n_classes, dtype=torch.bool, device=losses.device)
        for c in classes:
            listed[int(c)].fill_(True)  # copying a list to a device synchronises with it
        counted = non_empty.unsqueeze(1) & listed
    weights = counted.to(losses.dtype)
    if class_weight is not None:
        weights = weights * class_weight.to(losses)
    total = weights.sum(1, keepdim=True)
    weights = weights / total.clamp(min=torch.finfo(losses.dtype).tiny)
    # Losses that do not count may be NaN.
    return losses.masked_fill(weights == 0, 0) * weights, total > 0


def jaccard_counts(decided: Tensor, target: Tensor, mass: Tensor, n_classes: int) -> Tensor:
    """Return intersections and unions of each class in each image, of shape [N, 2, C].

    Decided and true classes are int64 of shape [N, P], with ``n_classes`` for none; ``mass`` is the weight of each
    item. Counts are integers for integer masses, else float64.
    """
    mass = mass.double() if mass.is_floating_point() else mass
    outcome = torch.add(decided == target, target, alpha=2)
    of_true = mass.new_zeros(len(mass), 2 * n_classes + 2).scatter_add_(1, outcome, mass)
    missed, hit = of_true.unflatten(1, (-1, 2)).unbind(2)
    union = mass.new_zeros(len(mass), n_classes + 1).scatter_add_(1, decided, mass) + missed
    return torch.stack([hit, union], 1)[..., :-1]


def mean_jaccard(counts: Tensor) -> Tensor:
    """Return the mean index over the classes that are decided or true, from counts [..., 2, C]; NaN if none is."""
    intersection, union = counts.unbind(-2)
    return (intersection.double() / union).nanmean(-1)


def count_decisions(decided: Tensor, target: Tensor, n_classes: int) -> Tensor:
    """Return intersections and unions of all items together, int64 of shape [2, C].

    Decided classes are integers from 0 to C - 1 of any shape; an item whose ``target`` is anything else does not count.
    """
    matrix = confusion_matrix(decided, target, n_classes)
    intersection = matrix.diagonal()
    return torch.stack([intersection, matrix.sum(0) + matrix.sum(1) - intersection])


def confusion_matrix(decided: Tensor, target: Tensor, n_classes: int) -> Tensor:
    """Return the confusion matrix of `count_decisions`, int64 of shape [C, C], the true class first."""
    target = target.long()
    label = target.clamp(0, n_classes - 1)
    pair = torch.add(decided, label, alpha=n_classes).flatten()
    counts = torch.zeros(n_classes**2, dtype=torch.long, device=pair.device)
    return counts.scatter_add_(0, pair, (label == target).long().flatten()).view(n_classes, n_classes)


def score_bins(scores: Tensor, bins: int) -> Tensor:
    """Return the bin of each score, int64 from 0 to bins - 1 in the order of the scores.

    NaN and infinity have no order: their bin is ``bins``. Masked scores, -infinity, share the lowest bin.
    """
    scores = scores.double()
    place = (scores / WIDTH).asinh() + ((scores - 1) / WIDTH).asinh()
    end = 2 * math.asinh(LARGEST / WIDTH)
    place = ((place / end + 1) * (bins / 2)).clamp(0, bins - 1)
    return torch.where(scores < torch.inf, place, bins).long()


def count_scores(scores: Tensor, is_positive: Tensor, valid: Tensor, bins: int) -> Tensor:
    """Return the number of negatives and of positives in each bin, int64 of shape [K, 2, bins + 1], for scores [K, n].

    The masks of positives and of items that count are [K, n], too. The last bin is for scores without an order.
    """
    place = score_bins(scores, bins) + is_positive * (bins + 1)
    counts = torch.zeros(len(scores), 2 * (bins + 1), dtype=torch.long, device=scores.device)
    return counts.scatter_add_(1, place, valid.long()).unflatten(1, (2, bins + 1))


def average_precisions(counts: Tensor) -> Tensor:
    """Return the average precision of each problem, float64 of shape [K], from counts [K, 2, T + 1].

    The items of a bin are ties. It is 0 for a problem without positives, NaN for one with a score without an order.
    """
    of_bin = counts[:, 1, :-1].flip(1)
    negatives, positives = counts[:, :, :-1].flip(2).cumsum(2).unbind(1)
    precision = positives.double() / (positives + negatives).clamp(min=1)
    average = (precision * of_bin).sum(1) / of_bin.sum(1).clamp(min=1)
    return torch.where((counts[:, :, -1] > 0).any(1), torch.nan, average)


def areas_under_roc(counts: Tensor) -> Tensor:
    """Return the area under the ROC curve of each problem, float64 of shape [K], from counts [K, 2, T + 1].

    Ties count a half. It is 0 without positives or without negatives, NaN for one with a score without an order.
    """
    negatives, positives = counts[:, 0, :-1].double(), counts[:, 1, :-1].double()
    below = negatives.cumsum(1) - negatives / 2
    pairs = positives.sum(1) * negatives.sum(1)
    area = (positives * below).sum(1) / pairs.clamp(min=1)
    return torch.where((counts[:, :, -1] > 0).any(1), torch.nan, area)

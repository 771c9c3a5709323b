"""Intersection and union of decided and true classes, from which the Jaccard index is computed."""

import torch
from torch import Tensor


def jaccard_counts(decided: Tensor, target: Tensor, mass: Tensor, n_classes: int) -> Tensor:
    """Return intersections and unions of decided and true items of each class in each image.

    Args:
        decided: The decided class of each item, int64 of shape [N, P]; ``n_classes`` for none.
        target: The true class, of the same shape; ``n_classes`` for none.
        mass: How much each item counts, of the same shape.
        n_classes: The number of classes.

    Returns:
        Of shape [N, 2, C]; integers for integer masses, else float64.
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
    """Return intersections and unions of all items together: int64 of shape [2, C].

    Args:
        decided: The decided class of each item, integers from 0 to ``n_classes - 1`` of any shape.
        target: The true class, of the same shape; an item with any other label does not count.
        n_classes: The number of classes.
    """
    pairs = count_pairs(decided, target, n_classes)
    intersection = pairs.diagonal()
    return torch.stack([intersection, pairs.sum(0) + pairs.sum(1) - intersection])


def count_pairs(decided: Tensor, target: Tensor, n_classes: int) -> Tensor:
    """Return the confusion matrix: int64 of shape [C, C], the true class first.

    Arguments are those of `count_decisions`.
    """
    target = target.long()
    label = target.clamp(0, n_classes - 1)
    pair = torch.add(decided, label, alpha=n_classes).flatten()
    counts = torch.zeros(n_classes**2, dtype=torch.long, device=pair.device)
    return counts.scatter_add_(0, pair, (label == target).long().flatten()).view(n_classes, n_classes)

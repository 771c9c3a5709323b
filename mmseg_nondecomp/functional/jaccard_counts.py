"""Intersection and union of decided and true classes: what the Jaccard index itself is made of."""

import torch
from torch import Tensor


def jaccard_counts(decided: Tensor, target: Tensor, mass: Tensor, n_classes: int) -> Tensor:
    """How much of each class is decided and true, and decided or true, in each image.

    Args:
        decided: The decided class of each item, int64 of shape [N, P]; ``n_classes`` for none.
        target: The true class, of the same shape; ``n_classes`` for none.
        mass: How much each item counts, of the same shape.
        n_classes: The number of classes.

    Returns:
        Intersections and unions, float64 of shape [N, 2, C].
    """
    mass = mass.double()
    hit = torch.where(decided == target, mass, 0)

    def of_class(index: Tensor, amount: Tensor) -> Tensor:
        counts = torch.zeros(len(index), n_classes + 1, dtype=torch.float64, device=index.device)
        return counts.scatter_add_(1, index, amount)[:, :n_classes]

    intersection = of_class(target, hit)
    union = of_class(target, mass) + of_class(decided, mass) - intersection
    return torch.stack([intersection, union], 1)


def mean_jaccard(counts: Tensor) -> Tensor:
    """The mean index over the classes that are decided or true anywhere, from counts [..., 2, C]; NaN if none is."""
    intersection, union = counts.unbind(-2)
    seen = union > 0
    index = torch.where(seen, intersection / torch.where(seen, union, 1), 0)
    return index.sum(-1) / seen.sum(-1)


def count_decisions(decided: Tensor, target: Tensor, n_classes: int) -> Tensor:
    """Intersections and unions of all items together, by counting pairs: integers of shape [2, C].

    Args:
        decided: The decided class of each item, integers from 0 to ``n_classes - 1`` of any shape.
        target: The true class, of the same shape; an item with any other label does not count.
        n_classes: The number of classes.
    """
    pairs = count_pairs(decided, target, n_classes)
    intersection = pairs.diagonal()
    return torch.stack([intersection, pairs.sum(0) + pairs.sum(1) - intersection])


def count_pairs(decided: Tensor, target: Tensor, n_classes: int) -> Tensor:
    """How many items have each true and each decided class: integers of shape [C, C], the true class first.

    Arguments are those of `count_decisions`.
    """
    valid = (target >= 0) & (target < n_classes)
    # int32: half of the memory traffic of int64, of which this consists.
    pair = torch.where(valid, target.int() * n_classes + decided.int(), n_classes**2)
    return torch.bincount(pair.flatten(), minlength=n_classes**2 + 1)[:-1].view(n_classes, n_classes)

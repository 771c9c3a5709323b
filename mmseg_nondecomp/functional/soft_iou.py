r"""The soft Jaccard loss: one minus the ratio of a soft intersection and a soft union.

.. math:: 1 - \frac{I}{U}, \qquad I = \sum_i \min(f_i, y_i), \qquad U = \sum_i \max(f_i, y_i)

For labels of 0 and 1 these are the :math:`I = \sum_i f_i y_i` and :math:`U = \sum_i (f_i + y_i) - I` of Rahman and
Wang. For labels between, a product would reward certainty that the label does not have; with the minimum and the
maximum the loss is 0 exactly where prediction and label agree.

Reference:
    M. A. Rahman, Y. Wang: Optimizing intersection-over-union in deep neural networks for image segmentation. ISVC 2016.
    (equations A.1 and A.2 in the appendix of https://arxiv.org/abs/1705.08790)
    Z. Wang et al.: Jaccard metric losses: optimizing the Jaccard index with soft labels. NeurIPS 2023.
    https://arxiv.org/abs/2302.05666
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mmseg_nondecomp.functional.class_average import Classes, check_classes, class_average, class_weights
from mmseg_nondecomp.functional.items import Items, class_items, number_of_classes, valid_items
from mmseg_nondecomp.functional.lovasz import ClassLosses


def soft_iou(
    probs: Tensor,
    target: Tensor,
    classes: Classes = 'present',
    per_image: bool = False,
    ignore_index: int | None = None,
    class_weight: Tensor | Sequence[float] | None = None,
) -> Tensor:
    """The soft Jaccard loss, averaged over classes.

    Args:
        probs: Probabilities, of shape [N, C, *]. With C = 1, those of the foreground, which is label 1.
        target: Class indices, of shape [N, *], or a share for each class, or several labels, of shape [N, C, *].
        classes: Which classes are averaged: those ``'present'`` in the set, ``'all'``, or a list. The loss of a class
            that is absent is 1 as soon as any pixel gives it any probability.
        per_image: Whether each image is a set (and the sets are averaged), or all of them are one.
        ignore_index: The label of the pixels that do not exist. By default 255, where it cannot be a class.
        class_weight: Makes the mean over classes a weighted one.

    Returns:
        A scalar in [0, 1]; 0, attached to the graph, if no class counts.

    Raises:
        TypeError: If a dtype does not fit.
        ValueError: If a shape or a value is out of range.

    Example:
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
        >>> soft_iou(probs, torch.tensor([0, 1, 1]))
        tensor(0.5395)
    """
    check_classes(classes)
    n_classes = number_of_classes(probs, 'probs')
    valid = valid_items(probs, target, None, ignore_index, max(n_classes, 2), 'probs')
    items = class_items(probs, target, valid, None, zero_is_class=False)
    return class_average(*soft_losses(items, per_image), classes, class_weights(class_weight, items.scores.dtype))


def soft_losses(items: Items, per_image: bool, total: Callable[[Tensor], Tensor] = lambda sums: sums) -> ClassLosses:
    """The soft Jaccard loss of each class.

    Args:
        items: Probabilities and their targets.
        per_image: Whether each image is a set.
        total: Sums a tensor over the processes that share the set, differentiably.
    """
    sums = total(soft_sums(items, per_image))
    intersection, union, foreground, mass = sums.unbind(2)
    losses = (union - intersection) / torch.where(union > 0, union, 1)
    return ClassLosses(losses.to(items.scores.dtype), foreground > 0, mass.sum(1) > 0)


def soft_sums(items: Items, per_image: bool) -> Tensor:
    """Intersection, union, foreground and mass of each class in each set, float64, of shape [R, C, 4]."""
    scores, target, mass = items
    scores = torch.where(mass.unsqueeze(1) > 0, scores, 0)
    n_images, n_classes, _ = scores.shape
    if target.is_floating_point():
        weights = mass.unsqueeze(1).to(scores.dtype)
        parts = (torch.minimum(scores, target), torch.maximum(scores, target), target)
        intersection, union, foreground = ((part * weights).sum(2).double() for part in parts)
    else:
        label = target.clamp(max=n_classes - 1).unsqueeze(1)
        hit = scores.gather(1, label).squeeze(1).double() * mass
        nothing = hit.new_zeros(n_images, n_classes + 1)
        intersection = nothing.scatter_add(1, target, hit)[:, :n_classes]
        foreground = nothing.scatter_add(1, target, mass.double())[:, :n_classes]
        predicted = scores * mass.unsqueeze(1).to(scores.dtype) if mass.is_floating_point() else scores
        union = predicted.sum(2).double() + foreground - intersection
    sums = torch.stack([intersection, union, foreground, mass.double().sum(1, keepdim=True).expand_as(union)], 2)
    return sums if per_image else sums.sum(0, keepdim=True)

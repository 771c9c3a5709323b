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
from mmseg_nondecomp.functional.label_scores import label_scores
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


def soft_losses(items: Items, per_image: bool, total: Callable[[Tensor], Tensor] | None = None) -> ClassLosses:
    """Return the soft Jaccard loss of each class.

    Args:
        items: Probabilities and their targets.
        per_image: Whether each image is a set.
        total: Sums a tensor over the processes that share the set, differentiably; ``None`` for one process.
    """
    sums = soft_sums(items, per_image)
    intersection, union, foreground, mass = sums if total is None else total(torch.stack(sums, 2)).unbind(2)
    losses = (union - intersection) / (union + (union == 0))
    return ClassLosses(losses.to(items.scores.dtype), foreground > 0, mass[:, 0] > 0)


def soft_sums(items: Items, per_image: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return intersection, union, foreground and mass of each class in each set, each of shape [R, C]."""
    scores, target, mass = items
    ignored = mass == 0
    n_classes = scores.shape[1]
    if target.is_floating_point():
        scores = scores.masked_fill(ignored.unsqueeze(1), 0)
        parts = (torch.minimum(scores, target), torch.maximum(scores, target), target)
        intersection, union, foreground = (_sums(part, mass, per_image).double() for part in parts)
    else:
        label = target.clamp(max=n_classes - 1).unsqueeze(1)
        scores, hit = label_scores(scores, label, ignored.unsqueeze(1), 0)
        hit = hit.squeeze(1).double() * mass if mass.is_floating_point() else hit.squeeze(1).double()
        predicted = _sums(scores, mass, per_image)
        if not per_image:
            target, hit, mass = (part.reshape(1, -1) for part in (target, hit, mass))
        nothing = hit.new_zeros(len(target), n_classes + 1)
        intersection = nothing.scatter_add(1, target, hit)[:, :-1]
        foreground = nothing.to(mass.dtype).scatter_add(1, target, mass)[:, :-1]
        union = predicted + (foreground - intersection)
    mass = mass.sum(1, keepdim=True) if per_image else mass.sum().view(1, 1)
    return intersection, union, foreground, mass.expand_as(union)


def _sums(values: Tensor, mass: Tensor, per_image: bool) -> Tensor:
    """Return the sums of values over each set, of shape [R, C]; they are 0 where the mass is, integer masses are 1."""
    values = values * mass.unsqueeze(1).to(values.dtype) if mass.is_floating_point() else values
    return values.sum(2) if per_image else values.sum((0, 2)).unsqueeze(0)

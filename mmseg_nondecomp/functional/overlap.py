r"""The soft Jaccard loss, and with weights the soft Tversky and Dice losses.

.. math:: 1 - \frac{I}{U}, \qquad I = \sum_i \min(f_i, y_i), \qquad U = \sum_i \max(f_i, y_i)

For labels of 0 and 1 these are the :math:`I = \sum_i f_i y_i` and :math:`U = \sum_i (f_i + y_i) - I` of Rahman and
Wang. For soft labels, a product would reward predictions that are more certain than the label; with the minimum and
the maximum the loss is 0 exactly where prediction and label agree.

The Tversky loss replaces the union by :math:`I + \alpha\, FP + \beta\, FN` with the soft false positives
:math:`FP = U - \sum_i y_i` and false negatives :math:`FN = \sum_i y_i - I`. With :math:`\alpha = \beta = 1` it is the
Jaccard loss, with :math:`\alpha = \beta = \tfrac{1}{2}` the Dice loss.

Reference:
    M. A. Rahman, Y. Wang: Optimizing intersection-over-union in deep neural networks for image segmentation. ISVC 2016.
    (equations A.1 and A.2 in the appendix of https://arxiv.org/abs/1705.08790)
    Z. Wang et al.: Jaccard metric losses: optimizing the Jaccard index with soft labels. NeurIPS 2023.
    https://arxiv.org/abs/2302.05666
    S. S. M. Salehi, D. Erdogmus, A. Gholipour: Tversky loss function for image segmentation using 3D fully
    convolutional deep networks. MLMI 2017. https://arxiv.org/abs/1706.05721
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import ClassLosses, class_average
from mmseg_nondecomp.functional._inputs import (
    Classes,
    Inputs,
    Reduce,
    check_classes,
    check_number,
    in_one_process,
    label_scores,
    read_class_weight,
    read_probabilities,
)


def check_weights_of_errors(alpha: float, beta: float) -> None:
    """Raise unless the weights are numbers from 0 on, not both 0."""
    check_number('alpha', alpha, '[0, inf)')
    check_number('beta', beta, '[0, inf)')
    if alpha == beta == 0:
        raise ValueError('Parameters `alpha` and `beta` should not both be 0: no error would count. Found 0 and 0.')


def soft_iou(
    probs: Tensor,
    target: Tensor,
    classes: Classes = 'present',
    per_image: bool = False,
    ignore_index: int | None = None,
    class_weight: Tensor | Sequence[float] | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    mode: str | None = None,
) -> Tensor:
    """Compute the soft Jaccard loss, or with weights the Tversky loss, averaged over classes.

    Arguments and result are those of `lovasz_softmax`, with ``alpha`` and ``beta`` instead of ``bins``: the weights of
    false positives and of false negatives, at least 0. With 0.5 for both it is the Dice loss. The loss of an absent
    class is 1 as soon as any pixel gives it a probability.

    Example:
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
        >>> soft_iou(probs, torch.tensor([0, 1, 1]))
        tensor(0.5395)
    """
    check_classes(classes)
    check_weights_of_errors(alpha, beta)
    inputs = read_probabilities(probs, target, ignore_index, mode)
    class_weight = read_class_weight(class_weight, inputs.scores.dtype)
    return class_average(soft_losses(inputs, per_image, alpha, beta), classes, class_weight)


def soft_losses(
    inputs: Inputs, per_image: bool, alpha: float = 1.0, beta: float = 1.0, reduce: Reduce = in_one_process
) -> ClassLosses:
    """Compute the soft Tversky loss of each class from probabilities; with ``per_image``, each image is a set."""
    sums = soft_sums(inputs, per_image)
    if reduce is not in_one_process:
        sums = SoftSums(*reduce(torch.stack(sums, 2)).unbind(2))
    losses, present, non_empty = losses_of_sums(sums, alpha, beta)
    return ClassLosses(losses.to(inputs.scores.dtype), present, non_empty)


class SoftSums(NamedTuple):
    """Sums over the pixels of each class in each set, float64 of shape [R, C]."""

    intersection: Tensor
    union: Tensor
    foreground: Tensor
    mass: Tensor


def losses_of_sums(sums: SoftSums, alpha: float = 1.0, beta: float = 1.0) -> ClassLosses:
    """Compute the soft Tversky loss of each class."""
    intersection, union, foreground, mass = sums
    if (alpha, beta) != (1, 1):
        union = intersection + alpha * (union - foreground) + beta * (foreground - intersection)
    return ClassLosses((union - intersection) / (union + (union == 0)), foreground > 0, mass[:, 0] > 0)


def soft_sums(inputs: Inputs, per_image: bool) -> SoftSums:
    """Sum intersection, union, foreground and mass over the pixels of each class in each set."""
    scores, target, mass = inputs.scores, inputs.target, inputs.mass
    ignored = ~inputs.valid
    n_classes = inputs.n_classes
    if inputs.is_soft:
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
    return SoftSums(intersection, union, foreground, mass.expand_as(union))


def _sums(values: Tensor, mass: Tensor, per_image: bool) -> Tensor:
    """Return the sums of values over each set, of shape [R, C]; they are 0 where the mass is, integer masses are 1."""
    values = values * mass.unsqueeze(1).to(values.dtype) if mass.is_floating_point() else values
    return values.sum(2) if per_image else values.sum((0, 2)).unsqueeze(0)

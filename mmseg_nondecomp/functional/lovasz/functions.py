"""The Lovász losses as functions: of probabilities, and of the logits of one decision."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import class_average
from mmseg_nondecomp.functional._inputs import (
    Classes,
    Reading,
    check_bins,
    check_classes,
    read_class_weight,
    read_inputs,
    read_probabilities,
)
from mmseg_nondecomp.functional.lovasz.histogram import MarginBins, ProbabilityBins, lovasz_losses


def lovasz_softmax(
    probs: Tensor,
    target: Tensor,
    classes: Classes = 'present',
    per_image: bool = False,
    ignore_index: int | None = None,
    class_weight: Tensor | Sequence[float] | None = None,
    bins: int | None = None,
    mode: str | None = None,
) -> Tensor:
    r"""Compute the Lovász-Softmax loss (Berman et al., CVPR 2018, equation 13).

    The error of a pixel for class :math:`c` is :math:`1 - f(c)` if it belongs to the class and :math:`f(c)` if not. The
    loss of the class is the Lovász extension of :math:`1 - \mathrm{IoU}_c` at these errors: on one-hot predictions it
    is that loss itself.

    With soft labels a pixel counts in proportion as a pixel of each class. This is the expected labelling, which is
    right for mixed images. Its best prediction is the most probable class, not the soft label, so for labels that are
    to be matched (smoothing, distillation) use :func:`soft_iou`.

    Args:
        probs: Probabilities, of shape [N, C, *]. With C = 1, those of the foreground, which is label 1.
        target: Class indices, of shape [N, *], or soft labels, or several labels, of shape [N, C, *].
        classes: The classes that are averaged: those ``'present'`` in the set, ``'all'``, or a list. The loss of an
            absent class is the highest probability that any pixel gives it.
        per_image: Whether each image is a set (and the sets are averaged), or all of them are one.
        ignore_index: The label of the pixels to ignore. By default 255, where it cannot be a class.
        class_weight: Weights of the classes in the mean.
        bins: The resolution of the errors, B, without sorting; the loss is within 1 / (2 B) of the exact one. ``None``
            sorts, and is exact.
        mode: ``'multiclass'``, ``'binary'`` or ``'multilabel'``. By default a call is read if its shapes have a single
            reading; see docs/layouts.md.

    Returns:
        A scalar in [0, 1]; 0, attached to the graph, if no class counts.

    Example:
        >>> import torch
        >>> probs = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
        >>> lovasz_softmax(probs, torch.tensor([0, 1, 1]))
        tensor(0.4333)
        >>> lovasz_softmax(probs, torch.tensor([0, 1, 1]), bins=1024)
        tensor(0.4333)
    """
    check_classes(classes)
    check_bins(bins)
    inputs = read_probabilities(probs, target, ignore_index, mode)
    losses, _ = lovasz_losses(inputs, ProbabilityBins, bins, per_image)
    return class_average(losses, classes, read_class_weight(class_weight, inputs.scores.dtype))


def lovasz_hinge(logits: Tensor, target: Tensor, per_image: bool = False, ignore_index: int | None = None) -> Tensor:
    r"""Compute the Lovász hinge of a foreground against its background (equation 10 of the paper), exactly.

    With :math:`y \in \{-1, 1\}`, the error of a pixel is its hinge loss :math:`\max(1 - y F, 0)`. Foreground is
    decided where :math:`F > 0`.

    Args:
        logits: The score :math:`F` of each pixel, of shape [N, *] or [N, 1, *].
        target: 1 for the foreground, 0 for the background, of shape [N, *] or [N, 1, *].
        per_image: Whether each image is a set (and the sets are averaged), or all of them are one.
        ignore_index: The label of the pixels to ignore; 255 by default.

    Returns:
        A scalar; 0, attached to the graph, if no pixel is left. Without any foreground it is the largest error.

    Example:
        >>> import torch
        >>> lovasz_hinge(torch.tensor([[2.0, -0.5, -3.0]]), torch.tensor([[1, 1, 0]]))
        tensor(0.7500)
    """
    inputs = read_inputs(logits, target, None, ignore_index, Reading('binary', is_crisp=True), 'logits')
    if inputs.is_soft:
        inputs = inputs._replace(target=torch.where(inputs.valid, 1 - inputs.target[:, 0].long(), 1))
    losses, _ = lovasz_losses(inputs, MarginBins, None, per_image, 'margin')
    return class_average(losses, 'all')

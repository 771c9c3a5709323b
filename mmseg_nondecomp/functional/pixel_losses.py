"""Elementwise losses: one non-negative number for each item of a prediction [N, C, *], nothing reduced.

With one channel, or one independent decision per channel, an item's loss is the mean over its channels. Items that are
not ``valid`` may carry any label; their loss is 0 and sends no gradient.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(pred: Tensor, target: Tensor, valid: Tensor, class_weight: Tensor | None = None) -> Tensor:
    """Softmax cross-entropy; on a single channel the cross-entropy of its sigmoid.

    Args:
        pred: Logits, of shape [N, C, *].
        target: Class indices, of shape [N, *], or probabilities, of shape [N, C, *].
        valid: Which items count, bool, of shape [N, *].
        class_weight: A factor for each class, of shape [C].

    Returns:
        The losses, of shape [N, *].

    Example:
        >>> pred, target = torch.zeros(2, 4), torch.tensor([1, 3])
        >>> cross_entropy(pred, target, torch.tensor([True, False]))
        tensor([1.3863, 0.0000])
    """
    if pred.shape[1] == 1:
        return binary_cross_entropy(pred, target, valid, class_weight)
    if target.is_floating_point():
        losses = F.cross_entropy(pred, target.to(pred.dtype), weight=class_weight, reduction='none')
        return torch.where(valid, losses, 0)
    target = torch.where(valid, target.long(), -100)
    return F.cross_entropy(pred, target, weight=class_weight, reduction='none', ignore_index=-100)


def binary_cross_entropy(pred: Tensor, target: Tensor, valid: Tensor, class_weight: Tensor | None = None) -> Tensor:
    """Sigmoid cross-entropy of each channel against "is it this class", averaged over the channels of an item."""
    is_class = one_vs_rest(target, valid, pred)
    return _mean_over_channels(_decision_losses(pred, is_class), valid, class_weight)


def focal(pred: Tensor, target: Tensor, valid: Tensor, class_weight: Tensor | None = None) -> Tensor:
    r"""Sigmoid focal loss with the usual :math:`\gamma = 2`, :math:`\alpha = 0.25`, averaged over channels.

    Reference:
        T.-Y. Lin et al.: Focal Loss for Dense Object Detection. ICCV 2017. https://arxiv.org/abs/1708.02002
    """
    is_class = one_vs_rest(target, valid, pred)
    probability = pred.sigmoid()
    miss = probability + is_class - 2 * probability * is_class
    balance = 0.75 - 0.5 * is_class
    losses = balance * miss.square() * _decision_losses(pred, is_class)
    return _mean_over_channels(losses, valid, class_weight)


def one_vs_rest(target: Tensor, valid: Tensor, pred: Tensor) -> Tensor:
    """The target of each channel's own decision, of the shape and dtype of ``pred``.

    With one channel the label itself (0 or 1) is the target. With more, label ``C`` is nobody's: the background of
    MMDetection's sigmoid heads.
    """
    if target.is_floating_point() and target.shape == pred.shape:
        return target.to(pred.dtype)
    label = torch.where(valid, target, 0).unsqueeze(1)
    if pred.shape[1] == 1:
        return label.to(pred.dtype)
    classes = torch.arange(pred.shape[1], device=pred.device).view(1, -1, *[1] * (pred.dim() - 2))
    return (label == classes).to(pred.dtype)


def _decision_losses(pred: Tensor, is_class: Tensor) -> Tensor:
    """Sigmoid cross-entropy; an infinite logit of the right sign costs nothing, where torch's own gives NaN."""
    return torch.where(
        (is_class == 0) | (is_class == 1),
        -F.logsigmoid(torch.where(is_class == 1, pred, -pred)),
        F.binary_cross_entropy_with_logits(pred, is_class, reduction='none'),
    )


def _mean_over_channels(losses: Tensor, valid: Tensor, class_weight: Tensor | None) -> Tensor:
    if class_weight is not None:
        losses = losses * class_weight.view(1, -1, *[1] * (losses.dim() - 2))
    return torch.where(valid, losses.mean(1), 0)

"""Elementwise losses: one non-negative number for each item of a prediction, nothing reduced.

With one channel, or one independent decision per channel, the loss of an item is the mean over its channels. The loss
of an item that does not count is 0 and has no gradient.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmseg_nondecomp.functional._inputs import Inputs, Reading, check_class_weight, is_due, refuse
from mmseg_nondecomp.registry import MODELS


def cross_entropy(inputs: Inputs, class_weight: Tensor | None = None) -> Tensor:
    """Compute the softmax cross-entropy, of shape [N, P]; on a single channel the cross-entropy of its sigmoid."""
    if inputs.n_classes == 1:
        return binary_cross_entropy(inputs, class_weight)
    if inputs.is_soft:
        losses = F.cross_entropy(inputs.scores, inputs.target, weight=class_weight, reduction='none')
        return torch.where(inputs.valid, losses, 0)
    return F.cross_entropy(
        inputs.scores, inputs.target, weight=class_weight, reduction='none', ignore_index=inputs.n_classes
    )


def binary_cross_entropy(inputs: Inputs, class_weight: Tensor | None = None) -> Tensor:
    """Compute the sigmoid cross-entropy of each channel against its class, averaged over the channels of an item."""
    is_class = inputs.one_hot().to(inputs.scores.dtype)
    return _mean_over_channels(_decision_losses(inputs.scores, is_class), inputs.valid, class_weight)


def focal(inputs: Inputs, class_weight: Tensor | None = None) -> Tensor:
    r"""Compute the sigmoid focal loss with :math:`\gamma = 2`, :math:`\alpha = 0.25`, averaged over channels.

    Reference:
        T.-Y. Lin et al.: Focal Loss for Dense Object Detection. ICCV 2017. https://arxiv.org/abs/1708.02002
    """
    is_class = inputs.one_hot().to(inputs.scores.dtype)
    probability = inputs.scores.sigmoid()
    miss = probability + is_class - 2 * probability * is_class
    balance = 0.75 - 0.5 * is_class
    losses = balance * miss.square() * _decision_losses(inputs.scores, is_class)
    return _mean_over_channels(losses, inputs.valid, class_weight)


PIXEL_LOSSES: dict[str, Callable[..., Tensor]] = {
    'cross_entropy': cross_entropy,
    'bce': binary_cross_entropy,
    'focal': focal,
}


def pixel_losses(inputs: Inputs, pixel_loss: str | nn.Module, class_weight: Tensor | None) -> Tensor:
    """Compute the weighted losses [N, P] of items, by the name of an elementwise loss or by a registered one."""
    check_class_weight(class_weight, inputs.n_classes)
    if isinstance(pixel_loss, str):
        class_weight = None if class_weight is None else class_weight.to(inputs.scores.dtype)
        losses = PIXEL_LOSSES[pixel_loss](inputs, class_weight)
    else:
        losses = pixel_loss(inputs)
    return losses if inputs.weight is None else losses * inputs.weight


class RegisteredPixelLoss(nn.Module):
    """An elementwise loss of MMSegmentation, or one with its call form, by a config such as ``dict(type='FocalLoss')``.

    ``class_weight`` has to be None: such a loss takes its own in ``cfg``.
    """

    def __init__(self, cfg: dict[str, Any], class_weight: Sequence[float] | None = None) -> None:
        super().__init__()
        if not isinstance(cfg, dict) or 'type' not in cfg:
            raise TypeError(f'Parameter `pixel_loss` should be a name or a dict with the key "type". Found {cfg!r}.')
        if class_weight is not None:
            raise ValueError(f'Parameter `class_weight` belongs into the config of `pixel_loss`, {cfg["type"]!r}.')
        self.name = str(cfg['type'])
        self.loss = MODELS.build(cfg)
        self.checked: dict[Any, int] = {}
        takes_ignore_index = 'ignore_index' in inspect.signature(self.loss.forward).parameters
        self.ignore_nothing = {'ignore_index': -100} if takes_ignore_index else {}

    def forward(self, inputs: Inputs) -> Tensor:
        """Compute the losses, of shape [N, P]."""
        pred, target, valid = (inputs.as_called(part) for part in (inputs.scores, inputs.target, inputs.valid))
        if inputs.is_soft:
            losses = self.loss(pred, target, reduction_override='none')
        else:
            # Label 255 may be a class; losses of ignored items are masked below.
            label = torch.where(valid, 1 - target if inputs.n_classes == 1 else target, 0)
            losses = self.loss(pred, label, reduction_override='none', **self.ignore_nothing)
        if losses.shape == pred.shape:
            losses = losses.mean(1)
        if losses.shape != valid.shape:
            raise ValueError(
                f'Parameter `pixel_loss` should name an elementwise loss. {self.name} returned the shape '
                f'{tuple(losses.shape)} for {tuple(valid.shape)} pixels with `reduction_override="none"`.'
            )
        losses = losses.masked_fill(~valid, 0)
        if is_due(losses, losses.dim(), checked=self.checked):
            message = f'Parameter `pixel_loss` should name a loss that is never negative. It is {self.name}.'
            refuse(losses < 0, message, losses)
        return losses.reshape(inputs.valid.shape)


def check_reading(reading: Reading, pixel_loss: str | nn.Module) -> Reading:
    """Raise ValueError if a registered loss is called by a box head of one class: packages disagree on its label."""
    if reading.of_boxes and isinstance(pixel_loss, RegisteredPixelLoss):
        raise ValueError(
            "Parameter `pixel_loss` should be 'focal' or 'bce' in a box head of one class. "
            f'Found the config of {pixel_loss.name}.'
        )
    return reading


def _decision_losses(scores: Tensor, is_class: Tensor) -> Tensor:
    """Compute the sigmoid cross-entropy; 0 at infinite logits of the right sign, where torch returns NaN."""
    return torch.where(
        (is_class == 0) | (is_class == 1),
        -F.logsigmoid(torch.where(is_class == 1, scores, -scores)),
        F.binary_cross_entropy_with_logits(scores, is_class, reduction='none'),
    )


def _mean_over_channels(losses: Tensor, valid: Tensor, class_weight: Tensor | None) -> Tensor:
    if class_weight is not None:
        losses = losses * class_weight.view(1, -1, 1)
    return torch.where(valid, losses.mean(1), 0)

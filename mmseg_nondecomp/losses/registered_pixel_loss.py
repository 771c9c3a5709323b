"""Any registered elementwise loss as the pixel loss of a pooled one."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmseg_nondecomp.functional.items import can_be_read
from mmseg_nondecomp.registry import MODELS


class RegisteredPixelLoss(nn.Module):
    """Calls a loss of MMSegmentation (or one with its call form) for the loss of every pixel.

    Args:
        cfg: The config of the loss, such as ``dict(type='FocalLoss', gamma=1.0)``.
        class_weight: Must be None: such a loss takes its own in ``cfg``.
    """

    def __init__(self, cfg: dict[str, Any], class_weight: Sequence[float] | None = None) -> None:
        super().__init__()
        if not isinstance(cfg, dict) or 'type' not in cfg:
            raise TypeError(f'Parameter `pixel_loss` should be a name or a dict with the key "type". Found {cfg!r}.')
        if class_weight is not None:
            raise ValueError(f'Parameter `class_weight` belongs into the config of `pixel_loss`, {cfg["type"]!r}.')
        self.name = str(cfg['type'])
        self.loss = MODELS.build(cfg)
        takes_ignore_index = 'ignore_index' in inspect.signature(self.loss.forward).parameters
        self.ignore_nothing = {'ignore_index': -100} if takes_ignore_index else {}

    def forward(self, pred: Tensor, target: Tensor, valid: Tensor) -> Tensor:
        """The losses, of shape [N, *]; 0 where an item is not valid."""
        if target.is_floating_point():
            losses = self.loss(pred, target, reduction_override='none')
        else:
            label = torch.where(valid, target.long(), 0)  # 255 may be a class; what is not valid is masked below
            losses = self.loss(pred, label, reduction_override='none', **self.ignore_nothing)
        if losses.shape == pred.shape:
            losses = losses.mean(1)
        if losses.shape != valid.shape:
            raise ValueError(
                f'Parameter `pixel_loss` should name an elementwise loss. {self.name} returned the shape '
                f'{tuple(losses.shape)} for {tuple(valid.shape)} pixels with `reduction_override="none"`.'
            )
        losses = losses.masked_fill(~valid, 0)
        if can_be_read(losses) and (losses < 0).any():
            raise ValueError(
                f'Parameter `pixel_loss` should name a loss that is never negative. {self.name} returned '
                f'{losses.min().item():.4g}.'
            )
        return losses

"""Weighted mean of cross-entropy and the loss of IoU, with a weight of cross-entropy that rises with the IoU."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.losses._base import log_scalar
from mmseg_nondecomp.losses.sum_of_losses import SumOfLosses

RISING = 'rising'
"""Weight of cross-entropy that rises."""


class RisingSum(SumOfLosses):
    """Sum of losses. If ``rises``, the weighted mean of cross-entropy and `IoULoss`, which computes the weight."""

    rises = False

    def values(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Return the value of each loss; if ``rises``, times its present weight."""
        if not self.rises:
            return super().values(*args, **kwargs)
        cross_entropy: Any
        measured: Any
        cross_entropy, measured = self.losses
        value = measured.evaluate(*args, **kwargs)
        weight = value.weight_of_cross_entropy
        if weight is None:  # the value has a term for each item
            with torch.no_grad():
                weight = measured.evaluate(*args, **{**kwargs, 'reduction_override': None}).weight_of_cross_entropy
        log_scalar(f'{self.loss_name}_weight_ce', weight)
        return [weight * cross_entropy(*args, **kwargs), (1 - weight) * value.loss]

    def parts(self) -> str:
        """Return the factors and the names of the losses."""
        factors = ['w', '(1 - w)'] if self.rises else [f'{loss.loss_weight:g}' for loss in self.losses]
        return ' + '.join(f'{a} * {type(loss).__name__}' for a, loss in zip(factors, self.losses, strict=True))

"""Sum of cross-entropy and the loss of IoU, with a factor of cross-entropy that rises with the IoU."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.losses._base import log_scalar
from mmseg_nondecomp.losses.sum_of_losses import SumOfLosses

RISING = 'rising'
"""Factor of cross-entropy that rises."""


class RisingSum(SumOfLosses):
    """Sum of losses. If ``rises``, the first is cross-entropy and the second `IoULoss`, which has its factor."""

    rises = False

    def values(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Return the value of each loss, that of cross-entropy with its present factor."""
        if not self.rises:
            return super().values(*args, **kwargs)
        cross_entropy: Any
        measured: Any
        cross_entropy, measured = self.losses
        value = measured.evaluate(*args, **kwargs)
        factor = value.factor
        if factor is None:  # the value has a term for each item
            with torch.no_grad():
                factor = measured.evaluate(*args, **{**kwargs, 'reduction_override': None}).factor
        log_scalar(f'{self.loss_name}_factor_ce', factor)
        return [factor * cross_entropy(*args, **kwargs), value.loss]

    def parts(self) -> str:
        """Return the factors and the names of the losses."""
        factors = [RISING if self.rises and i == 0 else f'{loss.loss_weight:g}' for i, loss in enumerate(self.losses)]
        return ' + '.join(f'{a} * {type(loss).__name__}' for a, loss in zip(factors, self.losses, strict=True))

"""Sum of cross-entropy and the loss of a measure, with a factor of cross-entropy that rises with the measure."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import share_above_one_class
from mmseg_nondecomp.losses._base import log_scalar
from mmseg_nondecomp.losses.sum_of_losses import SumOfLosses

RISING = 'rising'
"""Factor of cross-entropy that rises."""


class RisingSum(SumOfLosses):
    """Sum of losses. If ``rises``, the first is cross-entropy and the second a Jaccard loss, which sets its factor.

    With a constant factor, cross-entropy first learns the frequencies of the classes. The probabilities of rare classes
    are then close to 0, where the softmax passes on little of the gradient of the other loss. Hence the factor is 0
    until the soft IoU of more than one class has risen: see `share_above_one_class`. It has no gradient.
    """

    rises = False

    def values(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Return the value of each loss, that of cross-entropy with its present factor."""
        if not self.rises:
            return super().values(*args, **kwargs)
        cross_entropy: Any
        measured: Any
        cross_entropy, measured = self.losses
        value = measured.evaluate(*args, **kwargs)
        of_classes = value.of_classes
        if of_classes is None:  # the value has a term for each item
            with torch.no_grad():
                of_classes = measured.evaluate(*args, **{**kwargs, 'reduction_override': None}).of_classes
        are_exclusive = not measured.one_vs_rest and of_classes.losses.shape[1] > 1
        factor = share_above_one_class(of_classes, are_exclusive)
        log_scalar(f'{self.loss_name}_factor_ce', factor)
        return [factor * cross_entropy(*args, **kwargs), value.loss]

    def parts(self) -> str:
        """Return the factors and the names of the losses."""
        factors = [RISING if self.rises and i == 0 else f'{loss.loss_weight:g}' for i, loss in enumerate(self.losses)]
        return ' + '.join(f'{a} * {type(loss).__name__}' for a, loss in zip(factors, self.losses, strict=True))

"""The loss that `MetricLoss` recommends for mean IoU, and the weight of cross-entropy beside it."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import ClassLosses, share_above_one_class
from mmseg_nondecomp.functional._inputs import Inputs
from mmseg_nondecomp.losses._base import Value
from mmseg_nondecomp.losses.lovasz_softmax_loss import LovaszSoftmaxLoss

BELOW_ONE = 0.999
"""Factor of the loss of a class in its logarithm, so that the value is finite."""

HIGHEST_RATIO = 2.0
"""Bound on the weight of cross-entropy over that of the loss of IoU."""
HALF_AT = 1 / 16
"""Share of the way from one class everywhere to no error at which the ratio of the weights is half of its bound."""


class IoULoss(LovaszSoftmaxLoss):
    r"""The mean over classes of :math:`3 L_c - \log(1 - L_c)`, with the Lovász-Softmax loss :math:`L_c`.

    Where the probabilities :math:`p` of a class are small, the softmax scales the gradient of :math:`L_c` by about
    :math:`p`. The logarithm scales it by :math:`1 / (1 - L_c)`, and :math:`1 - L_c` is about as small. Thus the
    gradient has the size of that of cross-entropy, whatever the number of classes, and SGD needs no other learning
    rate. The terms of items add up to a linear function with the gradient of the loss.
    """

    def average(self, losses: ClassLosses) -> Tensor:
        """Average over classes and sets."""
        of_classes = losses.losses.masked_fill(~losses.present & losses.losses.isnan(), 0)
        return super().average(losses._replace(losses=3 * of_classes - torch.log1p(-BELOW_ONE * of_classes)))

    def value(self, inputs: Inputs, each_set: bool = False, **_: Any) -> Value:
        """Compute the loss, and the weight of cross-entropy beside it.

        With a constant weight, cross-entropy first learns the frequencies of the classes. The probabilities of rare
        classes are then close to 0, where the softmax passes on little of the gradient of the Lovász loss.
        """
        losses, statistics = self.class_losses(inputs, self.activation(inputs))
        share = share_above_one_class(losses, exclusive=not self._decides_each_class(inputs))
        ratio = HIGHEST_RATIO * share / (share + HALF_AT)
        return Value(self.average(losses), statistics, ratio / (1 + ratio))

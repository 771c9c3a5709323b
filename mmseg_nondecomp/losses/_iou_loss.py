"""The loss that `MetricLoss` recommends for mean IoU, and the factor of cross-entropy beside it."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import ClassLosses, share_above_one_class
from mmseg_nondecomp.functional._inputs import Inputs
from mmseg_nondecomp.losses._base import Value
from mmseg_nondecomp.losses.lovasz_softmax_loss import LovaszSoftmaxLoss

BELOW_ONE = 0.999
"""Factor of the loss of a class in its logarithm, so that the value is finite."""
ROUNDING = 1e-9  # of sums in another order


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
        """Compute the loss, and the factor of cross-entropy."""
        losses, statistics = self.class_losses(inputs, self.activation(inputs))
        return Value(self.average(losses), statistics, self.factor_of_cross_entropy(inputs, losses))

    @torch.no_grad()
    def factor_of_cross_entropy(self, inputs: Inputs, losses: ClassLosses) -> Tensor:
        """Return the share of `share_above_one_class`, or 1 while decisions are worse than one class everywhere.

        With a constant factor, cross-entropy first learns the frequencies of the classes. The probabilities of rare
        classes are then close to 0, where the softmax passes on little of the gradient of the Lovász loss. Without
        cross-entropy, classes that cannot be told apart are predicted far too often: the sum of the IoU is then less
        than the frequency of the most frequent class, which is its IoU if it is predicted everywhere.
        """
        if self._decides_each_class(inputs):
            return share_above_one_class(losses, exclusive=False)
        present = losses.present.any(0)
        hit, union = self.decided_areas(inputs)
        index = torch.where(present & (union > 0), hit / union, 0).sum()
        target = inputs.target.argmax(1) if inputs.is_soft else inputs.target
        pixels = torch.zeros(inputs.n_classes + 1, dtype=torch.double, device=target.device)
        pixels = self.reduce(pixels.scatter_add_(0, target.flatten(), inputs.mass.flatten().double())[:-1])
        one_class = pixels.max() / pixels.sum().clamp(min=torch.finfo(torch.double).tiny)
        share = share_above_one_class(losses, exclusive=True)
        is_worse = (index < (1 - ROUNDING) * one_class) & (present.sum() > 1)
        return torch.where(is_worse, torch.ones_like(share), share)

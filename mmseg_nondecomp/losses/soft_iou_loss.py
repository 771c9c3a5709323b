"""The soft Jaccard loss as a registered loss."""

from typing import Any

from mmseg_nondecomp.functional._averaging import ClassLosses
from mmseg_nondecomp.functional._inputs import Activation, Classes, Inputs, activate
from mmseg_nondecomp.functional.overlap import check_weights_of_errors, soft_losses
from mmseg_nondecomp.losses._jaccard import JaccardLoss
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class SoftIoULoss(JaccardLoss):
    """The soft Jaccard loss, with weights the Tversky or Dice loss, averaged over classes.

    See :func:`mmseg_nondecomp.functional.soft_iou`. It is smooth and the cheapest of the Jaccard losses, takes soft
    labels (it is 0 where prediction and label agree), and unlike the Lovász extension it is neither convex nor an
    upper bound. One channel is read as the sigmoid of the foreground (label 1), several channels as a softmax, or with
    ``use_sigmoid=True`` as one decision each.

    Args:
        classes: The classes that are averaged: those ``'present'`` in the set, ``'all'``, or a list of indices.
        alpha: The weight of false positives (Tversky), at least 0.
        beta: The weight of false negatives, at least 0. With 0.5 for both it is the Dice loss.
        **common: The arguments of :class:`mmseg_nondecomp.losses.SetLoss`.

    Example:
        >>> import torch
        >>> logits = torch.zeros(2, 4, 8, 8, requires_grad=True)
        >>> label = torch.zeros(2, 8, 8, dtype=torch.long)
        >>> SoftIoULoss()(logits, label)
        tensor(0.7500, grad_fn=<MulBackward0>)
    """

    default_name = 'loss_soft_iou'
    shown = ('classes', 'alpha', 'beta', 'scope')

    def __init__(self, classes: Classes = 'present', *, alpha: float = 1.0, beta: float = 1.0, **common: Any) -> None:
        super().__init__(classes, **common)
        check_weights_of_errors(alpha, beta)
        self.alpha, self.beta = alpha, beta

    def class_losses(self, inputs: Inputs, activation: Activation) -> tuple[ClassLosses, None]:
        """Return one minus the soft IoU of each class in each set."""
        inputs = inputs._replace(scores=activate(inputs.scores, activation))
        return soft_losses(inputs, self.of_images, self.alpha, self.beta, self.reduce), None

"""The soft Jaccard loss as a registered loss."""

from collections.abc import Sequence
from typing import Any

from mmseg_nondecomp.functional.activations import Activation, activate
from mmseg_nondecomp.functional.class_average import Classes
from mmseg_nondecomp.functional.items import Items
from mmseg_nondecomp.functional.lovasz import ClassLosses
from mmseg_nondecomp.functional.soft_iou import soft_losses
from mmseg_nondecomp.losses.class_wise import ClassWiseLoss
from mmseg_nondecomp.losses.scope import reduction_over
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class SoftIoULoss(ClassWiseLoss):
    """One minus the ratio of a soft intersection and a soft union, averaged over classes.

    See :func:`mmseg_nondecomp.functional.soft_iou`. It is smooth and the cheapest of the Jaccard losses, takes soft
    labels (it is 0 where prediction and label agree), and unlike the Lovász extension it is neither convex nor an
    upper bound. A head with one channel is read as the sigmoid of the foreground (label 1), several as a softmax.

    Args:
        classes: Which classes are averaged: those ``'present'`` in the set, ``'all'``, or a list of indices.
        scope: ``'image'`` (the mean over images), ``'batch'`` (of this process), or ``'world'`` (all processes; each
            of them has to call the loss in each step, or the others wait for it).
        class_weight: Makes the mean over classes a weighted one.
        use_sigmoid: True for a decision per channel: several labels a pixel, or MMDetection's dense heads, where label
            C is the background (and with a single class label 0 the object).
        loss_weight: The factor of this loss in the objective.
        loss_name: The key in the log.

    Raises:
        TypeError: If an argument is unknown or of a wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> loss = SoftIoULoss()
        >>> logits = torch.zeros(2, 4, 8, 8, requires_grad=True)
        >>> label = torch.zeros(2, 8, 8, dtype=torch.long)
        >>> loss(logits, label)
        tensor(0.7500, grad_fn=<MulBackward0>)

    Reference:
        M. A. Rahman, Y. Wang: Optimizing intersection-over-union in deep neural networks for image segmentation.
        ISVC 2016.
    """

    top = 1.0

    def __init__(
        self,
        classes: Classes = 'present',
        scope: str = 'batch',
        class_weight: Sequence[float] | None = None,
        use_sigmoid: bool | None = None,
        loss_weight: float = 1.0,
        loss_name: str = 'loss_soft_iou',
        **leaked: Any,
    ) -> None:
        super().__init__(classes, class_weight, use_sigmoid, scope, loss_weight, loss_name, leaked)

    def class_losses(self, items: Items, activation: Activation) -> ClassLosses:
        """Return one minus the soft IoU of each class in each set."""
        items = items._replace(scores=activate(items.scores, activation))
        processes = reduction_over(self.scope)
        return soft_losses(items, self.scope == 'image', processes.total if processes.world_size > 1 else None)

    def extra_repr(self) -> str:
        """The settings, as ``print(model)`` shows them."""
        return f'classes={self.classes!r}, scope={self.scope!r}'

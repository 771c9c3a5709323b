"""What the losses share that are computed class by class and averaged."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional.activations import Activation, activate
from mmseg_nondecomp.functional.class_average import Classes, check_classes, class_average, class_weights
from mmseg_nondecomp.functional.items import Items, class_items, number_of_classes, valid_items
from mmseg_nondecomp.functional.jaccard_counts import jaccard_counts, mean_jaccard
from mmseg_nondecomp.functional.lovasz import ClassLosses
from mmseg_nondecomp.losses.base import SetLoss
from mmseg_nondecomp.losses.monitor import is_logged, log_scalar
from mmseg_nondecomp.losses.scope import reduction_over


class ClassWiseLoss(SetLoss):
    """A Jaccard loss of each class of a set, averaged over classes and sets.

    While MMEngine trains, the mean IoU of the decisions on the same pixels is logged as ``train/<loss_name>_miou``.
    """

    top: float
    """Score that is no error where the class is present."""
    class_weight: Tensor | None

    def __init__(
        self,
        classes: Classes,
        class_weight: Sequence[float] | None,
        use_sigmoid: bool | None,
        scope: str,
        loss_weight: float,
        loss_name: str,
        leaked: dict[str, Any],
    ) -> None:
        if use_sigmoid is not None and use_sigmoid is not True:
            leaked['use_sigmoid'] = use_sigmoid
        super().__init__(loss_weight, loss_name, scope, leaked)
        check_classes(classes)
        self.classes = classes
        self.use_sigmoid = bool(use_sigmoid)
        self.register_buffer('class_weight', class_weights(class_weight), persistent=False)

    def value(
        self, pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, reduction: str, **_: Any
    ) -> Tensor:
        """Compute the average of the losses of the classes, or the terms of the pixels."""
        items = self.items(pred, target, weight, ignore_index)
        if reduction == 'none':
            return self.contributions(items).view(len(pred), *pred.shape[2:])
        if is_logged():
            log_scalar(f'{self.loss_name}_miou', self.jaccard_index(items))
        return self.average(self.class_losses(items, self.activation(items.scores.shape[1])))

    def items(self, pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None) -> Items:
        """Return the logits of the call and their targets, class by class."""
        n_classes = number_of_classes(pred)
        # One channel decides between two labels; label C is the background of sigmoid heads.
        valid = valid_items(pred, target, weight, ignore_index, n_classes + self.decides_each(n_classes))
        return class_items(pred, target, valid, weight, zero_is_class=self.use_sigmoid)

    def decides_each(self, n_classes: int) -> bool:
        """Whether each channel is a decision of its own, or all of them are one choice."""
        return self.use_sigmoid or n_classes == 1

    def activation(self, n_classes: int) -> Activation:
        """Return the name of the function that turns logits into scores, here probabilities."""
        return 'sigmoid' if self.decides_each(n_classes) else 'softmax'

    def class_losses(self, items: Items, activation: Activation) -> ClassLosses:
        """Return the loss of each class in each set, for logits with an activation or for scores without."""
        raise NotImplementedError

    def average(self, losses: ClassLosses) -> Tensor:
        """The weighted mean over classes, and over the sets that have any item."""
        return class_average(*losses, self.classes, self.class_weight)

    def contributions(self, items: Items) -> Tensor:
        """Each item's error times the slope of the loss, of shape [N, P]."""
        scores = activate(items.scores, self.activation(items.scores.shape[1]))
        with torch.enable_grad():
            leaf = scores.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.average(self.class_losses(items._replace(scores=leaf), None)), leaf)
        target = items.target
        if not target.is_floating_point():
            target = target.unsqueeze(1) == torch.arange(scores.shape[1], device=scores.device).view(1, -1, 1)
        errors = torch.where(items.mass.unsqueeze(1) > 0, scores - self.top * target, 0)
        return (errors * slope).sum(1)

    @torch.no_grad()
    def jaccard_index(self, items: Items) -> Tensor:
        """Return the mean IoU of the decisions by logits, over the pixels of all sets together."""
        scores, target, mass = items
        n_classes = scores.shape[1]
        if not self.decides_each(n_classes):
            target = target.argmax(1) if target.is_floating_point() else target
            counts = jaccard_counts(scores.max(1).indices, target, mass, n_classes)
        else:  # One decision a class: each is a set of items of its own.
            true = (
                target > 0.5
                if target.is_floating_point()
                else target.unsqueeze(1) == torch.arange(n_classes, device=scores.device).view(1, -1, 1)
            )
            decided = scores > 0
            mass = mass.unsqueeze(1)
            counts = torch.stack([((decided & true) * mass).sum(2), ((decided | true) * mass).sum(2)], 1).double()
        return mean_jaccard(reduction_over(self.scope)(counts.sum(0)))

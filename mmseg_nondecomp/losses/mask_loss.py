"""A loss of a set, for the masks of the heads of MMDetection and MMSegmentation."""

from typing import Any

from torch import Tensor, nn

from mmseg_nondecomp.functional._inputs import Reading, check_flag, check_tensor, read_inputs
from mmseg_nondecomp.losses._base import RegisteredLoss, log_measures
from mmseg_nondecomp.losses._masks import logits_of_masks, loss_of_images, read_masks
from mmseg_nondecomp.registry import MODELS

PER_POINT = 'loss_mask_ce'  # name of the loss of SAN whose `avg_factor` is the number of points, not of masks


@MODELS.register_module()
class MaskLoss(RegisteredLoss):
    r"""Sum of the losses of masks over their number: each mask is a set, and label 1 is its object.

    It takes the place of ``loss_mask`` and ``loss_dice`` in the heads of Mask2Former, MaskFormer, Mask R-CNN, CondInst,
    SOLO, SOLOv2, RTMDet-Ins and SAN, which hand one mask per object to their losses. Targets are bool, integers, or
    shares of the object. The sum is divided by ``avg_factor``, the number of masks, by default that of the call.

    Args:
        loss: The config of a loss of this package that has a ``scope``, or the loss itself.
        from_logits: False where the head hands over probabilities, as ``DecoupledSOLOHead`` does.
        loss_weight: The factor of this loss in the objective.
        loss_name: The key in the log; in SAN ``'loss_mask_ce'`` or ``'loss_mask_dice'``.

    Example:
        >>> import torch
        >>> from mmseg_nondecomp import LovaszHingeLoss
        >>> masks = torch.zeros(3, 64, requires_grad=True)
        >>> MaskLoss(LovaszHingeLoss(bins=None, scope='image'))(masks, torch.ones(3, 64), avg_factor=3)
        tensor(1., grad_fn=<...>)

        In a config::

            loss_dice = dict(_delete_=True, type='MaskLoss', loss=dict(type='LovaszHingeLoss', bins=None))
    """

    default_name = 'loss_mask'
    shown = ('from_logits',)
    modes = ('binary',)

    def __init__(
        self,
        loss: dict[str, Any] | nn.Module,
        from_logits: bool = True,
        loss_weight: float = 1.0,
        loss_name: str | None = None,
        **unexpected: Any,
    ) -> None:
        super().__init__(loss_weight, loss_name, **unexpected)
        check_flag('from_logits', from_logits)
        self.from_logits, self.loss = from_logits, loss_of_images(loss)
        self.ignore_index = self.loss.ignore_index if self.ignore_index is None else self.ignore_index

    def forward(
        self,
        pred: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        avg_factor: Any = None,
        reduction_override: str | None = None,
        ignore_index: int | None = None,
        **_: Any,
    ) -> Tensor:
        """Compute the sum of the losses of masks over ``avg_factor``; with the reduction ``'none'``, the losses [n].

        The layouts are those of `read_masks`. ``weight`` is a factor for each mask, or their classes for [n, C, h, w].
        """
        self._check_reduction(reduction_override)
        check_tensor('pred', pred)
        if pred.numel() == 0:
            return pred.sum(tuple(range(1, pred.dim()))) if reduction_override == 'none' else pred.sum()
        pred, target, weight, n_points = read_masks(pred, target, weight)
        pred = pred if self.from_logits else logits_of_masks(pred)
        target = target if self.loss.takes_shares or not target.is_floating_point() else target > 0.5
        ignore_index = self.ignore_index if ignore_index is None else ignore_index
        inputs = read_inputs(pred, target, None, ignore_index, Reading('binary'), checked=self._checked)
        value = self.loss.value(inputs, each_set=True)
        log_measures(self, self.loss.measures, inputs, value.statistics)
        losses = self.loss_weight * self.loss.loss_weight * (value.loss if weight is None else value.loss * weight)
        if reduction_override == 'none':
            return losses
        total = losses.sum()
        if reduction_override == 'sum' or avg_factor is None:
            return total if reduction_override == 'sum' else total / len(losses)
        n_points = pred.shape[2] if self.loss_name == PER_POINT else n_points
        return (total * n_points / avg_factor).sum()  # SAN hands over a tensor of one number

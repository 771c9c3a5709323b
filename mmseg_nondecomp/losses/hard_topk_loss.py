"""The hard top-k loss as a registered loss."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mmseg_nondecomp.functional.topk.hard import hard_topk_losses
from mmseg_nondecomp.losses._topk import TopKLoss
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class HardTopKLoss(TopKLoss):
    r"""The hard top-k loss, a hinge: the label should be among the k highest scores, by a margin.

    Only two scores of an item have a gradient, so `SmoothTopKLoss` trains better; this is its limit for a temperature
    of 0. See :func:`mmseg_nondecomp.functional.hard_topk_loss`.

    While MMEngine trains, the fraction of items whose label is among the k highest scores is logged as
    ``train/<loss_name>_top<k>``.

    Args:
        k: The number of labels of a prediction, below the number of classes. Several for the mean of their losses.
        margin: The margin.
        k_weights: The weight of each of several k in the mean; equal by default.
        **common: ``loss_weight`` and ``loss_name``: see `SetLoss`.

    Example:
        >>> import torch
        >>> HardTopKLoss(k=2)(torch.tensor([[3.0, 2.0, 1.0, 0.0]]), torch.tensor([3]))
        tensor(2.)
    """

    shown = ('margin',)

    def __init__(
        self,
        k: int | Sequence[int] = 5,
        margin: float = 1.0,
        *,
        k_weights: Sequence[float] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(k, margin, k_weights, **common)

    def losses(self, scores: Tensor, target: Tensor, k: int) -> Tensor:
        """Compute the losses [N, P] for one k."""
        return hard_topk_losses(scores, target, k, self.margin)

"""The hard top-k loss as a registered loss."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mmseg_nondecomp.functional.hard_topk_loss import hard_topk_losses
from mmseg_nondecomp.functional.label_losses import Labelled
from mmseg_nondecomp.losses.topk_loss import TopKLoss
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class HardTopKLoss(TopKLoss):
    r"""The label should be among the k highest scores, by a margin: a hinge.

    Only two scores of an item have a gradient, which is why `SmoothTopKLoss` trains better; this is its limit for a
    temperature of 0. See :mod:`mmseg_nondecomp.functional.hard_topk_loss`.

    While MMEngine trains, the share of items whose label is among the k highest scores is logged as
    ``train/<loss_name>_top<k>``.

    Args:
        k: How many labels a prediction has, below the number of classes. Several for the mean of their losses.
        margin: The margin.
        loss_weight: The factor of this loss in the objective.
        loss_name: The key in the log.
        k_weights: What each of several k weighs in the mean; all the same by default.

    Raises:
        TypeError: If an argument is unknown or of a wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> HardTopKLoss(k=2)(torch.tensor([[3.0, 2.0, 1.0, 0.0]]), torch.tensor([3]))
        tensor(2.)

    Reference:
        L. Berrada, A. Zisserman, M. P. Kumar: Smooth loss functions for deep top-k classification. ICLR 2018.
        https://arxiv.org/abs/1802.07595
    """

    def __init__(
        self,
        k: int | Sequence[int] = 5,
        margin: float = 1.0,
        loss_weight: float = 1.0,
        loss_name: str = 'loss_topk',
        k_weights: Sequence[float] | None = None,
        **leaked: Any,
    ) -> None:
        super().__init__(k, margin, loss_weight, loss_name, k_weights, leaked)

    def losses(self, items: Labelled, k: int) -> Tensor:
        """The loss of each item for one k, of shape [N, *]."""
        return hard_topk_losses(items, k, self.margin)

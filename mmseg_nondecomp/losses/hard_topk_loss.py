"""The hard top-k loss as a registered loss."""

from torch import Tensor

from mmseg_nondecomp.functional.topk.hard import hard_topk_losses
from mmseg_nondecomp.losses._topk import TopKLoss
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class HardTopKLoss(TopKLoss):
    r"""The hard top-k loss, a hinge: the label should be among the k highest scores, by a margin.

    Only two scores of an item have a gradient, so `SmoothTopKLoss` trains better; this is its limit for a temperature
    of 0. See :func:`mmseg_nondecomp.functional.hard_topk_loss`.

    The arguments are those of `SmoothTopKLoss` but for the temperature. The same accuracy is logged.

    Example:
        >>> import torch
        >>> HardTopKLoss(k=2)(torch.tensor([[3.0, 2.0, 1.0, 0.0]]), torch.tensor([3]))
        tensor(2.)
    """

    shown = ('margin',)

    def losses(self, scores: Tensor, target: Tensor, k: int) -> Tensor:
        """Compute the losses [N, P] for one k."""
        return hard_topk_losses(scores, target, k, self.margin)

"""The smooth top-k loss as a registered loss."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mmseg_nondecomp.functional.label_losses import Labelled
from mmseg_nondecomp.functional.smooth_topk_loss import smooth_topk_losses
from mmseg_nondecomp.functional.topk_settings import check_temperature
from mmseg_nondecomp.losses.topk_loss import TopKLoss
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class SmoothTopKLoss(TopKLoss):
    r"""The label should be among the k highest scores, by a margin: smoothed over all sets of k labels.

    It forgives confusions within the k, and so is harder to mislead by wrong labels than cross-entropy. The temperature
    matters more than anything: the best was between 0.01 and 10 on the data sets of the paper. With k = 1, ``tau=1``
    and ``margin=0`` it is cross-entropy. See :mod:`mmseg_nondecomp.functional.smooth_topk_loss`.

    While MMEngine trains, the share of items whose label is among the k highest scores is logged as
    ``train/<loss_name>_top<k>``.

    Args:
        k: How many labels a prediction has, below the number of classes. Several for the mean of their losses.
        tau: The temperature.
        margin: The margin.
        loss_weight: The factor of this loss in the objective.
        loss_name: The key in the log.
        k_weights: What each of several k weighs in the mean; all the same by default.

    Raises:
        TypeError: If an argument is unknown or of a wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> scores = torch.zeros(2, 10, requires_grad=True)
        >>> SmoothTopKLoss(k=5)(scores, torch.tensor([0, 1]))
        tensor(1.3133, grad_fn=<MulBackward0>)

        In an MMPretrain config, with ``custom_imports = dict(imports=['mmseg_nondecomp'])``::

            model = dict(head=dict(loss=dict(_delete_=True, type='SmoothTopKLoss', k=5, tau=1.0)))

    Reference:
        L. Berrada, A. Zisserman, M. P. Kumar: Smooth loss functions for deep top-k classification. ICLR 2018.
        https://arxiv.org/abs/1802.07595
    """

    def __init__(
        self,
        k: int | Sequence[int] = 5,
        tau: float = 1.0,
        margin: float = 1.0,
        loss_weight: float = 1.0,
        loss_name: str = 'loss_topk',
        k_weights: Sequence[float] | None = None,
        **leaked: Any,
    ) -> None:
        super().__init__(k, margin, loss_weight, loss_name, k_weights, leaked)
        check_temperature(tau)
        self.tau = tau

    def losses(self, items: Labelled, k: int) -> Tensor:
        """The loss of each item for one k, of shape [N, *]."""
        return smooth_topk_losses(items, k, self.tau, self.margin)

    def extra_repr(self) -> str:
        """The settings, as ``print(model)`` shows them."""
        return f'{super().extra_repr()}, tau={self.tau}'

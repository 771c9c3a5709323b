"""The smooth top-k loss as a registered loss."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mmseg_nondecomp.functional.topk.smooth import check_temperature, smooth_topk_losses
from mmseg_nondecomp.losses._topk import TopKLoss
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class SmoothTopKLoss(TopKLoss):
    r"""The smooth top-k loss: the label should be among the k highest scores, by a margin.

    It is smoothed over all sets of k labels. Confusions within the k cost little, so wrong labels mislead it less than
    cross-entropy, which it is with k = 1, ``tau=1`` and ``margin=0``. The temperature matters most: the best one was
    between 0.01 and 10 on the data sets of the paper. See :func:`mmseg_nondecomp.functional.smooth_topk_loss`.

    While MMEngine trains, the fraction of items whose label is among the k highest scores is logged as
    ``train/<loss_name>_top<k>``.

    Args:
        k: The number of labels of a prediction, below the number of classes. Several for the mean of their losses.
        tau: The temperature.
        margin: The margin.
        k_weights: The weight of each of several k in the mean; equal by default.
        class_weight: A factor for each class in the mean over items, as in `torch.nn.CrossEntropyLoss`.
        **common: ``ignore_index``, ``loss_weight`` and ``loss_name``: see `SetLoss`.

    Example:
        >>> import torch
        >>> scores = torch.zeros(2, 10, requires_grad=True)
        >>> SmoothTopKLoss(k=5)(scores, torch.tensor([0, 1]))
        tensor(1.3133, grad_fn=<MulBackward0>)

        In an MMPretrain config, with ``custom_imports = dict(imports=['mmseg_nondecomp'])``::

            model = dict(head=dict(loss=dict(_delete_=True, type='SmoothTopKLoss', k=5, tau=1.0)))
    """

    shown = ('margin', 'tau')

    def __init__(
        self,
        k: int | Sequence[int] = 5,
        tau: float = 1.0,
        margin: float = 1.0,
        *,
        k_weights: Sequence[float] | None = None,
        class_weight: Sequence[float] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(k, margin, k_weights=k_weights, class_weight=class_weight, **common)
        check_temperature(tau)
        self.tau = tau

    def losses(self, scores: Tensor, target: Tensor, k: int) -> Tensor:
        """Compute the losses [N, P] for one k."""
        return smooth_topk_losses(scores, target, k, self.tau, self.margin)

"""What the top-k losses share as registered losses."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional.label_losses import Labelled, label_loss
from mmseg_nondecomp.functional.topk_settings import check_k_weights, check_margin
from mmseg_nondecomp.losses.base import SetLoss
from mmseg_nondecomp.losses.monitor import is_logged, log_scalar


class TopKLoss(SetLoss):
    """A loss of whether the label is among the k highest scores.

    With several k it is the mean of their losses, by the weights ``k_weights``.

    While MMEngine trains, the share of items for which it is, is logged as ``train/<loss_name>_top<k>``.
    """

    def __init__(
        self,
        k: int | Sequence[int],
        margin: float,
        loss_weight: float,
        loss_name: str,
        k_weights: Sequence[float] | None,
        leaked: dict[str, Any],
    ) -> None:
        super().__init__(loss_weight, loss_name, 'batch', leaked)
        ks = k if isinstance(k, Sequence) else (k,)
        weights = [1.0] * len(ks) if k_weights is None else k_weights
        check_k_weights(ks, weights)
        check_margin(margin)
        self.k = k
        self.shares = {k: weight / sum(weights) for k, weight in zip(ks, weights, strict=True)}
        self.margin = margin

    def value(
        self, pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, reduction: str, **_: Any
    ) -> Tensor:
        """Compute the mean of the losses of the items, their sum, or the losses."""
        return label_loss(self.all_losses, pred, target, weight, ignore_index, reduction, 'pred')

    def all_losses(self, items: Labelled) -> Tensor:
        """The loss of each item, over all k, of shape [N, *]."""
        if is_logged():
            self.log_accuracies(items)
        losses = (
            share * self.losses(items, k) if share != 1 else self.losses(items, k) for k, share in self.shares.items()
        )
        return reduce(torch.add, losses)

    def losses(self, items: Labelled, k: int) -> Tensor:
        """The loss of each item for one k, of shape [N, *]."""
        raise NotImplementedError

    def log_accuracies(self, items: Labelled) -> None:
        """Log the share of items with fewer than k scores above that of the label, for each k."""
        scores = items.scores.detach()
        target = items.target.argmax(-1) if items.target.is_floating_point() else items.target
        higher = (scores > scores.gather(-1, target.unsqueeze(-1))).sum(-1)
        for k in self.shares:
            hits = ((higher < k) & items.valid).sum() / items.valid.sum().clamp(min=1)
            log_scalar(f'{self.loss_name}_top{k}', hits)

    def extra_repr(self) -> str:
        """The settings, as ``print(model)`` shows them."""
        weights = f', k_weights={tuple(self.shares.values())}' if len(self.shares) > 1 else ''
        return f'k={self.k}{weights}, margin={self.margin}'

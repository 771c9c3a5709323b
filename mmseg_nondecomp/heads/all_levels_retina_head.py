"""RetinaNet head with one loss for the anchors of all levels. Importing it needs MMDetection."""

from typing import Any

import torch
from mmdet.models.dense_heads import RetinaHead
from torch import Tensor, nn

from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class AllLevelsRetinaHead(RetinaHead):
    """MMDetection's ``RetinaHead`` for a classification loss of a set, such as ``DirectAPLoss``.

    The stock anchor heads call the loss once for each level of the feature pyramid: a ranking would have the anchors of
    one level. Here it is one call with the anchors of all levels and images. The box loss is not changed.

    Example:
        In an MMDetection config::

            custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.heads'])
            model = dict(
                bbox_head=dict(
                    type='AllLevelsRetinaHead',
                    loss_cls=dict(_delete_=True, type='DirectAPLoss', use_sigmoid=True)))
    """

    loss_cls: nn.Module

    def loss_by_feat(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Compute the losses of a batch; that of the classes is one number."""
        collector = _Collector()
        loss, self.loss_cls = self.loss_cls, collector
        try:
            losses = super().loss_by_feat(*args, **kwargs)
        finally:
            self.loss_cls = loss
        scores, labels, weights = (
            torch.cat(parts) for parts in zip(*(call[:3] for call in collector.calls), strict=True)
        )
        losses['loss_cls'] = self.loss_cls(scores, labels, weights, avg_factor=collector.calls[0][3])
        return losses


class _Collector(nn.Module):
    """Replacement of a loss that records its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Tensor, Tensor, Tensor, Any]] = []

    def forward(self, scores: Tensor, labels: Tensor, weights: Tensor, avg_factor: Any) -> Tensor:
        self.calls.append((scores, labels, weights, avg_factor))
        return scores.new_zeros(())

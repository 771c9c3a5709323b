"""A RetinaNet head that gives the anchors of all levels to its loss at once. Importing it needs MMDetection."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from mmdet.models.dense_heads import RetinaHead
from torch import Tensor, nn

from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class AllLevelsRetinaHead(RetinaHead):
    """MMDetection's ``RetinaHead`` for a classification loss of a set, such as ``DirectAPLoss``.

    The stock anchor heads call the loss once for each level of the feature pyramid, so that a ranking would be one of
    the anchors of a level alone. Here it is one call with the anchors of all levels and images. The box loss is as it
    is there.

    Example:
        In an MMDetection config::

            custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.heads'])
            model = dict(
                bbox_head=dict(
                    type='AllLevelsRetinaHead',
                    loss_cls=dict(_delete_=True, type='DirectAPLoss', use_sigmoid=True)))
    """

    def loss_by_feat(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The losses of a batch, the one of the classes being one number."""
        with _collected_calls(self) as calls:
            losses = super().loss_by_feat(*args, **kwargs)
        scores, labels, weights = (torch.cat(parts) for parts in zip(*(call[:3] for call in calls), strict=True))
        losses['loss_cls'] = self.loss_cls(scores, labels, weights, avg_factor=calls[0][3])
        return losses


class _Collector(nn.Module):
    """Stands in for a loss, and keeps what it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Tensor, Tensor, Tensor, Any]] = []

    def forward(self, scores: Tensor, labels: Tensor, weights: Tensor, avg_factor: Any) -> Tensor:
        self.calls.append((scores, labels, weights, avg_factor))
        return scores.new_zeros(())


@contextmanager
def _collected_calls(head: nn.Module) -> Iterator[list[tuple[Tensor, Tensor, Tensor, Any]]]:
    """The calls of the head's classification loss, which are not made."""
    loss, collector = head.loss_cls, _Collector()
    head.loss_cls = collector
    try:
        yield collector.calls
    finally:
        head.loss_cls = loss

"""Predictions and ground truth of a few images, in the form that metrics take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.evaluation.need import Need
from mmseg_nondecomp.evaluation.scores import Scores


@dataclass(frozen=True)
class Batch:
    """What `metric.update` is called with, for each need; tensors or lists with one entry an image."""

    inputs: dict[Need, tuple[Any, Any]]
    size: int

    def first(self, n: int) -> Batch:
        """The first images; of boxes, of which an image has any number, there is one image in a batch."""
        if n == self.size:
            return self
        return Batch({need: (preds[:n], target[:n]) for need, (preds, target) in self.inputs.items()}, n)


def batch_of_classes(needs: set[Need], labels: Tensor, scores: Scores | None, target: Tensor) -> Batch:
    """A batch of decided classes [N, *], scores [N, C, *] (None if none needs them) and true classes [N, *].

    Raises:
        ValueError: If there are no scores, but a need of them.
    """
    if scores is None:
        check_labels_suffice(needs)
        return Batch(dict.fromkeys(needs, (labels, target)), len(target))
    return Batch(
        {need: (labels if need.kind == 'labels' else scores.of(need.kind, need.form), target) for need in needs},
        len(target),
    )


def check_labels_suffice(needs: set[Need]) -> None:
    """Raise ValueError if decided classes are not enough."""
    if needs_scores(needs):
        raise ValueError(
            'The metrics need scores, but the data samples hold none: they have the decided classes alone, such as '
            '`pred_label` without `pred_score`.'
        )


def needs_scores(needs: set[Need]) -> bool:
    """Whether decided classes are not enough."""
    return any(need.kind != 'labels' or need.form == 'multilabel' for need in needs)


def stacked(parts: list[Tensor]) -> Tensor:
    """Tensors of one shape along a new dimension; a view of a single one."""
    return parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)

"""Predictions and ground truth of some images, in the form that metrics take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mmseg_nondecomp.evaluation._input_spec import InputSpec
from mmseg_nondecomp.evaluation._scores import Scores


@dataclass(frozen=True)
class Batch:
    """The arguments of `metric.update` for each input specification: tensors or lists with one entry an image."""

    inputs: dict[InputSpec, tuple[Any, Any]]
    size: int

    def first(self, n: int) -> Batch:
        """Return the first images. A batch of boxes, of which an image has any number, has one image."""
        if n == self.size:
            return self
        return Batch({spec: (preds[:n], target[:n]) for spec, (preds, target) in self.inputs.items()}, n)


def batch_of_classes(specs: set[InputSpec], labels: Tensor, scores: Scores | None, target: Tensor) -> Batch:
    """Return a batch of decided classes [N, *], scores [N, C, *] (None if none are needed) and true classes [N, *]."""
    if scores is None:
        check_labels_suffice(specs)
        return Batch(dict.fromkeys(specs, (labels, target)), len(target))
    return Batch(
        {spec: (labels if spec.kind == 'labels' else scores.of(spec.kind, spec.form), target) for spec in specs},
        len(target),
    )


def check_labels_suffice(specs: set[InputSpec]) -> None:
    """Raise ValueError if decided classes are not enough."""
    if needs_scores(specs):
        raise ValueError(
            'The metrics need scores, but the data samples hold none: they have the decided classes alone, such as '
            '`pred_label` without `pred_score`.'
        )


def needs_scores(specs: set[InputSpec]) -> bool:
    """Return whether decided classes are not enough."""
    return any(spec.kind != 'labels' or spec.form == 'multilabel' for spec in specs)

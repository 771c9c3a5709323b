"""Predictions and ground truth of some images, in the form that metrics take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.evaluation._input_spec import InputSpec


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


class Scores:
    """Scores [N, C, *] of a model, converted to probabilities or logits on request.

    With one channel they are the scores of class 1 of two.
    """

    def __init__(self, values: Tensor, are_probabilities: bool) -> None:
        self.values = values.to(torch.promote_types(values.dtype, torch.float32))
        self.are_probabilities = are_probabilities

    def of(self, kind: str, form: str) -> Tensor:
        """Return probabilities (``'scores'``) or logits, in one of the forms of `InputSpec`."""
        values = self._probabilities() if kind == 'scores' else self._logits()
        n_channels = values.shape[1]
        if form in ('classes', 'multilabel'):
            if n_channels > 1 or form == 'multilabel':
                return values
            other = 1 - values if kind == 'scores' else torch.zeros_like(values)
            return torch.cat([other, values], 1)
        if n_channels > 2:
            raise ValueError(f'A metric of two classes needs scores with 1 or 2 channels. Found {n_channels}.')
        if n_channels == 2:
            values = values[:, 1:] if kind == 'scores' else values[:, 1:] - values[:, :1]
        return values if form == 'channel' else values.squeeze(1)

    def _probabilities(self) -> Tensor:
        if self.are_probabilities:
            return self.values
        return self.values.sigmoid() if self.values.shape[1] == 1 else self.values.softmax(1)

    def _logits(self) -> Tensor:
        if not self.are_probabilities:
            return self.values
        least = torch.finfo(self.values.dtype).tiny
        log = self.values.clamp(min=least).log()
        # The logits of several classes are known up to a constant, which softmax ignores.
        return log - (1 - self.values).clamp(min=least).log() if self.values.shape[1] == 1 else log


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

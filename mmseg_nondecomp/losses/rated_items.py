"""Items as an S-measure rates them: positives and negatives of each query, and what they add up to."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional.items import class_items, valid_items
from mmseg_nondecomp.functional.margin_penalty import SURROGATES, margin_penalty, margin_slope
from mmseg_nondecomp.functional.score_histogram import areas_under_roc, average_precisions, count_scores

BINS = 4096
"""Cells of the scores from which the area that is logged is counted."""


class Sums(NamedTuple):
    """Sums over the items of each query at each operating point, of shape [Q, K]."""

    n_pos: Tensor
    n_neg: Tensor
    tp: Tensor
    fp: Tensor
    penalty_pos: Tensor
    penalty_neg: Tensor
    slope_pos: Tensor
    slope_neg: Tensor
    turn_pos: Tensor
    """The scores of the positives times the slopes of their penalties."""
    turn_neg: Tensor


class RatedItems(NamedTuple):
    """The items of Q queries, of shape [Q, n]."""

    scores: Tensor
    positive: Tensor
    """How much an item counts as a positive of the query."""
    negative: Tensor
    """How much it counts as a negative."""

    def above(self, threshold: Tensor) -> RatedItems:
        """The same with a threshold of each query, [Q, 1], taken off the scores."""
        return self._replace(scores=self.scores - threshold)

    def counts(self) -> Tensor:
        """The number of positives and of negatives, float64 of shape [Q, 2]."""
        return torch.stack([self.positive.sum(1, dtype=torch.float64), self.negative.sum(1, dtype=torch.float64)], 1)

    def penalties(self, of_positives: bool, epsilon: Tensor, surrogate: str) -> Tensor:
        """How far each item is from the margin on its side, if it were a positive, or a negative."""
        return margin_penalty(-self.scores if of_positives else self.scores, epsilon, surrogate)

    def sum_positive(self, values: Tensor) -> Tensor:
        """The sum over the positives; what the others have is not looked at."""
        return torch.where(self.positive > 0, values * self.positive, 0).sum(1)

    def sum_negative(self, values: Tensor) -> Tensor:
        """The sum over the negatives."""
        return torch.where(self.negative > 0, values * self.negative, 0).sum(1)

    def sums(self, epsilon: Tensor, threshold: Tensor, surrogate: str, with_bounds: bool) -> Tensor:
        """What is counted at margins and thresholds [Q, K]: `Sums` as one tensor, float64 of shape [Q, K, 10]."""
        n_pos, n_neg = self.counts().unbind(1)
        points = []
        for k in range(epsilon.shape[1]):
            margin = epsilon[:, k : k + 1].to(self.scores.dtype)
            items = self.above(threshold[:, k : k + 1].to(self.scores.dtype))
            taken = items.scores > 0
            numbers = [n_pos, n_neg, self.sum_positive(taken), self.sum_negative(taken)]
            if with_bounds:
                slope_pos, slope_neg = (
                    margin_slope(score, margin, surrogate) for score in (-items.scores, items.scores)
                )
                numbers += [
                    self.sum_positive(items.penalties(True, margin, surrogate)),
                    self.sum_negative(items.penalties(False, margin, surrogate)),
                    self.sum_positive(slope_pos),
                    self.sum_negative(slope_neg),
                    self.sum_positive(slope_pos * items.scores),
                    self.sum_negative(slope_neg * items.scores),
                ]
            else:
                numbers += [torch.zeros_like(n_pos)] * 6
            points.append(torch.stack([number.double() for number in numbers], 1))
        return torch.stack(points, 1)

    def measures(self, measure: str, beta: float, sums: Sums) -> dict[str, Tensor]:
        """The true measure of each query by its name in the log, of shape [Q]."""
        if measure in ('auc_roc', 'auc_pr'):
            valid = self.positive + self.negative > 0
            counts = count_scores(self.scores.float(), self.positive > 0, valid, BINS)
            return {measure: areas_under_roc(counts) if measure == 'auc_roc' else average_precisions(counts)}
        tp, found, n_pos = sums.tp[:, 0], (sums.tp + sums.fp)[:, 0], sums.n_pos[:, 0]
        if measure == 'f_beta':
            return {'f_beta': (1 + beta**2) * tp / (beta**2 * n_pos + found).clamp(min=1e-6)}
        return {'precision': tp / found.clamp(min=1e-6), 'recall': tp / n_pos.clamp(min=1e-6)}


def rated_items(
    pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, zero_is_class: bool
) -> RatedItems:
    """What a call holds: each class of it as one query, or two channels as one decision.

    Raises:
        TypeError: If a dtype does not fit.
        ValueError: If a shape does not fit, or a label is no class.
    """
    n_classes = pred.shape[1] if pred.dim() > 1 else 0
    if n_classes == 2 and target.shape != pred.shape and pred.is_floating_point():
        of_zero, of_one = (pred.float() if pred.element_size() < 4 else pred).split(1, 1)
        pred, n_classes = of_one - of_zero, 1
    valid = valid_items(pred, target, weight, ignore_index, n_classes + 1)
    scores, labels, mass = class_items(pred, target, valid, weight, zero_is_class)
    if not labels.is_floating_point():
        labels = labels.unsqueeze(1) == torch.arange(n_classes, device=pred.device).view(1, -1, 1)
    mass = mass.unsqueeze(1).to(scores.dtype)
    positive = mass * labels
    return RatedItems(*(part.transpose(0, 1).flatten(1) for part in (scores, positive, mass - positive)))


def check_surrogate(surrogate: str) -> None:
    """Raise ValueError unless the bound is known."""
    if surrogate not in SURROGATES:
        raise ValueError(f'Parameter `surrogate` should be one of {SURROGATES}. Found {surrogate!r}.')

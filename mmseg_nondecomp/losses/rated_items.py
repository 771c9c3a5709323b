"""Items as an S-measure rates them: positives and negatives of each query, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional.items import class_items, number_of_classes, one_of_two, valid_items
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
    """The items of Q queries in N images, of shape [N, Q, P]; items without a position are those of one image."""

    scores: Tensor
    positive: Tensor
    """Whether an item is a positive of the query, or how much it counts as one."""
    negative: Tensor
    """Whether it is a negative, or how much it counts as one."""

    @property
    def is_counted(self) -> bool:
        """Whether each item is a positive, a negative or neither, with no shares and weights."""
        return self.positive.dtype == torch.bool

    def above(self, threshold: Tensor) -> RatedItems:
        """The same with a threshold of each query, [Q, 1], taken off the scores."""
        return self._replace(scores=self.scores - threshold)

    def counts(self) -> Tensor:
        """The number of positives and of negatives, float64 of shape [Q, 2]."""
        return torch.stack([self.amount(self.positive), self.amount(self.negative)], 1)

    def taken(self) -> Tensor:
        """The number of positives and of negatives with a score above 0, float64 of shape [Q, 2]."""
        found = self.scores > 0
        if self.is_counted:
            return torch.stack([self.amount(self.positive & found), self.amount(self.negative & found)], 1)
        return torch.stack([self.amount(self.positive * found), self.amount(self.negative * found)], 1)

    def no_number(self) -> Tensor:
        """NaN for a query with an item whose score is NaN, and 0 for others, of shape [Q]."""
        found = self.scores.isnan() & ((self.positive > 0) | (self.negative > 0))
        return torch.where(found.any(2).any(0), torch.nan, 0.0).double()

    def amount(self, items: Tensor) -> Tensor:
        """How many of the items, or how much of them, there is in each query, float64."""
        return items.count_nonzero((0, 2)).double() if self.is_counted else items.sum((0, 2), dtype=torch.float64)

    def penalty(self, w_pos: Tensor, w_neg: Tensor, epsilon: Tensor, surrogate: str) -> Tensor:
        """The sum of the penalties of each query; weights and margins are of shape [Q, 1]."""
        if self.is_counted:
            # Each item has one side. What is neither lies infinitely far on the right one.
            side = torch.where(self.positive, -self.scores, self.scores)
            side = side.masked_fill_(~(self.positive | self.negative), -torch.inf)
            weights = torch.where(self.positive, w_pos, w_neg)
            return (margin_penalty(side, epsilon, surrogate) * weights).sum((0, 2))
        of_positives, of_negatives = (margin_penalty(side, epsilon, surrogate) for side in (-self.scores, self.scores))
        return self.sum_positive(w_pos * of_positives) + self.sum_negative(w_neg * of_negatives)

    def sum_positive(self, values: Tensor) -> Tensor:
        """The sum over the positives, of shape [Q]; what the others have is not looked at."""
        return torch.where(self.positive > 0, values * self.positive, 0).sum((0, 2))

    def sum_negative(self, values: Tensor) -> Tensor:
        """The sum over the negatives, of shape [Q]."""
        return torch.where(self.negative > 0, values * self.negative, 0).sum((0, 2))

    def sums(self, epsilon: Tensor, threshold: Tensor, surrogate: str, with_bounds: bool) -> Tensor:
        """What is counted at margins and thresholds [Q, K]: `Sums` as one tensor, float64 of shape [Q, K, 10]."""
        counts, no_number = self.counts(), self.no_number().unsqueeze(1)
        points = []
        for k in range(epsilon.shape[1]):
            margin = epsilon[:, k : k + 1].to(self.scores.dtype)
            items = self.above(threshold[:, k : k + 1].to(self.scores.dtype))
            numbers = [counts, items.taken() + no_number]
            bounds = items.bounds(margin, surrogate) if with_bounds else ()
            numbers += [torch.stack([items.sum_positive(p), items.sum_negative(n)], 1).double() for p, n in bounds]
            if not with_bounds:
                numbers.append(counts.new_zeros(len(counts), 6))
            points.append(torch.cat(numbers, 1))
        return torch.stack(points, 1)

    def bounds(self, epsilon: Tensor, surrogate: str) -> Iterator[tuple[Tensor, Tensor]]:
        """As positives and as negatives, item by item: penalties, their slopes, and scores times slopes."""
        sides = -self.scores, self.scores
        yield tuple(margin_penalty(side, epsilon, surrogate) for side in sides)  # type: ignore[misc]
        slopes = tuple(margin_slope(side, epsilon, surrogate) for side in sides)
        yield slopes  # type: ignore[misc]
        yield tuple(slope * self.scores for slope in slopes)  # type: ignore[misc]

    def measures(self, measure: str, beta: float, sums: Sums) -> dict[str, Tensor]:
        """The true measure of each query by its name in the log, of shape [Q]."""
        if measure in ('auc_roc', 'auc_pr'):
            valid = (self.positive > 0) | (self.negative > 0)
            scores, positive, valid = (
                part.transpose(0, 1).flatten(1) for part in (self.scores.float(), self.positive > 0, valid)
            )
            counts = count_scores(scores, positive, valid, BINS)
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
    pred = one_of_two(pred, target)
    n_classes = number_of_classes(pred)
    valid = valid_items(pred, target, weight, ignore_index, n_classes + 1)
    scores, labels, mass = class_items(pred, target, valid, weight, zero_is_class)
    if not labels.is_floating_point():
        labels = labels.unsqueeze(1) == torch.arange(n_classes, device=pred.device).view(1, -1, 1)
    counted = weight is None and labels.dtype == torch.bool
    mass = (mass > 0 if counted else mass.to(scores.dtype)).unsqueeze(1)
    positive = mass & labels if counted else mass * labels
    negative = mass & ~labels if counted else mass - positive
    return RatedItems(scores, positive, negative)


def check_surrogate(surrogate: str) -> None:
    """Raise ValueError unless the bound is known."""
    if surrogate not in SURROGATES:
        raise ValueError(f'Parameter `surrogate` should be one of {SURROGATES}. Found {surrogate!r}.')

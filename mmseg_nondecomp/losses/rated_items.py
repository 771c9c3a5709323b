"""Items as an S-measure rates them: positives and negatives of each query, and what they add up to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional._averaging import areas_under_roc, average_precisions, count_scores
from mmseg_nondecomp.functional.items import class_items, number_of_classes, one_of_two, valid_items
from mmseg_nondecomp.functional.label_scores import label_scores
from mmseg_nondecomp.functional.margin_penalty import SCALE, SURROGATES, unit_penalty, unit_slope

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


@dataclass
class RatedItems:
    """The items of Q queries in N images; items without a position are those of one image."""

    scores: Tensor
    """Of shape [N, Q, P]."""

    def sums(
        self, epsilon: Tensor, threshold: Tensor | None, surrogate: str, with_bounds: bool
    ) -> tuple[Tensor, Tensor]:
        """Sum the penalties of the items, and count the items.

        Args:
            epsilon: The margins, of shape [Q, K].
            threshold: What is subtracted from the scores, of shape [Q, K]; nothing if omitted.
            surrogate: ``'hinge'`` or ``'logistic'``.
            with_bounds: Whether `Sums` has the penalties and their slopes; otherwise they are 0.

        Returns:
            The penalties of positives and of negatives, of shape [Q, K, 2], which have a gradient, and `Sums` as one
            tensor, of shape [Q, K, 10], which has none; both float64.
        """
        points = []
        for k in range(epsilon.shape[1]):
            margin, scores = epsilon[:, k : k + 1], self.scores
            if threshold is not None:
                scores = scores - threshold[:, k : k + 1].to(scores.dtype)
            own, others = self.sides(scores / margin.to(scores.dtype))
            penalties = self.totals(unit_penalty(-own, surrogate), unit_penalty(others, surrogate))
            penalties = penalties * (SCALE[surrogate] * margin)
            with torch.no_grad():
                counts = self.counts(own > 0, others > 0)
                # Whether a score that is NaN is above 0 is unknown.
                counts[:, 2:].masked_fill_(penalties.isnan(), torch.nan)
                if with_bounds:
                    counts = torch.cat([counts, penalties, self._slopes(own, others, margin, surrogate)], 1)
            points.append((penalties, F.pad(counts, (0, len(Sums._fields) - counts.shape[1]))))
        return torch.stack([penalties for penalties, _ in points], 1), torch.stack([sums for _, sums in points], 1)

    def _slopes(self, own: Tensor, others: Tensor, margin: Tensor, surrogate: str) -> Tensor:
        """Return the sums of slopes, and of scores times slopes, of scores in units of the margin; of shape [Q, 4]."""
        slopes = unit_slope(-own, surrogate), unit_slope(others, surrogate)
        turns = (torch.where(slope > 0, slope * z, 0) for slope, z in zip(slopes, (own, others), strict=True))
        return SCALE[surrogate] * torch.cat([self.totals(*slopes), self.totals(*turns) * margin], 1)

    def amounts(self) -> tuple[Tensor, Tensor]:
        """Return whether, or how much, an item counts as a positive and as a negative, of shape [N, Q, P]."""
        raise NotImplementedError

    def sides(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of positives, with infinity for other items, and of negatives, with minus infinity."""
        raise NotImplementedError

    def counts(self, own: Tensor, others: Tensor) -> Tensor:
        """Count positives and negatives, and those of both that are True: float64 of shape [Q, 4]."""
        raise NotImplementedError

    def totals(self, own: Tensor, others: Tensor) -> Tensor:
        """Sum values of positives and of negatives, of the shapes of `sides`: float64 of shape [Q, 2]."""
        raise NotImplementedError

    def measures(self, measure: str, beta: float, sums: Sums) -> dict[str, Tensor]:
        """The true measure of each query by its name in the log, of shape [Q]."""
        if measure in ('auc_roc', 'auc_pr'):
            is_positive, is_negative = (part > 0 for part in self.amounts())
            scores, positive, valid = (
                part.transpose(0, 1).flatten(1)
                for part in (self.scores.float(), is_positive, is_positive | is_negative)
            )
            counts = count_scores(scores, positive, valid, BINS)
            return {measure: areas_under_roc(counts) if measure == 'auc_roc' else average_precisions(counts)}
        tp, found, n_pos = sums.tp[:, 0], (sums.tp + sums.fp)[:, 0], sums.n_pos[:, 0]
        if measure == 'f_beta':
            return {'f_beta': (1 + beta**2) * tp / (beta**2 * n_pos + found).clamp(min=1e-6)}
        return {'precision': tp / found.clamp(min=1e-6), 'recall': tp / n_pos.clamp(min=1e-6)}


@dataclass
class LabelledItems(RatedItems):
    """Items with one label each: a positive of one query, or of none, and a negative of all others."""

    target: Tensor
    """The query of which an item is a positive, int64 of shape [N, P]; Q for none."""
    mass: Tensor
    """Whether an item counts, int32 of shape [N, P]."""
    own: Tensor
    """Whether an item has the label of the query, bool of shape [N, Q, P]."""

    def amounts(self) -> tuple[Tensor, Tensor]:
        """Return whether, or how much, an item counts as a positive and as a negative."""
        valid = (self.mass > 0).unsqueeze(1)
        return self.own & valid, ~self.own & valid

    def sides(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of positives and of negatives."""
        ignored = (self.mass == 0).unsqueeze(1)
        label = self.target.clamp(max=scores.shape[1] - 1).unsqueeze(1)
        others, own = label_scores(scores, label, self.own | ignored, -torch.inf)
        return own.masked_fill(ignored, torch.inf), others

    def counts(self, own: Tensor, others: Tensor) -> Tensor:
        """Count positives and negatives, and those that are True."""
        n_queries = others.shape[1]
        cell = torch.add(own.squeeze(1), self.target, alpha=2).flatten()
        found = self.mass.new_zeros(2 * n_queries + 2).scatter_add(0, cell, self.mass.flatten()).view(-1, 2)[:-1]
        n_pos = found.sum(1)
        n_neg = self.mass.sum() - n_pos
        # int32: more items would not fit in memory.
        return torch.stack([n_pos, n_neg, found[:, 1], others.sum((0, 2), dtype=torch.int32)], 1).double()

    def totals(self, own: Tensor, others: Tensor) -> Tensor:
        """Sum values of positives and of negatives."""
        nothing = own.new_zeros(others.shape[1] + 1, dtype=torch.float64)
        of_label = nothing.scatter_add(0, self.target.flatten(), own.flatten().double())[:-1]
        return torch.stack([of_label, others.sum((0, 2)).double()], 1)


@dataclass
class WeightedItems(RatedItems):
    """Items that count as much as their weights say, in part as positives and in part as negatives; or of one query."""

    positive: Tensor
    """How much an item counts as a positive of the query, or whether it is one, of shape [N, Q, P]."""
    negative: Tensor
    """How much it counts as a negative."""

    def amounts(self) -> tuple[Tensor, Tensor]:
        """Return whether, or how much, an item counts as a positive and as a negative."""
        return self.positive, self.negative

    def sides(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of positives and of negatives."""
        return (
            torch.where(self.positive > 0, scores, torch.inf),
            torch.where(self.negative > 0, scores, -torch.inf),
        )

    def counts(self, own: Tensor, others: Tensor) -> Tensor:
        """Count positives and negatives, and those that are True."""
        parts = self.positive, self.negative, own * self.positive, others * self.negative
        dtype = torch.int32 if self.positive.dtype == torch.bool else torch.float64
        return torch.stack([part.sum((0, 2), dtype=dtype) for part in parts], 1).double()

    def totals(self, own: Tensor, others: Tensor) -> Tensor:
        """Sum values of positives and of negatives."""
        if self.positive.dtype != torch.bool:
            own, others = own * self.positive, others * self.negative
        return torch.stack([own.sum((0, 2)), others.sum((0, 2))], 1).double()


def rated_items(
    pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, zero_is_class: bool
) -> RatedItems:
    """Return the items of a call: each class is one query, or two channels are one decision.

    Raises:
        TypeError: If a dtype does not fit.
        ValueError: If a shape does not fit, or a label is no class.
    """
    pred = one_of_two(pred, target)
    n_classes = number_of_classes(pred)
    valid = valid_items(pred, target, weight, ignore_index, n_classes + 1)
    scores, labels, mass = class_items(pred, target, valid, weight, zero_is_class)
    if labels.is_floating_point():
        shares = labels
    else:
        own = labels.unsqueeze(1) == torch.arange(n_classes, device=pred.device).view(1, -1, 1)
        if weight is None:
            items = LabelledItems(scores, labels, mass, own)
            # Gathering the one score there is takes longer than masking all.
            return items if n_classes > 1 else WeightedItems(scores, *items.amounts())
        shares = own.to(scores.dtype)
    positive = mass.to(scores.dtype).unsqueeze(1) * shares
    return WeightedItems(scores, positive, mass.to(scores.dtype).unsqueeze(1) - positive)


def check_surrogate(surrogate: str) -> None:
    """Raise ValueError unless the bound is known."""
    if surrogate not in SURROGATES:
        raise ValueError(f'Parameter `surrogate` should be one of {SURROGATES}. Found {surrogate!r}.')

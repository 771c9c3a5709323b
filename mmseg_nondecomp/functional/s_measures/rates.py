r"""Rates of positives and negatives of one-vs-rest queries: differentiable bounds, counts and true measures.

Both bounds on the step function are positively homogeneous, :math:`\varepsilon\,\phi(z / \varepsilon)` with
:math:`\phi(x) = \max(0, 1 + x)` or :math:`\log_2(1 + e^x)`, as the linear fractional transformation of F_β requires.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional._averaging import areas_under_roc, average_precisions, count_scores
from mmseg_nondecomp.functional._inputs import Inputs, label_scores

SURROGATES = ('hinge', 'logistic')

SCALE = {'hinge': 1.0, 'logistic': 1 / math.log(2)}
"""Factors that `unit_penalty` and `unit_slope` leave out, to multiply sums by them instead of items."""

BINS = 4096  # number of bins of the histogram of scores from which the logged area is computed


def unit_penalty(x: Tensor, surrogate: str) -> Tensor:
    """Return φ of scores in units of the margin, without its factor."""
    # By default softplus returns x from 20 on, with a jump; at 40 the two are the same number.
    return (1 + x).clamp(min=0) if surrogate == 'hinge' else F.softplus(x, threshold=40)


def unit_slope(x: Tensor, surrogate: str) -> Tensor:
    """Return the derivative of `unit_penalty`."""
    return (x > -1).to(x.dtype) if surrogate == 'hinge' else x.sigmoid()


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
    turn_pos: Tensor  # scores of the positives times the slopes of their penalties
    turn_neg: Tensor


@dataclass
class RatedItems:
    """Items of Q queries, in part positives and in part negatives of each."""

    scores: Tensor  # scores of shape [N, Q, P]
    positive: Tensor  # weight of an item as a positive of the query, or whether it is one, of shape [N, Q, P]
    negative: Tensor  # weight as a negative, or whether it is one

    def sums(
        self, epsilon: Tensor, threshold: Tensor | None, surrogate: str, with_bounds: bool
    ) -> tuple[Tensor, Tensor]:
        """Sum the penalties of the items, and count the items, for margins and thresholds [Q, K].

        The penalties of positives and of negatives, [Q, K, 2], have a gradient; `Sums`, as one tensor [Q, K, 10], has
        none. Both are float64. Without ``with_bounds``, the penalties and slopes in `Sums` are 0.
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
                # The sign of a NaN score is unknown.
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

    def sides(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of positives, with infinity for other items, and of negatives, with minus infinity."""
        return torch.where(self.positive > 0, scores, torch.inf), torch.where(self.negative > 0, scores, -torch.inf)

    def counts(self, own: Tensor, others: Tensor) -> Tensor:
        """Count positives and negatives, and those of both that are True: float64 of shape [Q, 4]."""
        parts = self.positive, self.negative, own * self.positive, others * self.negative
        dtype = torch.int32 if self.positive.dtype == torch.bool else torch.float64
        return torch.stack([part.sum((0, 2), dtype=dtype) for part in parts], 1).double()

    def totals(self, own: Tensor, others: Tensor) -> Tensor:
        """Sum values of positives and of negatives, of the shapes of `sides`: float64 of shape [Q, 2]."""
        if self.positive.dtype != torch.bool:
            own, others = own * self.positive, others * self.negative
        return torch.stack([own.sum((0, 2)), others.sum((0, 2))], 1).double()


@dataclass
class LabelledItems(RatedItems):
    """Items with one label each; the side of positives has one query, that of the label, of shape [N, 1, P]."""

    target: Tensor  # query of which an item is a positive, int64 of shape [N, P]; Q for none
    mass: Tensor  # 1 for the items that count, else 0, int32 of shape [N, P]

    def sides(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of positives and of negatives."""
        label = self.target.clamp(max=scores.shape[1] - 1).unsqueeze(1)
        others, own = label_scores(scores, label, ~self.negative, -torch.inf)
        return own.masked_fill((self.mass == 0).unsqueeze(1), torch.inf), others

    def counts(self, own: Tensor, others: Tensor) -> Tensor:
        """Count positives and negatives, and those that are True."""
        cell = torch.add(own.squeeze(1), self.target, alpha=2).flatten()
        cells = self.mass.new_zeros(2 * others.shape[1] + 2)
        of_label = cells.scatter_add(0, cell, self.mass.flatten()).view(-1, 2)[:-1]
        n_pos = of_label.sum(1)
        n_neg = self.mass.sum() - n_pos
        # int32: more items would not fit in memory.
        return torch.stack([n_pos, n_neg, of_label[:, 1], others.sum((0, 2), dtype=torch.int32)], 1).double()

    def totals(self, own: Tensor, others: Tensor) -> Tensor:
        """Sum values of positives and of negatives."""
        zeros = own.new_zeros(others.shape[1] + 1, dtype=torch.float64)
        of_label = zeros.scatter_add(0, self.target.flatten(), own.flatten().double())[:-1]
        return torch.stack([of_label, others.sum((0, 2)).double()], 1)


def rated_items(inputs: Inputs) -> RatedItems:
    """Return the items of a call with each channel as a query."""
    scores, mass, own = inputs.scores, inputs.mass, inputs.one_hot()
    if inputs.weight is None and not inputs.is_soft:
        negative = inputs.valid.unsqueeze(1) > own
        if inputs.n_classes == 1:  # masking all scores is faster than gathering
            return RatedItems(scores, own, negative)
        return LabelledItems(scores, own, negative, inputs.target, mass)
    mass = mass.to(scores.dtype).unsqueeze(1)
    positive = mass * own
    return RatedItems(scores, positive, mass - positive)


def true_measures(items: RatedItems, measure: str, beta: float, sums: Sums) -> dict[str, Tensor]:
    """Return the true measures of each query by their names in the log, of shape [Q]."""
    if measure in ('auc_roc', 'auc_pr'):
        is_positive, is_negative = items.positive > 0, items.negative > 0
        scores, positive, valid = (
            part.transpose(0, 1).flatten(1) for part in (items.scores.float(), is_positive, is_positive | is_negative)
        )
        counts = count_scores(scores, positive, valid, BINS)
        return {measure: areas_under_roc(counts) if measure == 'auc_roc' else average_precisions(counts)}
    tp, predicted, n_pos = sums.tp[:, 0], (sums.tp + sums.fp)[:, 0], sums.n_pos[:, 0]
    if measure == 'f_beta':
        return {'f_beta': (1 + beta**2) * tp / (beta**2 * n_pos + predicted).clamp(min=1e-6)}
    return {'precision': tp / predicted.clamp(min=1e-6), 'recall': tp / n_pos.clamp(min=1e-6)}

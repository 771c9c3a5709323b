r"""One class against the rest: the optimal set is that of the highest probabilities.

At a given size both expected measures grow with the probability of each decided pixel, so one of the sets of the
:math:`\tau` highest is optimal. The expectations of all of them are computed, from sorted probabilities, or from the
counts of a histogram, where the pixels of a bin are decided alike.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from mmseg_nondecomp.functional.decisions._expectations import (
    Goal,
    Sums,
    expected_value,
    log_generating,
    nodes_between,
    value_of_none,
)
from mmseg_nondecomp.functional.lovasz.histogram import ProbabilityBins

BLOCK = 1 << 21  # number of integrands that are evaluated at a time


def decide_one_class(probs: Tensor, goal: Goal, bins: int | None) -> Tensor:
    """Return whether each pixel is decided, bool of shape [R, P], for the probabilities [R, P] of R classes.

    NaN is decided as 0.
    """
    rows = max(1, BLOCK // max(1, probs.shape[1]))
    return torch.cat([_decide(block.nan_to_num(0).clamp_(max=1), goal, bins) for block in probs.split(rows)])


def _decide(probs: Tensor, goal: Goal, bins: int | None) -> Tensor:
    if bins is None:
        ordered, order = probs.double().sort(stable=True, dim=1, descending=True)
        best = best_number(ordered, torch.ones_like(ordered), goal)
        rank = torch.arange(probs.shape[1], device=probs.device).expand_as(order)
        return torch.zeros_like(probs, dtype=torch.bool).scatter_(1, order, rank < best)
    binning = ProbabilityBins(bins)
    place = binning.of(probs)
    counts = torch.zeros(len(probs), binning.number, dtype=torch.int32, device=probs.device)
    counts.scatter_add_(1, place.long(), torch.ones_like(place))
    centres = binning.centres(probs.device).flip(0).expand_as(counts)
    return place >= binning.number - best_number(centres, counts.flip(1).double(), goal)


def best_number(probs: Tensor, counts: Tensor, goal: Goal) -> Tensor:
    """Return how many groups of pixels, in descending order of probability, are decided, int64 of shape [R, 1].

    ``probs`` and ``counts``, float64 of shape [R, T], are the probability and the number of the pixels of each group.
    """
    hits, spread = probs * counts, probs * (1 - probs) * counts
    size = counts.cumsum(1)
    sums = Sums(size, hits.cumsum(1), spread.cumsum(1), hits.sum(1, keepdim=True), spread.sum(1, keepdim=True))
    if goal.expectation == 'exact':
        values = torch.cat([_exact_values(probs[r], counts[r], sums.part(r), goal) for r in _rows(probs)])
    else:
        values = expected_value(sums, goal).value
    values = torch.where(size > 0, values, 0)
    return torch.cat([value_of_none(probs, counts, goal), values], 1).argmax(1, keepdim=True)


def _rows(probs: Tensor) -> Iterator[slice]:
    """Split the rows into blocks."""
    step = max(1, BLOCK // (64 * max(1, probs.shape[1])))
    return (slice(start, start + step) for start in range(0, len(probs), step))


def _exact_values(probs: Tensor, counts: Tensor, sums: Sums, goal: Goal) -> Tensor:
    """Return the expected measure of the first 1, ..., T groups, of shape [R, T]."""
    nodes = nodes_between(1.0, float(sums.size.max()) + 1 if sums.size.numel() else 1.0, probs)
    columns = torch.arange(probs.shape[1]).split(max(1, BLOCK // (len(nodes.s) * max(1, len(probs)))))
    pairs = [(probs[:, c[0] : c[-1] + 1], counts[:, c[0] : c[-1] + 1].unsqueeze(2)) for c in columns]
    total = sum((log_generating(p, nodes) * n).sum(1, keepdim=True) for p, n in pairs)
    before, values = torch.zeros_like(nodes.s), []
    for (p, n), c in zip(pairs, columns, strict=True):
        size, hits = (part[:, c[0] : c[-1] + 1].unsqueeze(2) for part in (sums.size, sums.hits))
        if goal.measure == 'iou':
            of_decided = before + (log_generating(p, nodes) * n).cumsum(1)
            integrand = hits * (total - of_decided - size * nodes.s).exp()
        else:
            of_decided = before + (nodes.density(p) * n).cumsum(1)
            integrand = 2 * of_decided * (total - (size + 1) * nodes.s).exp()
        before = of_decided[:, -1:]
        values.append(integrand @ nodes.weight)
    return torch.cat(values, 1)

"""Sets of items that are ranked, and how processes put theirs together."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from mmseg_nondecomp.functional.score_histogram import count_scores, score_cells
from mmseg_nondecomp.losses.scope import lengths_by_process, reduction_over, rows_by_process

ONE_BY_ONE = 2**17
"""Up to how many items of all processes are exchanged as they are; of more, how many fall into each cell of scores."""

BINS = 2**14
"""The number of cells: near a score s they are about s / 200 wide."""

LARGEST = 1e30
"""What infinite scores count as where they are averaged, and where boxes are ranked."""


class Queries(NamedTuple):
    """Sets of items with a score, each of which is a positive or a negative: R sets, S queries in each."""

    scores: Tensor
    """Of shape [R, S, n]."""
    is_positive: Tensor
    """Bool, of shape [R, S, n]."""
    valid: Tensor
    """Which items count, the same ones in all queries of a set; bool, of shape [R, S, n]."""


def of_all_processes(own: Queries) -> Queries:
    """The items of all processes, with the gradient of those of this process.

    What is exchanged is bounded: beyond `ONE_BY_ONE` items it is the histogram of their scores, and each item, on every
    process, has the mean score of its cell.

    A collective: every process has to call it, with any number of items.
    """
    lengths = lengths_by_process(own.scores.shape[2], own.scores.device)
    if len(lengths) == 1 or max(lengths) == 0:
        return own
    return _gathered(own, lengths) if sum(lengths) <= ONE_BY_ONE else by_cells(own)


def _gathered(own: Queries, lengths: list[int]) -> Queries:
    """The items in the order of the ranks of their processes."""
    scores, is_positive, valid = own
    kind = is_positive.to(torch.uint8) + 2 * valid.to(torch.uint8)
    parts, kinds = (rows_by_process(each.movedim(2, 0), lengths) for each in (scores.detach(), kind))
    parts[dist.get_rank()] = scores.movedim(2, 0)
    scores, kind = (torch.cat(each).movedim(0, 2) for each in (parts, kinds))
    return Queries(scores, kind % 2 == 1, kind >= 2)


def by_cells(own: Queries) -> Queries:
    """The items of this process, then those of the others, all of them with the mean score of their cell."""
    over = reduction_over('world')
    shape = own.scores.shape[:2]
    scores, is_positive, valid = (part.flatten(0, 1) for part in own)
    exact = scores.detach().double().clamp(-LARGEST, LARGEST)
    cells = score_cells(scores.detach(), BINS)
    counts = count_scores(scores.detach(), is_positive, valid, BINS)
    of_all = over(counts.clone())
    sums = torch.zeros(len(scores), BINS + 1, dtype=torch.float64, device=scores.device)
    sums = over(sums.scatter_add_(1, cells, torch.where(valid, exact, 0)))
    means = (sums / of_all.sum(1).clamp(min=1)).to(scores.dtype)
    means[:, -1] = torch.nan  # what has no order

    of_others = (of_all - counts).flatten(1)
    n_others = int(of_others.sum(1).max())
    place = torch.arange(of_others.shape[1], device=scores.device).repeat(len(scores), 1)
    place = place.flatten().repeat_interleave(of_others.flatten()).view(len(scores), n_others)
    # The gradient goes to the scores as they are; there is none for what is infinite.
    as_they_are = torch.where(scores.isfinite(), scores - scores.detach(), 0)
    return Queries(
        torch.cat([means.gather(1, cells) + as_they_are, means.gather(1, place % (BINS + 1))], 1).unflatten(0, shape),
        torch.cat([is_positive, place > BINS], 1).unflatten(0, shape),
        torch.cat([valid, torch.ones_like(place, dtype=torch.bool)], 1).unflatten(0, shape),
    )

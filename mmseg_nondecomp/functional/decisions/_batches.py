"""Pairs of logits and targets that pass several times, and their halves."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import Reduce

Pairs = Iterable[tuple[Tensor, Tensor]]
RepeatablePairs = Pairs | Callable[[], Iterator[tuple[Tensor, Tensor]]]


def check_repeatable(batches: Any) -> None:
    """Raise TypeError if batches pass only once."""
    if not callable(batches) and (not isinstance(batches, Iterable) or isinstance(batches, Iterator)):
        raise TypeError(
            'Parameter `batches` should be a list, a data loader or a function that returns an iterator, as it passes '
            f'several times. Found {type(batches).__name__}.'
        )


def each(batches: RepeatablePairs) -> Iterator[tuple[Tensor, Tensor]]:
    """Return the pairs of a pass; raise ValueError if there is none."""
    is_empty = True
    for pair in batches() if callable(batches) else batches:
        is_empty = False
        yield pair
    if is_empty:
        raise ValueError('Parameter `batches` should hold a pair of logits and targets at least. Found none.')


def half_of_images(index: int, number: int, reduce: Reduce, device: torch.device) -> Tensor:
    """Return the half, 0 or 1, of images of this process from an index on: every other image of the data set.

    With n processes, image i of process r is image i n + r of the data set, as samplers distribute them.
    """
    rank = torch.distributed.get_rank() if reduce.n_processes > 1 else 0
    return ((index + torch.arange(number, device=device)) * reduce.n_processes + rank) % 2

"""Base of samplers that draw a class and then an image that holds it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import distributed
from torch.utils.data import Sampler

from mmseg_nondecomp.class_index import ClassIndex, index_classes
from mmseg_nondecomp.functional._inputs import check_flag
from mmseg_nondecomp.samplers.sampled_index import SampledIndex


class ClassDrivenSampler(Sampler):
    """A stream of images in which the number of a draw determines its random numbers.

    All processes number the draws of one stream in the same way; each takes those that equal its rank modulo the number
    of processes, or with ``shard=False`` all of them. The stream can continue at any position without a random state.

    The arguments are those of `EquiBatchSampler`.
    """

    def __init__(
        self,
        dataset: Any = None,
        sampler: Any = None,
        batch_size: int | None = None,
        drop_last: bool = False,
        seed: int | None = None,
        infinite: bool = True,
        cache_dir: str | Path | None = None,
        shuffle: bool = True,
        shard: bool = True,
    ) -> None:
        check_flag('shard', shard)
        if shuffle is not True:
            raise ValueError(f'Parameter `shuffle` should be True: the order is always random. Found {shuffle!r}.')
        if dataset is None and sampler is None:
            raise TypeError('Parameter `dataset` or `sampler` should be given. Found neither.')
        if isinstance(dataset, Sampler):
            raise TypeError(
                f'Parameter `dataset` should be a data set. Found a sampler, {type(dataset).__name__}. Where Lightning '
                'builds the batch sampler anew, pass `Trainer(use_distributed_sampler=False)`, or use this sampler as '
                'the `sampler` of the data loader, with `shard=False`.'
            )
        if dataset is None and not hasattr(sampler, 'dataset'):
            raise TypeError(f'Parameter `sampler` should have a `dataset`, or give `dataset`. Found {sampler!r}.')
        if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
            raise ValueError(f'Parameter `batch_size` should be a positive integer or None. Found {batch_size!r}.')
        if seed is not None and (not isinstance(seed, int) or seed < 0):
            raise ValueError(f'Parameter `seed` should be an integer from 0 on or None. Found {seed!r}.')
        # MMEngine passes to a batch sampler the sampler that it would otherwise use.
        self.dataset = sampler.dataset if dataset is None else dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.infinite = infinite
        self.index: ClassIndex = index_classes(self.dataset, cache_dir)
        self.classes = self.index.present_classes
        if not len(self.classes):
            raise ValueError(f'{type(self.dataset).__name__} should hold a class in at least one image. Found none.')
        is_distributed = distributed.is_available() and distributed.is_initialized()
        self.shard = shard
        self.rank = distributed.get_rank() if is_distributed and shard else 0
        self.world_size = distributed.get_world_size() if is_distributed and shard else 1
        seed = getattr(sampler, 'seed', None) if seed is None else seed
        self.seed = _common_seed(is_distributed) if seed is None else seed
        self.num_samples = math.ceil(len(self.dataset) / self.world_size)
        self.position = 0

    def draw(self, number: int) -> int:
        """Return the image of a draw, numbered over all processes; a `SampledIndex` if it was drawn for a class."""
        raise NotImplementedError

    @property
    def sampler(self) -> ClassDrivenSampler:
        """Return the sampler itself: MMEngine sets the epoch of the sampler of a batch sampler."""
        return self

    def __iter__(self) -> Iterator[Any]:
        samples = self._samples()
        if self.batch_size is None:
            yield from samples
            return
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        """Return the number of samples or batches of one pass of this process, also for an endless stream."""
        samples = len(self.dataset) if self.infinite else self.num_samples
        if self.batch_size is None:
            return samples
        return samples // self.batch_size if self.drop_last else math.ceil(samples / self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of a pass. An endless stream has no passes and continues."""
        if not self.infinite:
            self.position = epoch * self.num_samples

    def skip(self, num_samples: int) -> None:
        """Go to the position after so many samples of this process, as OneDL does to resume."""
        self.position = num_samples

    def _samples(self) -> Iterator[int]:
        """Yield the draws of this process from its position on."""
        remaining = itertools.count() if self.infinite else range(self.num_samples)
        for _ in remaining:
            index = self.draw(self.position * self.world_size + self.rank)
            self.position += 1
            yield index

    def _sampled(self, entry: int, cls: int, place: int) -> SampledIndex:
        """Return the image of an entry of the class index, with its class and one of its places."""
        return SampledIndex(self.index.image_of(entry), cls, self.index.place_of(entry, place))


class Permutations:
    """An endless sequence of random orders of ``n`` items with access to any position."""

    def __init__(self, seed: tuple[int, ...], n: int) -> None:
        self.seed = seed
        self.n = n
        self._turn = -1
        self._order = np.zeros(0, int)

    def __getitem__(self, number: int) -> int:
        turn, place = divmod(number, self.n)
        if turn != self._turn:
            self._turn, self._order = turn, np.random.default_rng((*self.seed, turn)).permutation(self.n)
        return int(self._order[place])


def _common_seed(is_distributed: bool) -> int:
    """Draw a random seed that all processes share."""
    seed = [int(np.random.default_rng().integers(2**31))]
    if is_distributed:
        distributed.broadcast_object_list(seed)
    return seed[0]

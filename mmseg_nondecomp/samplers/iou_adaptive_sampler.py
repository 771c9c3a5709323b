"""Draw what the model does worst."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmseg_nondecomp.registry import DATA_SAMPLERS
from mmseg_nondecomp.samplers.class_driven_sampler import ClassDrivenSampler, Permutations

BLOCK = 1024
"""Draws whose random numbers are made together."""

PATIENCE = 10_000
"""Draws of a process after which someone should have told an IoU."""


@DATA_SAMPLERS.register_module()
class IoUAdaptiveSampler(ClassDrivenSampler):
    r"""Draws a part of the images uniformly, and the others for classes of low IoU in training.

    With probability ``uniform`` it is the next image of a random order of the data set. Otherwise a class is drawn,
    with probability

    .. math:: P(c) \propto \frac{1}{\max(\mathrm{IoU}_c, \varepsilon)},

    and any image that holds it [1]_. The IoU is what `TrainIoUHook` measures on the predictions of the training;
    without this hook all classes stay equally likely. A class of which nothing is known yet counts as one of IoU 0.

    What has been drawn ahead for worker processes is not drawn again: a new IoU reaches the model
    ``num_workers * prefetch_factor`` batches later.

    Args:
        dataset: The data set, any that `index_classes` accepts. MMEngine gives it.
        sampler: As a batch sampler, the sampler whose data set and seed it takes. MMEngine gives it.
        batch_size: As a batch sampler, the images of a batch in this process. MMEngine gives it.
        drop_last: As a batch sampler, whether a smaller last batch is left out.
        uniform: The share of images drawn uniformly, from 0 to 1.
        epsilon: The lowest IoU that makes a difference, above 0.
        seed: Decides about the draws; the same in all processes. By default a random one that they share.
        infinite: Whether the stream has no end, as an ``IterBasedTrainLoop`` needs. For an ``EpochBasedTrainLoop`` say
            False: then a pass has as many images as the data set.
        cache_dir: Where the classes of the images are kept; see `index_classes`.
        shuffle: Always True. The stock samplers of base configs have it, and MMEngine merges it into this one.

    Raises:
        ValueError: If a number is out of its range, or no image holds any class.

    .. [1] Rota Bulò, Neuhold, Kontschieder. Loss max-pooling for semantic image segmentation. CVPR 2017, section 4
       (complimentary sampling strategy).

    Example:
        In a config::

            custom_hooks = [dict(type='TrainIoUHook')]
            train_dataloader = dict(
                sampler=dict(type='IoUAdaptiveSampler'),
                dataset=dict(pipeline=[..., dict(type='RandomCropOnClass', crop_size=(512, 512)), ...]),
            )
    """

    def __init__(
        self,
        dataset: Any = None,
        sampler: Any = None,
        batch_size: int | None = None,
        drop_last: bool = False,
        uniform: float = 0.5,
        epsilon: float = 0.1,
        seed: int | None = None,
        infinite: bool = True,
        cache_dir: str | Path | None = None,
        shuffle: bool = True,
    ) -> None:
        if not 0 <= uniform <= 1:
            raise ValueError(f'Parameter `uniform` should be from 0 to 1. Found {uniform!r}.')
        if not 0 < epsilon < math.inf:
            raise ValueError(f'Parameter `epsilon` should be positive and finite. Found {epsilon!r}.')
        super().__init__(dataset, sampler, batch_size, drop_last, seed, infinite, cache_dir, shuffle)
        self.uniform = uniform
        self.epsilon = epsilon
        self._images = Permutations((self.seed, 0), len(self.dataset))
        self._random: tuple[int, np.ndarray] = (-1, np.zeros(0))
        # From which draw on which IoU held, so that a resumed training repeats the draws it is led through.
        self._since: list[int] = [0]
        self._iou: list[Tensor] = [torch.zeros(self.index.n_classes, dtype=torch.float64)]
        self._laws: dict[int, np.ndarray] = {}
        self._is_told = False

    def set_iou(self, iou: Sequence[float] | Tensor) -> None:
        """The IoU of each class from the next draw on; NaN if it is not known."""
        values = torch.as_tensor(iou, dtype=torch.float64, device='cpu').nan_to_num(nan=0)
        if not _are_shares(values, self.index.n_classes):
            raise ValueError(f'Parameter `iou` should be {self.index.n_classes} numbers from 0 to 1. Found {iou!r}.')
        now = bisect.bisect_left(self._since, self.position)
        self._since[now:], self._iou[now:] = [self.position], [values]
        self._laws.clear()
        self._is_told = True

    def class_probabilities(self) -> np.ndarray:
        """With which probability the next draw for a class is for which, float64 [C]."""
        era = bisect.bisect_right(self._since, self.position) - 1
        if era not in self._laws:
            law = np.zeros(self.index.n_classes)
            law[self.classes] = 1 / np.maximum(self._iou[era].numpy()[self.classes], self.epsilon)
            self._laws = {era: law / law.sum()}
        return self._laws[era]

    def draw(self, number: int) -> int:
        """The image of a draw, with its class if it was drawn for one by the IoU at the present position."""
        if self.position >= PATIENCE and not self._is_told and self.uniform < 1:
            self._is_told = True
            warnings.warn(
                'IoUAdaptiveSampler has not been told any IoU yet, so all classes are equally likely. Add '
                "`custom_hooks = [dict(type='TrainIoUHook')]` to the config.",
                stacklevel=2,
            )
        of_all, of_classes, of_images, of_places = self._random_numbers(number)
        if of_all < self.uniform:
            return self._images[number]
        cumulated = np.cumsum(self.class_probabilities())
        cls = int(np.searchsorted(cumulated, of_classes * cumulated[-1], side='right'))
        entries = self.index.entries_of(cls)
        return self._sampled(entries[int(of_images * len(entries))], cls, int(of_places * BLOCK))

    def state_dict(self) -> dict[str, Any]:
        """Which IoU held from which draw of this process on. The lists grow with what the sampler is told."""
        return {'since': self._since, 'iou': self._iou}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Draw as the sampler did whose state it is.

        Raises:
            ValueError: If it had another number of classes, or is no such state.
        """
        since, iou = state['since'], state['iou']
        n_classes = len(iou[0]) if iou else 0
        if n_classes != self.index.n_classes:
            raise ValueError(f'The state should be of a sampler of {self.index.n_classes} classes. Found {n_classes}.')
        is_ordered = len(since) == len(iou) and since[0] == 0 and all(a < b for a, b in itertools.pairwise(since))
        if not is_ordered or not all(_are_shares(values, n_classes) for values in iou):
            raise ValueError(f'The state should have an IoU from 0 to 1 of each class from draw 0 on. Found {state!r}.')
        self._since[:], self._iou[:] = since, iou
        self._laws.clear()
        self._is_told = True

    def _random_numbers(self, number: int) -> np.ndarray:
        """Four numbers from 0 to 1 that belong to a draw."""
        block, place = divmod(number, BLOCK)
        if block != self._random[0]:
            self._random = block, np.random.default_rng((self.seed, 1, block)).random((BLOCK, 4))
        return self._random[1][place]


def _are_shares(values: Tensor, n_classes: int) -> bool:
    return values.shape == (n_classes,) and bool(((values >= 0) & (values <= 1)).all())

"""Sampler of images for classes of low IoU."""

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

BLOCK = 1024  # Number of draws whose random numbers are generated together

PREFETCHED = 1000  # Number of draws that workers may be ahead of the training, when no hook has been found yet


@DATA_SAMPLERS.register_module()
class IoUAdaptiveSampler(ClassDrivenSampler):
    r"""Sampler that draws a part of the images uniformly, and the others for classes of low IoU in training.

    With probability ``uniform`` it draws the next image of a random order of the data set. Otherwise it draws a class
    with probability

    .. math:: P(c) \propto \frac{1}{\max(\mathrm{IoU}_c, \varepsilon)},

    and any image that holds it [1]_. The IoU is that of `TrainIoUHook` on the predictions of the training; without this
    hook all classes stay equally likely. The IoU of a class is 0 until it is known.

    Images that worker processes have prefetched are not drawn again: a new IoU takes effect
    ``num_workers * prefetch_factor`` batches later.

    Args:
        dataset: This and the arguments that are not listed here are those of `EquiBatchSampler`.
        uniform: Share of images drawn uniformly, from 0 to 1.
        epsilon: Lower bound on the IoU in the formula, above 0.

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
        shard: bool = True,
    ) -> None:
        if not 0 <= uniform <= 1:
            raise ValueError(f'Parameter `uniform` should be from 0 to 1. Found {uniform!r}.')
        if not 0 < epsilon < math.inf:
            raise ValueError(f'Parameter `epsilon` should be positive and finite. Found {epsilon!r}.')
        super().__init__(dataset, sampler, batch_size, drop_last, seed, infinite, cache_dir, shuffle, shard)
        self.uniform = uniform
        self.epsilon = epsilon
        self._images = Permutations((self.seed, 0), len(self.dataset))
        self._random: tuple[int, np.ndarray] = (-1, np.zeros(0))
        # The first draw of each IoU: a resumed training repeats the draws before its checkpoint.
        self._since: list[int] = [0]
        self._iou: list[Tensor] = [torch.zeros(self.index.n_classes, dtype=torch.float64)]
        self._probabilities: dict[int, np.ndarray] = {}
        self.has_hook = False  # whether something sets the IoU, or its absence was reported

    def set_iou(self, iou: Sequence[float] | Tensor) -> None:
        """Set the IoU of each class from the next draw on; NaN if it is not known."""
        values = torch.as_tensor(iou, dtype=torch.float64, device='cpu').nan_to_num(nan=0)
        if not _are_shares(values, self.index.n_classes):
            raise ValueError(f'Parameter `iou` should be {self.index.n_classes} numbers from 0 to 1. Found {iou!r}.')
        now = bisect.bisect_left(self._since, self.position)
        self._since[now:], self._iou[now:] = [self.position], [values]
        self._probabilities.clear()
        self.has_hook = True

    def class_probabilities(self) -> np.ndarray:
        """Return the probability of each class in the next draw for a class, float64 [C]."""
        period = bisect.bisect_right(self._since, self.position) - 1
        if period not in self._probabilities:
            weights = np.zeros(self.index.n_classes)
            weights[self.classes] = 1 / np.maximum(self._iou[period].numpy()[self.classes], self.epsilon)
            self._probabilities = {period: weights / weights.sum()}
        return self._probabilities[period]

    def draw(self, number: int) -> int:
        """Return the image of a draw, with its class if it was drawn for one by the IoU at the present position."""
        if self.position >= max(self.num_samples, PREFETCHED) and not self.has_hook and self.uniform < 1:
            self.has_hook = True
            warnings.warn(
                'IoUAdaptiveSampler has not received any IoU yet, so all classes are equally likely. Add '
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
        """Return each IoU and its first draw in this process. The lists grow with each new IoU."""
        return {'since': self._since, 'iou': self._iou}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state of a sampler; raise ValueError if it is of other classes or no such state."""
        since, iou = state['since'], state['iou']
        n_classes = len(iou[0]) if iou else 0
        if n_classes != self.index.n_classes:
            raise ValueError(f'The state should be of a sampler of {self.index.n_classes} classes. Found {n_classes}.')
        is_ordered = len(since) == len(iou) and since[0] == 0 and all(a < b for a, b in itertools.pairwise(since))
        if not is_ordered or not all(_are_shares(values, n_classes) for values in iou):
            raise ValueError(f'The state should have an IoU from 0 to 1 of each class from draw 0 on. Found {state!r}.')
        self._since[:], self._iou[:] = since, iou
        self._probabilities.clear()
        self.has_hook = True

    def _random_numbers(self, number: int) -> np.ndarray:
        """Return the four random numbers of a draw, from 0 to 1."""
        block, place = divmod(number, BLOCK)
        if block != self._random[0]:
            self._random = block, np.random.default_rng((self.seed, 1, block)).random((BLOCK, 4))
        return self._random[1][place]


def _are_shares(values: Tensor, n_classes: int) -> bool:
    return values.shape == (n_classes,) and bool(((values >= 0) & (values <= 1)).all())

"""Equibatch: every class has its turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mmseg_nondecomp.registry import DATA_SAMPLERS
from mmseg_nondecomp.samplers.class_driven_sampler import ClassDrivenSampler, Permutations


@DATA_SAMPLERS.register_module()
class EquiBatchSampler(ClassDrivenSampler):
    r"""Cycles over the classes, so that each is drawn once in any :math:`|C|` draws in a row.

    The mean of a measure over classes gives each class the same importance; with this sampler each is seen as often,
    and none is absent for long [1]_. Draw :math:`t` is for class :math:`c_{t \bmod |C|}` of a random order of the
    classes, and each class goes through the images that hold it in random orders of its own. Classes that no image
    holds have no turn.

    That promise fixes the order of the classes, and with it who shares a batch: with 20 classes, batches of four are
    drawn for one of five groups of classes each, and of two processes each draws for half of the classes. (All classes
    that a crop happens to show are in it nevertheless.) Where batch statistics or a loss per process should not depend
    on that, take a number of images per step that shares no divisor with the number of classes, synchronised batch
    normalisation, and ``scope='world'`` in the loss.

    In place of the ``sampler`` of a data loader it yields images, in place of its ``batch_sampler`` batches of them;
    the stream is the same. Together with `RandomCropOnClass` the class is in the crop.

    Args:
        dataset: The data set, any that `index_classes` accepts. MMEngine gives it.
        sampler: As a batch sampler, the sampler whose data set and seed it takes. MMEngine gives it.
        batch_size: As a batch sampler, the images of a batch in this process. MMEngine gives it.
        drop_last: As a batch sampler, whether a smaller last batch is left out.
        seed: Decides about the orders; the same in all processes. By default a random one that they share.
        infinite: Whether the stream has no end, as an ``IterBasedTrainLoop`` needs. For an ``EpochBasedTrainLoop`` say
            False: then a pass has as many images as the data set.
        cache_dir: Where the classes of the images are kept; see `index_classes`.
        shuffle: Always True. The stock samplers of base configs have it, and MMEngine merges it into this one.

    Raises:
        ValueError: If no image holds any class.

    .. [1] Berman, Rannen Triki, Blaschko. The Lovász-Softmax loss. CVPR 2018, section 3.1.

    Example:
        In a config::

            train_dataloader = dict(
                sampler=dict(type='EquiBatchSampler'),
                dataset=dict(pipeline=[..., dict(type='RandomCropOnClass', crop_size=(512, 512)), ...]),
            )
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
    ) -> None:
        super().__init__(dataset, sampler, batch_size, drop_last, seed, infinite, cache_dir, shuffle)
        self.order = np.random.default_rng(self.seed).permutation(self.classes).tolist()
        self._images = {c: Permutations((self.seed, c), self.index.images_per_class[c]) for c in self.order}

    def draw(self, number: int) -> int:
        """The image of a draw, with its class."""
        turn, place = divmod(number, len(self.order))
        cls = self.order[place]
        entry = self.index.entries_of(cls)[self._images[cls][turn]]
        return self._sampled(entry, cls, turn)

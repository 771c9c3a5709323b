"""Sampler of images for each class in turn (Equibatch)."""

from functools import cached_property

import numpy as np

from mmseg_nondecomp.registry import DATA_SAMPLERS
from mmseg_nondecomp.samplers.class_driven_sampler import ClassDrivenSampler, Permutations


@DATA_SAMPLERS.register_module()
class EquiBatchSampler(ClassDrivenSampler):
    r"""Sampler that draws each class once in any :math:`|C|` consecutive draws.

    The mean of a measure over classes gives each class the same importance. With this sampler each class is drawn
    equally often, and none is absent for long [1]_. Draw :math:`t` is for class :math:`c_{t \bmod |C|}` of a random
    order of the classes; the images of each class follow random orders of their own. Classes that no image holds are
    left out.

    The order of the classes is fixed, and with it the classes that share a batch: with 20 classes, each batch of four
    is drawn for one of five groups of classes, and each of two processes draws for half of the classes. To avoid that,
    take a number of images per step that has no common divisor with the number of classes, synchronised batch
    normalisation, and ``scope='world'`` in the loss.

    In place of the ``sampler`` of a data loader it yields images, in place of its ``batch_sampler`` batches of them;
    the stream is the same. With `RandomCropOnClass` the class is in the crop.

    Args:
        dataset: The data set, any that `index_classes` accepts. MMEngine passes it.
        sampler: As a batch sampler, the sampler whose data set and seed it takes. MMEngine passes it.
        batch_size: As a batch sampler, the images of a batch in this process. MMEngine passes it.
        drop_last: As a batch sampler, whether a smaller last batch is left out.
        seed: Seed of the draws; the same in all processes. By default a random one that they share.
        infinite: Whether the stream has no end, as an ``IterBasedTrainLoop`` needs. For an ``EpochBasedTrainLoop`` pass
            False: then a pass has as many images as the data set.
        cache_dir: Folder of the class index; see `index_classes`.
        shuffle: Always True. The stock samplers of base configs have it, and MMEngine merges it into this one.
        shard: Whether each process draws its part of the stream. False where the framework distributes the draws, as
            Accelerate does, and Lightning with ``use_distributed_sampler=True``: then each process yields all draws.
            There, pass ``infinite=False`` and a ``seed``.

    .. [1] Berman, Rannen Triki, Blaschko. The Lovász-Softmax loss. CVPR 2018, section 3.1.

    Example:
        In a config::

            train_dataloader = dict(
                sampler=dict(type='EquiBatchSampler'),
                dataset=dict(pipeline=[..., dict(type='RandomCropOnClass', crop_size=(512, 512)), ...]),
            )
    """

    @cached_property
    def order(self) -> list[int]:
        """Return the order of the classes, the same in each turn."""
        return np.random.default_rng(self.seed).permutation(self.classes).tolist()

    @cached_property
    def _images(self) -> dict[int, Permutations]:
        return {c: Permutations((self.seed, c), self.index.images_per_class[c]) for c in self.order}

    def draw(self, number: int) -> int:
        """Return the image of a draw, with its class."""
        turn, place = divmod(number, len(self.order))
        cls = self.order[place]
        entry = self.index.entries_of(cls)[self._images[cls][turn]]
        return self._sampled(entry, cls, turn)

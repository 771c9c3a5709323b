"""Random part of a classification data set with the same number or share of images of each class."""

import copy
from typing import Any

import numpy as np
from mmengine.dataset import force_full_init
from mmengine.registry import DATASETS

from mmseg_nondecomp.functional._inputs import check_integer, check_number


@DATASETS.register_module()
class RandomSubset:
    """Some random images of each class of another data set.

    The seed determines the images, which are the same in every process. The images of each class are put into a random
    order; those from ``skip_per_class`` on are kept, as many as requested. A smaller subset is part of a larger one.
    Two subsets of the same seed, of which one skips the images that the other keeps, have no image in common: one to
    train on, one to choose the epoch by.

    Images keep their index in the whole data set as ``sample_idx``, so that a label that
    :class:`~mmseg_nondecomp.transforms.group_label_noise.GroupLabelNoise` replaced is the same in each subset. The
    pipeline must not drop images: MMEngine would then take any image of the whole data set instead.

    Args:
        dataset: The data set, or its config. Each image has one class, by ``get_cat_ids`` or as ``gt_label``.
        images_per_class: Number of images of each class to keep.
        share: Share of each class to keep, of the images left after ``skip_per_class``; at least one image. With
            neither of the two, all of these are kept.
        skip_per_class: Number of images of each class to leave out first.
        seed: Seed of the choice, at least 0.
        lazy_init: Whether the images are chosen only when they are needed.

    Example:
        In a config, 64 images of each class of ImageNet, none of which is in the subset with ``images_per_class=50``::

            train_dataloader = dict(dataset=dict(
                _delete_=True, type='RandomSubset', images_per_class=64, skip_per_class=50,
                dataset=dict(type='ImageNet', data_root='data/imagenet', split='train', pipeline=[...])))
    """

    def __init__(
        self,
        dataset: Any,
        images_per_class: int | None = None,
        share: float | None = None,
        skip_per_class: int = 0,
        seed: int = 0,
        lazy_init: bool = False,
    ) -> None:
        if images_per_class is not None:
            check_integer('images_per_class', images_per_class, 1)
        check_integer('skip_per_class', skip_per_class, 0)
        check_integer('seed', seed, 0)
        if share is not None:
            check_number('share', share, '(0, 1]')
        if share is not None and images_per_class is not None:
            raise ValueError(
                'Only one of the parameters `images_per_class` and `share` should be given. '
                f'Found {images_per_class} and {share}.'
            )
        self.dataset = DATASETS.build(dataset) if isinstance(dataset, dict) else dataset
        self.images_per_class = images_per_class
        self.share = share
        self.skip_per_class = skip_per_class
        self.seed = seed
        self.indices = np.zeros(0, np.int64)
        """Indices of the kept images in the whole data set, ascending."""
        self._fully_initialized = False
        if not lazy_init:
            self.full_init()

    @property
    def metainfo(self) -> dict:
        """Return the meta information of the whole data set."""
        return copy.deepcopy(self.dataset.metainfo)

    def full_init(self) -> None:
        """Load the whole data set and choose the images."""
        if self._fully_initialized:
            return
        self.dataset.full_init()
        labels = np.array([self._label(index) for index in range(len(self.dataset))], np.int64)
        self.indices = np.sort(np.concatenate([self._choose(labels, cls) for cls in np.unique(labels).tolist()]))
        self._fully_initialized = True

    def _label(self, index: int) -> int:
        try:
            classes = list(self.dataset.get_cat_ids(index))
        except (AttributeError, NotImplementedError):
            classes = np.ravel(self.dataset.get_data_info(index)['gt_label']).tolist()
        if len(classes) != 1:
            raise ValueError(
                f'Each image of the data set of a RandomSubset should have one class. Image {index} has {classes!r}.'
            )
        return int(classes[0])

    def _choose(self, labels: np.ndarray, cls: int) -> np.ndarray:
        """Return the images of a class to keep."""
        images = np.flatnonzero(labels == cls)
        # Uniform variates, whose stream NumPy keeps stable; that of its permutations may change.
        order = np.random.Generator(np.random.PCG64([self.seed, cls])).random(len(images)).argsort(kind='stable')
        left = images[order[self.skip_per_class :]]
        n_kept = len(left) if self.share is None else max(1, round(self.share * len(left)))
        if self.images_per_class is not None:
            n_kept = self.images_per_class
        if not 0 < n_kept <= len(left):
            raise ValueError(
                f'Class {cls} should have {self.skip_per_class} images to skip and {max(n_kept, 1)} to keep. '
                f'Found {len(images)} in all.'
            )
        return left[:n_kept]

    @force_full_init
    def __len__(self) -> int:
        return len(self.indices)

    @force_full_init
    def __getitem__(self, idx: int) -> Any:
        return self.dataset[int(self.indices[idx])]

    @force_full_init
    def get_data_info(self, idx: int) -> dict:
        """Return the information of an image; its ``sample_idx`` is the index in the whole data set."""
        return self.dataset.get_data_info(int(self.indices[idx]))

    @force_full_init
    def get_cat_ids(self, idx: int) -> list[int]:
        """Return the class of an image, in a list."""
        return [self._label(int(self.indices[idx]))]

    def __repr__(self) -> str:
        return (
            f'{type(self).__name__}({type(self.dataset).__name__}, images_per_class={self.images_per_class}, '
            f'share={self.share}, skip_per_class={self.skip_per_class}, seed={self.seed})'
        )

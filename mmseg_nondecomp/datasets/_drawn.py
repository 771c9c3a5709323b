"""Base of generated data sets that are drawn in memory, without files."""

from __future__ import annotations

from typing import Any

from mmengine.dataset import BaseDataset

from mmseg_nondecomp._utils.arguments import check_integer

from ._scene import SPLITS


class DrawnDataset(BaseDataset):
    """A data set of a split and a seed that has no files.

    Args:
        split: 'train' or 'val'.
        seed: Seed of the images, at least 0.
        size: Name and value of the parameter that gives the number of images, in all or of each class.
        kwargs: Arguments of ``mmengine.dataset.BaseDataset``.

    Raises:
        TypeError: If an argument has the wrong type, or is the path of a file.
        ValueError: If an argument is out of its range.
    """

    def __init__(self, split: str, seed: int, size: tuple[str, int], kwargs: dict[str, Any]) -> None:
        check_integer(*size, 1)
        check_integer('seed', seed, 0)
        for path in ('ann_file', 'data_root', 'data_prefix'):
            if kwargs.get(path):
                raise TypeError(f'{type(self).__name__} has no files and takes no `{path}`. Found {kwargs[path]!r}.')
        self.split = split
        self.seed = seed
        super().__init__(**kwargs)


def check_split(split: str) -> None:
    """Raise unless the split is one that the generators draw."""
    if split not in SPLITS:
        raise ValueError(f'Parameter `split` should be one of {SPLITS}. Found {split!r}.')

"""What generated data sets share that are drawn in memory, not kept as files."""

from __future__ import annotations

from typing import Any

from mmengine.dataset import BaseDataset

from .scene import SPLITS


class DrawnDataset(BaseDataset):
    """A data set of a split and a seed that has no files.

    Args:
        split: 'train' or 'val'.
        seed: Seed of the images, at least 0.
        size: How many images it has, or how many of each class, and the name of the parameter that says so.
        kwargs: Arguments of ``mmengine.dataset.BaseDataset``.

    Raises:
        TypeError: If an argument has the wrong type, or tells of files.
        ValueError: If an argument is out of its range.
    """

    def __init__(self, split: str, seed: int, size: tuple[str, int], kwargs: dict[str, Any]) -> None:
        for name, value, lowest in ((*size, 1), ('seed', seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f'Parameter `{name}` should be an integer. Found {value!r}.')
            if value < lowest:
                raise ValueError(f'Parameter `{name}` should be at least {lowest}. Found {value}.')
        for owned in ('ann_file', 'data_root', 'data_prefix'):
            if kwargs.get(owned):
                raise TypeError(f'{type(self).__name__} has no files and takes no `{owned}`. Found {kwargs[owned]!r}.')
        self.split = split
        self.seed = seed
        super().__init__(**kwargs)


def check_split(split: str) -> None:
    """Raise unless the split is one that the generators draw."""
    if split not in SPLITS:
        raise ValueError(f'Parameter `split` should be one of {SPLITS}. Found {split!r}.')

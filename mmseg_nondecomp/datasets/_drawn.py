"""Base of generated data sets that are drawn in memory, without files."""

from typing import Any

from mmengine.dataset import BaseDataset

from mmseg_nondecomp.functional._inputs import check_absent, check_integer


class DrawnDataset(BaseDataset):
    """A data set without files. ``size`` is the name and value of the parameter for the number of images."""

    def __init__(self, split: str, seed: int, size: tuple[str, int], kwargs: dict[str, Any]) -> None:
        check_integer(*size, 1)
        check_integer('seed', seed, 0)
        given = {name: value for name, value in kwargs.items() if value}
        check_absent(f'{type(self).__name__} has no files', given, ('ann_file', 'data_root', 'data_prefix'))
        self.split = split
        self.seed = seed
        super().__init__(**kwargs)

"""Base of segmentation data sets that write their own files at first use."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import cv2
from mmseg.datasets import BaseSegDataset

from mmseg_nondecomp._utils.files import publish_folder
from mmseg_nondecomp.functional._inputs import check_absent

REST = 'rest'  # Name of the class of all classes that are not listed


class StoredDataset(BaseSegDataset):
    """A data set in `img_dir` and `ann_dir` of a folder below `data_root`, which one process fills at first use."""

    WORK: ClassVar[str]  # What fills the folder, in an error message
    num_images: int

    def __init__(self, data_root: str | Path, folder: str, kwargs: dict[str, Any]) -> None:
        if not isinstance(data_root, (str, Path)):
            raise TypeError(f'Parameter `data_root` should be a path. Found {data_root!r}.')
        reason = f'{type(self).__name__} lays out its files in `data_root` by `split`'
        check_absent(reason, kwargs, ('data_prefix', 'ann_file', 'img_suffix', 'seg_map_suffix', 'reduce_zero_label'))
        self.folder = Path(data_root) / folder
        super().__init__(
            data_root=str(data_root),
            data_prefix=dict(img_path=f'{folder}/img_dir', seg_map_path=f'{folder}/ann_dir'),
            img_suffix='.png',
            seg_map_suffix='.png',
            reduce_zero_label=False,
            **kwargs,
        )

    @classmethod
    def get_label_map(cls, new_classes: Sequence[str] | None = None) -> dict[int, int] | None:
        """Return the new label of each old one; after `'rest'`, a class that is not listed is 0 instead of ignored."""
        if not new_classes or new_classes[0] != REST:
            return super().get_label_map(new_classes)
        classes = cls.METAINFO['classes']
        unknown = set(new_classes[1:]) - set(classes)
        if unknown or len(new_classes) < 2:
            raise ValueError(f'`classes` must list some of {classes} after {REST!r}, found {tuple(new_classes)}')
        return {old: new_classes.index(name) if name in new_classes else 0 for old, name in enumerate(classes)}

    def load_data_list(self) -> list[dict]:
        """List the images; write them first if they are missing."""
        try:
            publish_folder(self.folder, self._build_parts, self._is_complete)
        except OSError as error:
            raise OSError(
                f'{type(self).__name__} cannot {self.WORK} below `data_root`={self.data_root!r}: '
                f'{error}. Choose a `data_root` that can be written'
            ) from error
        return super().load_data_list()

    def _is_complete(self, folder: Path) -> bool:
        return all(sum(1 for _ in (folder / part).glob('*.png')) == self.num_images for part in ('img_dir', 'ann_dir'))

    def _build_parts(self, folder: Path) -> None:
        for part in ('img_dir', 'ann_dir'):
            (folder / part).mkdir()
        self._build(folder)

    def _build(self, folder: Path) -> None:
        """Write the PNG files of images and labels into `img_dir` and `ann_dir`."""
        raise NotImplementedError


def write_png(path: Path, pixels: Any) -> None:
    """Write an image, whose channels are in OpenCV's order blue, green, red."""
    # On a full disk, OpenCV's own writer leaves an empty file and reports success.
    path.write_bytes(cv2.imencode('.png', pixels)[1].tobytes())

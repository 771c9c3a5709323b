"""Generated data set of segmentation, the default of configs and examples."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import cv2
from mmengine.registry import DATASETS
from mmseg.datasets import BaseSegDataset

from mmseg_nondecomp._utils.files import publish_folder
from mmseg_nondecomp._utils.progress_line import progress
from mmseg_nondecomp.functional._inputs import check_absent, check_integer, check_option

from ._catalogue import CLASSES, PALETTE
from ._scene import draw_scene

VERSION = 2  # Part of the folder name; increased whenever the same arguments draw other scenes

REST = 'rest'  # Name of the class of all classes that are not listed

NUM_IMAGES = {'train': 480, 'val': 120, 'test': 240}
SIZES = (32, 1024)


@DATASETS.register_module()
class LongTailShapes(BaseSegDataset):
    """Textured grounds and flat objects of 16 classes whose pixel shares follow a long tail.

    The six most frequent classes hold 90 % of the pixels, the rarest 0.04 %. Objects come in pairs of a frequent and a
    rare class with the same colours, which differ in shape, texture, orientation or the ground below. A model that
    minimises the mean error over pixels ignores the rare class for a long time. About 5 % of the pixels are ignored
    (255).

    Nothing is downloaded: the scenes are drawn at first use and stored as PNG files in mmsegmentation's layout, below
    `data_root` in a folder named after the arguments that determine them. They are the same bytes on every machine. Any
    number of processes may start at once; one of them draws.

    With `metainfo=dict(classes=('rest', 'disk'), palette=[...])` label 0 is every class that is not listed.

    A quarter turn makes rows of columns and poles of bars; augment with horizontal flips only.

    Args:
        data_root: Folder of the drawn data sets.
        split: 'train', 'val' or 'test'.
        num_images: Number of scenes; 480 for 'train', 120 for 'val' and 240 for 'test' by default.
        image_size: Height and width in pixels, 32 to 1024.
        seed: Seed of the scenes, at least 0.
        **kwargs: Arguments of `mmseg.datasets.BaseSegDataset`, such as `pipeline`.

    Example:
        In a config::

            custom_imports = dict(imports=['mmseg_nondecomp.datasets'])
            train_dataloader = dict(dataset=dict(
                type='LongTailShapes', data_root='data/long_tail_shapes', split='train', pipeline=[...]))
    """

    METAINFO: ClassVar[dict] = dict(classes=CLASSES, palette=[list(color) for color in PALETTE])

    def __init__(
        self,
        data_root: str | Path = 'data/long_tail_shapes',
        split: str = 'train',
        num_images: int | None = None,
        image_size: int = 128,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        if not isinstance(data_root, (str, Path)):
            raise TypeError(f'Parameter `data_root` should be a path. Found {data_root!r}.')
        check_option('split', split, tuple(NUM_IMAGES))
        num_images = NUM_IMAGES[split] if num_images is None else num_images
        check_integer('num_images', num_images, 1)
        check_integer('image_size', image_size, *SIZES)
        check_integer('seed', seed, 0)
        reason = 'LongTailShapes lays out its files in `data_root` by `split`'
        check_absent(reason, kwargs, ('data_prefix', 'ann_file', 'img_suffix', 'seg_map_suffix', 'reduce_zero_label'))
        self.split, self.num_images, self.image_size, self.seed = split, num_images, image_size, seed
        self.folder = Path(data_root) / (f'{split}-{num_images}x{image_size}px-seed{seed}-v{VERSION}')
        super().__init__(
            data_root=str(data_root),
            data_prefix=dict(img_path=f'{self.folder.name}/img_dir', seg_map_path=f'{self.folder.name}/ann_dir'),
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
        unknown = set(new_classes[1:]) - set(CLASSES)
        if unknown or len(new_classes) < 2:
            raise ValueError(f'`classes` must list some of {CLASSES} after {REST!r}, found {tuple(new_classes)}')
        return {old: new_classes.index(name) if name in new_classes else 0 for old, name in enumerate(CLASSES)}

    def load_data_list(self) -> list[dict]:
        """List the scenes; draw them first if they are missing."""
        try:
            publish_folder(self.folder, self._build, self._is_complete)
        except OSError as error:
            raise OSError(
                f'LongTailShapes cannot draw its scenes below `data_root`={self.data_root!r}: '
                f'{error}. Choose a `data_root` that can be written'
            ) from error
        return super().load_data_list()

    def _is_complete(self, folder: Path) -> bool:
        return all(sum(1 for _ in (folder / part).glob('*.png')) == self.num_images for part in ('img_dir', 'ann_dir'))

    def _build(self, folder: Path) -> None:
        for part in ('img_dir', 'ann_dir'):
            (folder / part).mkdir()
        title = f'drawing LongTailShapes {self.split}'
        for index in progress(range(self.num_images), self.num_images, title):
            scene = draw_scene(self.seed, self.split, index, self.image_size)
            # OpenCV writes the channels of an image in the order blue, green, red.
            _write_png(folder / 'img_dir' / f'{index:06d}.png', scene.image[..., ::-1])
            _write_png(folder / 'ann_dir' / f'{index:06d}.png', scene.label)


def _write_png(path: Path, pixels: Any) -> None:
    # On a full disk, OpenCV's own writer leaves an empty file and reports success.
    path.write_bytes(cv2.imencode('.png', pixels)[1].tobytes())

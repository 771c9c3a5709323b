"""Generated data set of segmentation, the default of configs and examples."""

from pathlib import Path
from typing import Any, ClassVar

from mmengine.registry import DATASETS

from mmseg_nondecomp._utils.progress_line import progress
from mmseg_nondecomp.functional._inputs import check_integer, check_option

from ._catalogue import CLASSES, PALETTE
from ._scene import draw_scene
from ._stored import StoredDataset
from ._stored import write_png as _write_png

VERSION = 2  # Part of the folder name; increased whenever the same arguments draw other scenes

NUM_IMAGES = {'train': 480, 'val': 120, 'test': 240}
SIZES = (32, 1024)


@DATASETS.register_module()
class LongTailShapes(StoredDataset):
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
    WORK: ClassVar[str] = 'draw its scenes'

    def __init__(
        self,
        data_root: str | Path = 'data/long_tail_shapes',
        split: str = 'train',
        num_images: int | None = None,
        image_size: int = 128,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        check_option('split', split, tuple(NUM_IMAGES))
        num_images = NUM_IMAGES[split] if num_images is None else num_images
        check_integer('num_images', num_images, 1)
        check_integer('image_size', image_size, *SIZES)
        check_integer('seed', seed, 0)
        self.split, self.num_images, self.image_size, self.seed = split, num_images, image_size, seed
        super().__init__(data_root, f'{split}-{num_images}x{image_size}px-seed{seed}-v{VERSION}', kwargs)

    def _build(self, folder: Path) -> None:
        title = f'drawing LongTailShapes {self.split}'
        for index in progress(range(self.num_images), self.num_images, title):
            scene = draw_scene(self.seed, self.split, index, self.image_size)
            # OpenCV writes the channels of an image in the order blue, green, red.
            _write_png(folder / 'img_dir' / f'{index:06d}.png', scene.image[..., ::-1])
            _write_png(folder / 'ann_dir' / f'{index:06d}.png', scene.label)

"""Generated data set of classification, drawn in NumPy from a seed with the same bytes on every machine."""

from typing import Any, ClassVar

import numpy as np
from mmengine.registry import DATASETS
from numpy.typing import NDArray

from mmseg_nondecomp.functional._inputs import check_option

from ._drawn import DrawnDataset
from ._scene import SPLITS
from ._shapes import Outline, disk, rotated_frame, shape_mask, square, triangle, with_noise

IMAGES_PER_CLASS = {'train': 50, 'val': 20}
SIZE = 32  # Height and width of an image

COLORS: dict[str, tuple[int, int, int]] = {
    'amber': (204, 150, 84),
    'blue': (88, 122, 180),
    'green': (92, 150, 96),
    'red': (186, 88, 96),
}
STRIPES: tuple[int, ...] = (0, 36, 72, 108, 144)  # Directions of the stripes in degrees, clockwise from the horizontal

OUTLINES: dict[str, tuple[Outline, float]] = {
    'disk': (disk, 0),
    'square': (square, 0),
    'diamond': (square, 45),
    'triangle': (triangle, 0),
    'wedge': (triangle, 180),
}
"""Shapes and their mean orientation in degrees. The classes of a group differ only in them."""

KINDS: tuple[tuple[str, int, str], ...] = tuple(
    (color, stripes, outline) for color in COLORS for stripes in STRIPES for outline in OUTLINES
)
"""Colour, direction of the stripes and outline of each class."""

CLASSES: tuple[str, ...] = tuple(f'{color} {outline} striped at {stripes}' for color, stripes, outline in KINDS)


def draw_striped_shape(seed: int, split: str, index: int, label: int) -> NDArray[np.uint8]:
    """Draw image number ``index`` of a split, RGB [32, 32, 3], with a shape of class ``label``.

    The steps are a plain ground, a blot of no meaning, the striped shape, light and noise.

    Example:
        >>> draw_striped_shape(seed=0, split='train', index=7, label=99).shape
        (32, 32, 3)
    """
    rng = np.random.Generator(np.random.PCG64([seed, SPLITS.index(split), index]))

    def around(center: float, spread: float) -> float:
        return center + spread * (2 * rng.random() - 1)

    color, direction, name = KINDS[label]
    outline, turn = OUTLINES[name]
    canvas = np.empty((SIZE, SIZE, 3))
    canvas[:] = around(118, 50) + 24 * (2 * rng.random(3) - 1)

    blot = shape_mask(disk, SIZE, (SIZE * rng.random(), SIZE * rng.random()), around(6, 2), 0)
    canvas[blot] = 40 + 170 * rng.random(3)

    center = (around(15.5, 4), around(15.5, 4))
    mask = shape_mask(outline, SIZE, center, around(10, 2), turn + around(0, 14))
    _, across = rotated_frame(SIZE, center, direction + around(0, 15))
    stripes = 2 * (np.floor(across / around(2.4, 0.4) + rng.random()) % 2) - 1
    tone = np.array(COLORS[color]) + 28 * (2 * rng.random(3) - 1)
    canvas[mask] = (tone + around(26, 12) * stripes[:, :, None])[mask]

    slopes = [around(0, 1) for _ in range(2)]
    return with_noise(rng, canvas, np.linspace(-0.2, 0.2, SIZE), slopes, lambda: around(44, 16))


@DATASETS.register_module()
class GroupedShapes(DrawnDataset):
    """Images of 100 classes in 20 groups of five that are easily confused.

    A group is a colour and a direction of thin stripes; its five classes are outlines. The group is learned sooner than
    the class, as in the noise experiment of the smooth top-k paper on CIFAR-100, which takes two minutes here. Classes
    ``5 * i`` to ``5 * i + 4`` form group ``i``.

    Nothing is downloaded or stored: the images, 32 x 32 RGB, are drawn in memory (5000 of them in a second or two) and
    are the same bytes on every machine. An item has ``img`` and ``gt_label``.

    Flips change the direction of the stripes and turn triangles over, and so change the class: do not augment with
    them.

    Args:
        split: 'train' or 'val'.
        images_per_class: Number of images of each class; 50 for 'train' and 20 for 'val' by default.
        seed: Seed of the images, at least 0.
        **kwargs: Arguments of ``mmengine.dataset.BaseDataset``, such as ``pipeline``.

    Example:
        >>> dataset = GroupedShapes(split='val', images_per_class=1)
        >>> len(dataset), dataset[7]['img'].shape, dataset[7]['gt_label'], dataset.metainfo['classes'][7]
        (100, (32, 32, 3), 7, 'amber diamond striped at 36')
    """

    METAINFO: ClassVar[dict] = dict(classes=CLASSES)

    def __init__(self, split: str = 'train', images_per_class: int | None = None, seed: int = 0, **kwargs: Any) -> None:
        check_option('split', split, tuple(IMAGES_PER_CLASS))
        self.images_per_class = IMAGES_PER_CLASS[split] if images_per_class is None else images_per_class
        super().__init__(split, seed, ('images_per_class', self.images_per_class), kwargs)

    def load_data_list(self) -> list[dict]:
        """Draw the images, one class after the other in turn."""
        labels = list(range(len(CLASSES))) * self.images_per_class
        return [
            dict(img=draw_striped_shape(self.seed, self.split, index, label), gt_label=label)
            for index, label in enumerate(labels)
        ]

    def get_cat_ids(self, idx: int) -> list[int]:
        """Return the class of an image, in a list."""
        return [self.get_data_info(idx)['gt_label']]

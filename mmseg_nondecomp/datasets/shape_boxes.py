"""Generated data set of object detection.

The same arguments give the same bytes on every machine, for the reasons given in `_scene.py`.
"""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from mmengine.registry import DATASETS
from numpy.typing import NDArray

from mmseg_nondecomp.functional._inputs import check_option

from ._drawn import DrawnDataset
from ._scene import SPLITS
from ._shapes import Mask, Outline, cross, disk, ring, rotated_frame, shape_mask, square, triangle, uniform, with_noise

SIZE = 96  # Height and width of an image

OUTLINES: dict[str, tuple[Outline, float]] = {
    'disk': (disk, 0.40),
    'square': (square, 0.25),
    'triangle': (triangle, 0.17),
    'ring': (ring, 0.11),
    'cross': (cross, 0.07),
}
"""The outline of each class, and its share of the objects: from frequent to rare."""

CLASSES: tuple[str, ...] = tuple(OUTLINES)
NUM_IMAGES = {'train': 400, 'val': 200}
EMPTY = 0.15  # The share of images without objects

MOST_OBJECTS = 4
PLACES = 20  # Number of places that are tried for an object before it is left out


class BoxedShapes(NamedTuple):
    """An image, and the boxes and classes of its n objects."""

    image: NDArray[np.uint8]  # RGB, of shape `[96, 96, 3]`
    boxes: NDArray[np.float64]  # Edges left, top, right, bottom of the pixels of each object, of shape `[n, 4]`
    labels: NDArray[np.int64]  # Indices into `CLASSES`, of shape `[n]`


def draw_boxed_shapes(seed: int, split: str, index: int) -> BoxedShapes:
    """Draw image number ``index`` of a split with its boxes.

    The steps are a plain ground, stripes and halves of disks and rings, which have no class, objects, light and noise.
    Colours and sizes are the same for all classes. Objects do not overlap, and each box is tight.

    Example:
        >>> drawn = draw_boxed_shapes(seed=0, split='train', index=1)
        >>> drawn.image.shape, drawn.boxes.tolist(), [CLASSES[label] for label in drawn.labels]
        ((96, 96, 3), [[16.0, 30.0, 33.0, 46.0]], ['disk'])
    """
    rng = np.random.Generator(np.random.PCG64([seed, SPLITS.index(split), index]))
    canvas = np.empty((SIZE, SIZE, 3))
    canvas[:] = 70 + 110 * rng.random(3)
    for _ in range(int(6 * rng.random())):
        scrap = _scrap(rng)
        canvas[scrap] = _colour(rng)

    taken = np.zeros((SIZE, SIZE), dtype=bool)
    boxes, labels = [], []
    shares = np.cumsum([share for _, share in OUTLINES.values()])
    n_objects = 0 if rng.random() < EMPTY else 1 + int(MOST_OBJECTS * rng.random())
    for _ in range(n_objects):
        label = int(np.searchsorted(shares, rng.random() * shares[-1], side='right'))
        mask = _free_place(rng, OUTLINES[CLASSES[label]][0], taken)
        if mask is None:
            continue
        taken |= mask
        canvas[mask] = _colour(rng)
        boxes.append(box_of(mask))
        labels.append(label)
    slopes = [uniform(rng, -1, 1) for _ in range(2)]
    image = with_noise(rng, canvas, np.linspace(-0.2, 0.2, SIZE), slopes, lambda: uniform(rng, 15, 40))
    return BoxedShapes(image, np.array(boxes, np.float64).reshape(-1, 4), np.array(labels, np.int64))


def box_of(mask: Mask) -> tuple[int, int, int, int]:
    """Return the edges left, top, right and bottom of the pixels of a non-empty mask.

    Example:
        >>> box_of(np.array([[False, False, False], [False, True, True]]))
        (1, 1, 3, 2)
    """
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _scrap(rng: np.random.Generator) -> Mask:
    """Draw half a disk, half a ring, or a long stripe, which are no objects."""
    center = (SIZE * rng.random(), SIZE * rng.random())
    along, across = rotated_frame(SIZE, center, 360 * rng.random())
    if rng.random() < 0.5:
        return abs(across) <= uniform(rng, 1.0, 3.0)
    whole = shape_mask((disk, ring)[int(2 * rng.random())], SIZE, center, uniform(rng, 8, 16), 0)
    return whole & (along >= 0)


def _free_place(rng: np.random.Generator, outline: Outline, taken: Mask) -> Mask | None:
    """Draw the pixels of an object in a free place; return None if no such place is found."""
    radius = uniform(rng, 7, 16)
    for _ in range(PLACES):
        center = (uniform(rng, radius, SIZE - 1 - radius), uniform(rng, radius, SIZE - 1 - radius))
        mask = shape_mask(outline, SIZE, center, radius, uniform(rng, -15, 15))
        if not (mask & taken).any():
            return mask
    return None


def _colour(rng: np.random.Generator) -> NDArray[np.float64]:
    return 30 + 200 * rng.random(3)


@DATASETS.register_module()
class ShapeBoxes(DrawnDataset):
    """Images of up to four objects of five classes, some of which are rare, and images without any.

    Classes differ only in the outline: disk, square, triangle, ring, cross, from 40 to 7 percent of the objects. Scraps
    and stripes of the same colours are no objects. For detectors that train in minutes, and for losses of rankings,
    which need images with few positives or none.

    Nothing is downloaded or stored: the images, 96 x 96 RGB, are drawn in memory (400 of them in a second) and are the
    same bytes on every machine. Needs MMEngine alone. An item has ``img`` and the ``instances`` that the
    ``LoadAnnotations`` of MMDetection reads; boxes are edges of pixels, as in COCO.

    Args:
        split: 'train' or 'val'.
        num_images: Number of images; 400 for 'train' and 200 for 'val' by default.
        seed: Seed of the images, at least 0.
        **kwargs: Arguments of ``mmengine.dataset.BaseDataset``, such as ``pipeline``.

    Example:
        >>> dataset = ShapeBoxes(split='val', num_images=3)
        >>> len(dataset), dataset[2]['img'].shape, [box['bbox_label'] for box in dataset[2]['instances']]
        (3, (96, 96, 3), [0, 0])

        In an MMDetection config, with ``data_preprocessor.bgr_to_rgb=False``::

            custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets'])
            train_dataloader = dict(dataset=dict(
                type='ShapeBoxes', split='train', pipeline=[
                    dict(type='LoadAnnotations', with_bbox=True), dict(type='RandomFlip', prob=0.5),
                    dict(type='PackDetInputs')]))
    """

    METAINFO: ClassVar[dict] = dict(classes=CLASSES)

    def __init__(self, split: str = 'train', num_images: int | None = None, seed: int = 0, **kwargs: Any) -> None:
        check_option('split', split, tuple(NUM_IMAGES))
        self.num_images = NUM_IMAGES[split] if num_images is None else num_images
        super().__init__(split, seed, ('num_images', self.num_images), kwargs)

    def load_data_list(self) -> list[dict]:
        """Draw the images."""
        return [self._item(index) for index in range(self.num_images)]

    def _item(self, index: int) -> dict:
        image, boxes, labels = draw_boxed_shapes(self.seed, self.split, index)
        instances = [
            dict(bbox=box, bbox_label=label, ignore_flag=0)
            for box, label in zip(boxes.tolist(), labels.tolist(), strict=True)
        ]
        shape = (SIZE, SIZE)
        size = dict(height=SIZE, width=SIZE, img_shape=shape, ori_shape=shape, scale_factor=(1.0, 1.0))
        return dict(img=image, img_id=index, instances=instances, **size)

    def get_cat_ids(self, idx: int) -> list[int]:
        """Return the classes of the objects of an image."""
        return [box['bbox_label'] for box in self.get_data_info(idx)['instances']]

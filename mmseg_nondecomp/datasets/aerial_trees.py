"""Trees on aerial photographs, cut from the annotated images that a Python package contains."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import cv2
import numpy as np
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS
from numpy.typing import NDArray

from mmseg_nondecomp._utils.packaged_files import PackagedFile
from mmseg_nondecomp.functional._inputs import check_absent, check_integer, check_option

Pixels = NDArray[np.uint8]
"""RGB image [H, W, 3]."""
Boxes = NDArray[np.float64]
"""Edges left, top, right and bottom of n boxes [n, 4], in pixels from 0."""

LEAST_SHARE = 0.5  # Share of the area of a box inside a tile from which on it counts there
LEAST_SIDE = 1.0  # Side in pixels of the smallest box that is ignored; smaller ones are left out


class Photograph(NamedTuple):
    """An image and its annotation in the XML of Pascal VOC."""

    image: PackagedFile
    annotation: PackagedFile


def _photograph(name: str, image: str, annotation: str) -> Photograph:
    """Return the files of a photograph from their hashes."""
    hashes = {'png': image, 'xml': annotation}
    files = [
        PackagedFile('deepforest', '2.1.0', f'deepforest/data/{name}.{suffix}', sha256)
        for suffix, sha256 in hashes.items()
    ]
    return Photograph(*files)


PHOTOGRAPHS = {
    'YELL 528000': _photograph(
        '2019_YELL_2_528000_4978000_image_crop2',
        'a9bdb0f4447fdd899d22f567e0e20ba8320c5413b2ad0cd0ac8d9f3b6e0f9767',
        'bd431af6a5086d721eb731b22f5ea28cd8a8eab06883efc1c665391acbc68e11',
    ),
    'YELL 541000': _photograph(
        '2019_YELL_2_541000_4977000_image_crop',
        '178e58a23cc2642226a364a30f71bd9258ddc1b012c826f12250914a90c7a131',
        'cefe4b96888bacbf8af1674f000082e549aa707aa6590d545effb23e43f26631',
    ),
    'OSBS 029': _photograph(
        'OSBS_029',
        'd9477c6a00e4902c7bee487d4c5582c3b8b9a2f77f3908a29628b816b291e6ee',
        '1f68c4011d7b351c29ca755072e77f3d16e6fd1f995bd05a9dd4eb952b55373c',
    ),
    'SOAP 061': _photograph(
        'SOAP_061',
        '256508f1a62149bec4a80879077a865caf50e8cace095e6564c76befa480d424',
        '4833280af75fd9c47965a93e38945282835e9e725cac412bdb9469d63480947c',
    ),
}


class Region(NamedTuple):
    """Rows of a photograph."""

    photograph: str
    first: int = 0
    last: int | None = None
    """First row that does not belong to the region; None for all below."""


BORDER = 1648  # Row, at two thirds of the height, that divides the largest photograph
SPLITS: dict[str, tuple[Region, ...]] = {
    'train': (Region('YELL 528000', 0, BORDER),),
    'val': (Region('YELL 528000', BORDER),),
    'test': tuple(Region(name) for name in PHOTOGRAPHS if name != 'YELL 528000'),
}


class Tile(NamedTuple):
    """A part of a photograph with its trees."""

    image: Pixels
    boxes: Boxes
    is_ignored: NDArray[np.bool_]
    """Whether a box has less than half of its area in the tile, of shape [n]."""


@DATASETS.register_module()
class AerialTrees(BaseDataset):
    """Tiles of four aerial photographs with boxes around 951 trees, in one class.

    The data are divided by place. The upper two thirds of the largest photograph, of Yellowstone, are for training (30
    tiles, 376 trees) and the lower third for validation (18 tiles, 197 trees). The others are for testing (14 tiles,
    377 trees): another place in Yellowstone, and one each in Florida and California, where most trees are dead.

    Trees have sides of 8 to 108 pixels in the photographs, 38 in the median, and half of that with the default
    ``reduction``. A region is cut into a grid of tiles of nearly equal size that do not overlap. A box belongs to a
    tile, clipped at the border, if at least half of its area is inside; of the other boxes, the part inside is ignored.

    Nothing is downloaded or stored: the photographs are files of the package `deepforest`, which is not imported.
    ``pip install --no-deps deepforest==2.1.0`` installs it. Needs MMEngine alone. An item has ``img`` in RGB and the
    ``instances`` that the ``LoadAnnotations`` of MMDetection reads.

    Licence: `deepforest` is under the MIT licence, and states no other for its photographs. Their names are those of
    sites of the National Ecological Observatory Network (NEON).

    Args:
        split: 'train', 'val' or 'test'.
        tile: Largest height and width of a tile in pixels, at least 32.
        reduction: Side of the square of pixels of a photograph whose mean is one pixel of a tile.
        **kwargs: Arguments of ``mmengine.dataset.BaseDataset``, such as ``pipeline``.

    Raises:
        ImportError: If the package is missing.
        ValueError: If the package has other photographs.

    Example:
        In an MMDetection config, with ``data_preprocessor.bgr_to_rgb=False``::

            custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets.aerial_trees'])
            train_dataloader = dict(dataset=dict(
                type='AerialTrees', split='train', pipeline=[
                    dict(type='LoadAnnotations', with_bbox=True), dict(type='RandomFlip', prob=0.5),
                    dict(type='PackDetInputs')]))

    Reference:
        B. G. Weinstein, S. Marconi, M. Aubry-Kientz, G. Vincent, H. Senyondo, E. P. White: DeepForest: a Python package
        for RGB deep learning tree crown delineation. Methods in Ecology and Evolution 11, 2020.
        https://doi.org/10.1111/2041-210X.13472
    """

    METAINFO: ClassVar[dict] = dict(classes=('tree',), palette=[(230, 60, 60)])

    def __init__(self, split: str = 'train', tile: int = 200, reduction: int = 2, **kwargs: Any) -> None:
        check_option('split', split, tuple(SPLITS))
        check_integer('tile', tile, 32)
        check_integer('reduction', reduction, 1, 8)
        given = {name: value for name, value in kwargs.items() if value}
        check_absent('AerialTrees reads files of a package', given, ('ann_file', 'data_root', 'data_prefix'))
        self.split, self.tile, self.reduction = split, tile, reduction
        super().__init__(**kwargs)

    def load_data_list(self) -> list[dict]:
        """Cut the tiles."""
        items: list[dict] = []
        for region in SPLITS[self.split]:
            image, boxes = read_region(region, self.reduction)
            for tile in cut_tiles(image, boxes, self.tile):
                items.append(_item(len(items), region.photograph, tile))
        return items

    def get_cat_ids(self, idx: int) -> list[int]:
        """Return the class of each tree of a tile."""
        return [box['bbox_label'] for box in self.get_data_info(idx)['instances'] if not box['ignore_flag']]


def _item(index: int, place: str, tile: Tile) -> dict:
    """Return a tile as MMDetection's pipelines read it."""
    instances = [
        dict(bbox=box, bbox_label=0, ignore_flag=int(is_ignored))
        for box, is_ignored in zip(tile.boxes.tolist(), tile.is_ignored.tolist(), strict=True)
    ]
    height, width = shape = tile.image.shape[:2]
    size = dict(height=height, width=width, img_shape=shape, ori_shape=shape, scale_factor=(1.0, 1.0))
    return dict(img=tile.image, img_id=index, place=place, instances=instances, **size)


def read_region(region: Region, reduction: int) -> tuple[Pixels, Boxes]:
    """Return a region and the boxes of its photograph, both reduced, with coordinates of the region."""
    files = PHOTOGRAPHS[region.photograph]
    pixels = np.asarray(cv2.imread(str(files.image.locate()), cv2.IMREAD_COLOR))[region.first : region.last, :, ::-1]
    height, width = (side // reduction for side in pixels.shape[:2])
    whole = np.ascontiguousarray(pixels[: height * reduction, : width * reduction])
    reduced = cv2.resize(whole, (width, height), interpolation=cv2.INTER_AREA)
    # The content of the file is known, so that no crafted XML is parsed.
    objects = ET.parse(files.annotation.locate()).getroot().iter('bndbox')  # noqa: S314
    edges = [[float(box.findtext(side, 'nan')) for side in ('xmin', 'ymin', 'xmax', 'ymax')] for box in objects]
    # The first and the last pixel are given, from 1.
    boxes = np.array(edges) - [1, 1 + region.first, 0, region.first]
    return np.asarray(reduced, np.uint8), boxes / reduction


def cut_tiles(image: Pixels, boxes: Boxes, tile: int) -> Iterator[Tile]:
    """Yield the tiles of an image, row by row, with sides of at most ``tile`` pixels.

    Example:
        >>> image, boxes = np.zeros((8, 4, 3), np.uint8), np.array([[0.0, 3.0, 2.0, 6.0]])
        >>> for tile in cut_tiles(image, boxes, 5):
        ...     print(tile.image.shape, tile.boxes.tolist(), tile.is_ignored.tolist())
        (4, 4, 3) [[0.0, 3.0, 2.0, 4.0]] [True]
        (4, 4, 3) [[0.0, 0.0, 2.0, 2.0]] [False]
    """
    areas = _area(boxes)
    rows, columns = (np.linspace(0, side, -(-side // tile) + 1).round().astype(int) for side in image.shape[:2])
    for top, bottom in pairwise(rows):
        for left, right in pairwise(columns):
            inside = boxes.clip([left, top, left, top], [right, bottom, right, bottom])
            counts = _area(inside) >= LEAST_SHARE * areas
            is_seen = counts | ((inside[:, 2:] - inside[:, :2]).min(1, initial=np.inf) >= LEAST_SIDE)
            parts = (inside - [left, top, left, top])[is_seen]
            yield Tile(image[top:bottom, left:right], parts, ~counts[is_seen])


def _area(boxes: Boxes) -> NDArray[np.float64]:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])

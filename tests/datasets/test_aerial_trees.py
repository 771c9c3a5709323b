"""Aerial photographs of trees are cut into tiles from files of an installed package, which is not imported."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET

import cv2
import numpy as np
import pytest
from mmengine.registry import DATASETS
from packaged_data import needs_data_of

from mmseg_nondecomp._utils.packaged_files import PackagedFile
from mmseg_nondecomp.datasets import aerial_trees
from mmseg_nondecomp.datasets.aerial_trees import (
    BORDER,
    PHOTOGRAPHS,
    SPLITS,
    AerialTrees,
    Region,
    cut_tiles,
    read_region,
)

needs_data_of(*(file for photograph in PHOTOGRAPHS.values() for file in photograph))

N_TREES = {'YELL 528000': 574, 'YELL 541000': 279, 'OSBS 029': 61, 'SOAP 061': 37}


@pytest.fixture(scope='module')
def datasets() -> dict[str, AerialTrees]:
    return {split: AerialTrees(split) for split in SPLITS}


def drawn(n_boxes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an image without two equal pixels in a channel, and boxes of which some reach over the edge."""
    generator = np.random.default_rng(0)
    image = generator.integers(0, 256, (70, 90, 3)).astype(np.uint8)
    corners = generator.uniform((-5, -5), (80, 60), (n_boxes, 2))
    return image, np.concatenate([corners, corners + generator.uniform(3, 20, (n_boxes, 2))], 1)


@pytest.mark.parametrize('side', [32, 45, 200])
def test_tiles_cover_the_image_once(side: int):
    image, boxes = drawn(0)
    tiles = list(cut_tiles(image, boxes, side))
    assert all(max(tile.image.shape[:2]) <= side for tile in tiles)
    n_columns = -(-90 // side)
    rows = [np.concatenate([t.image for t in tiles[i : i + n_columns]], 1) for i in range(0, len(tiles), n_columns)]
    assert np.array_equal(np.concatenate(rows), image)


def test_a_box_belongs_to_the_tile_with_most_of_it_and_is_ignored_in_others():
    image, boxes = drawn(200)
    boxes = boxes.clip(0, [90, 70, 90, 70])
    tiles = list(cut_tiles(image, boxes, 45))
    assert len(tiles) == 4
    places = [(left, top) for top in (0, 35) for left in (0, 45)]
    n_counted = n_lost = 0
    for box in boxes:
        sides = box[2:] - box[:2]
        shares = []
        for (left, top), tile in zip(places, tiles, strict=True):
            low, high = np.maximum(box[:2], (left, top)), np.minimum(box[2:], (left + 45, top + 35))
            inside = (high - low).clip(0)
            shares.append(inside.prod() / sides.prod())
            part = np.concatenate([low, high]) - [left, top] * 2
            [found] = np.nonzero(np.isclose(tile.boxes, part).all(1))
            if shares[-1] >= 0.5:
                assert not tile.is_ignored[found].any()
                assert len(found) == 1
            elif inside.min() >= 1:
                assert tile.is_ignored[found].all()
                assert len(found) >= 1
        n_counted += max(shares) >= 0.5
        n_lost += max(shares) < 0.5
    assert n_counted == sum((~tile.is_ignored).sum() for tile in tiles)
    assert n_counted > 150
    assert n_lost > 0, 'at a corner of four tiles'


def test_the_splits_are_places_and_hold_the_trees(datasets: dict[str, AerialTrees]):
    sizes = {
        split: (len(data), sum(len(data.get_cat_ids(i)) for i in range(len(data)))) for split, data in datasets.items()
    }
    assert sizes == {'train': (30, 376), 'val': (18, 197), 'test': (14, 377)}
    places = {split: {data.get_data_info(i)['place'] for i in range(len(data))} for split, data in datasets.items()}
    assert places['train'] == places['val'] == {'YELL 528000'}
    assert places['test'] == set(PHOTOGRAPHS) - places['train']
    (train,), (val,) = SPLITS['train'], SPLITS['val']
    assert (train.first, train.last, val.first, val.last) == (0, BORDER, BORDER, None)


@pytest.mark.parametrize('name', PHOTOGRAPHS)
def test_boxes_and_pixels_are_those_of_the_files(name: str):
    photograph = PHOTOGRAPHS[name]
    image, boxes = read_region(Region(name), 1)
    assert np.array_equal(image, cv2.imread(str(photograph.image.locate()))[..., ::-1])
    assert len(boxes) == N_TREES[name]
    first = ET.parse(photograph.annotation.locate()).getroot().find('object').find('bndbox')
    edges = [int(first.findtext(edge)) for edge in ('xmin', 'ymin', 'xmax', 'ymax')]
    assert boxes[0].tolist() == [edges[0] - 1, edges[1] - 1, edges[2], edges[3]]
    assert boxes.min() == 0
    assert (boxes[:, 2:] <= image.shape[1::-1]).all()
    lower, shifted = read_region(Region(name, 100), 1)
    assert np.array_equal(lower, image[100:])
    np.testing.assert_array_equal(shifted, boxes - [0, 100, 0, 100])


def test_the_reduction_is_the_mean_over_squares():
    image, boxes = read_region(Region('OSBS 029'), 1)
    reduced, halved = read_region(Region('OSBS 029'), 2)
    means = image.reshape(200, 2, 200, 2, 3).mean((1, 3))
    assert abs(reduced - means).max() <= 0.5
    np.testing.assert_array_equal(halved, boxes / 2)


def test_items_are_as_mmdetection_reads_them(datasets: dict[str, AerialTrees]):
    pytest.importorskip('mmdet')
    import mmdet.datasets  # noqa: F401  registers the pipeline

    pipeline = [dict(type='mmdet.LoadAnnotations', with_bbox=True), dict(type='mmdet.PackDetInputs')]
    dataset = DATASETS.build(dict(type='AerialTrees', split='train', pipeline=pipeline))
    for index in range(len(dataset)):
        raw, packed = datasets['train'].get_data_info(index), dataset[index]
        assert np.array_equal(packed['inputs'].permute(1, 2, 0).numpy(), raw['img'])
        sample = packed['data_samples']
        assert sample.img_shape == sample.ori_shape == raw['img'].shape[:2]
        kept, ignored = ([b['bbox'] for b in raw['instances'] if b['ignore_flag'] == flag] for flag in (0, 1))
        assert sample.gt_instances.bboxes.numpy() == pytest.approx(np.array(kept).reshape(-1, 4))
        assert sample.ignored_instances.bboxes.numpy() == pytest.approx(np.array(ignored).reshape(-1, 4))


def test_tiles_and_reduction_can_be_chosen(datasets: dict[str, AerialTrees]):
    large = AerialTrees('test', tile=400, reduction=1)
    assert len(large) == 14
    assert large.get_data_info(13)['img'].shape == (400, 400, 3)
    assert datasets['test'].get_data_info(13)['img'].shape == (200, 200, 3)


@pytest.mark.parametrize(
    ('wrong', 'error', 'match'),
    [
        (dict(split='trainval'), ValueError, '`split` should be one of'),
        (dict(tile=31), ValueError, '`tile` should be at least 32'),
        (dict(reduction=0), ValueError, '`reduction` should be from 1 to 8'),
        (dict(data_root='data'), TypeError, 'takes no `data_root`'),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict, error: type, match: str):
    with pytest.raises(error, match=match):
        AerialTrees(**wrong)


@pytest.mark.parametrize(
    ('distribution', 'sha256', 'error'),
    [('no-such-distribution', '', ImportError), ('deepforest', '0' * 64, ValueError)],
)
def test_a_package_that_is_missing_or_different_is_refused(monkeypatch, distribution, sha256, error):
    image, annotation = PHOTOGRAPHS['OSBS 029']
    other = PackagedFile(distribution, image.version, image.path, sha256 or image.sha256)
    monkeypatch.setitem(aerial_trees.PHOTOGRAPHS, 'OSBS 029', aerial_trees.Photograph(other, annotation))
    with pytest.raises(error, match=rf'pip install --no-deps {distribution}==2\.1\.0'):
        AerialTrees('test')


def test_needs_neither_mmdetection_nor_the_modules_of_the_package():
    program = """
import sys
from mmseg_nondecomp.datasets.aerial_trees import AerialTrees
assert len(AerialTrees('test')) == 14
assert not {'mmdet', 'deepforest'} & set(sys.modules)
"""
    subprocess.run([sys.executable, '-c', program], check=True)

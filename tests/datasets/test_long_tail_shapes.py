"""The data set is built once and read by stock code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip('mmseg')

from mmengine.registry import DATASETS, DefaultScope
from mmseg.datasets import BaseSegDataset

from mmseg_nondecomp.datasets import CLASSES, LongTailShapes, draw_scene, long_tail_shapes

SMALL: dict[str, Any] = dict(num_images=3, image_size=40)
LOAD = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')]


@pytest.fixture(autouse=True)
def _mmseg_scope(request: pytest.FixtureRequest):
    with DefaultScope.overwrite_default_scope('mmseg'):
        yield


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if not path.name.startswith('.'))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob('*.png')}


def test_is_built_by_its_bare_name_from_the_mmseg_scope_and_drawn_when_it_is_needed(tmp_path: Path):
    dataset = DATASETS.build(dict(type='LongTailShapes', data_root=str(tmp_path), lazy_init=True, **SMALL))
    assert isinstance(dataset, LongTailShapes)
    assert isinstance(dataset, BaseSegDataset)
    assert names(tmp_path) == []
    dataset.full_init()
    assert len(dataset) == 3
    assert dataset.metainfo['classes'] == CLASSES
    assert len(dataset.metainfo['palette']) == len(CLASSES)


@pytest.mark.parametrize('split', ['train', 'val', 'test'])
def test_stock_loading_returns_the_drawn_scenes(tmp_path: Path, split: str):
    dataset = LongTailShapes(str(tmp_path), split, seed=5, pipeline=LOAD, **SMALL)
    for index in range(3):
        scene = draw_scene(5, split, index, 40)
        assert np.array_equal(dataset[index]['img'], scene.image[..., ::-1])
        assert np.array_equal(dataset[index]['gt_seg_map'], scene.label)


def test_some_classes_against_the_rest(tmp_path: Path):
    metainfo = dict(classes=('rest', 'bar', 'disk'), palette=[[0, 0, 0], [1, 1, 1], [2, 2, 2]])
    some = LongTailShapes(tmp_path, 'val', num_images=3, metainfo=metainfo, pipeline=LOAD)
    every = LongTailShapes(tmp_path, 'val', num_images=3, pipeline=LOAD)
    bar, disk = CLASSES.index('bar'), CLASSES.index('disk')
    for found, true in zip(some, every, strict=True):
        label = true['gt_seg_map']
        expected = np.select([label == 255, label == bar, label == disk], [255, 1, 2], 0)
        assert (found['gt_seg_map'] == expected).all()
    assert {1, 2} & set(np.unique(np.stack([item['gt_seg_map'] for item in some])))
    with pytest.raises(ValueError, match='moon'):
        LongTailShapes(tmp_path, 'val', num_images=3, metainfo=dict(classes=('rest', 'moon')))


def test_second_use_reads_what_the_first_has_drawn_unless_it_is_damaged(tmp_path: Path, monkeypatch, capfd):
    folder = LongTailShapes(str(tmp_path), **SMALL).folder
    assert 'drawing LongTailShapes train: 3/3' in capfd.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(long_tail_shapes, 'draw_scene', lambda *_: pytest.fail('the scenes were drawn again'))
        LongTailShapes(str(tmp_path), **SMALL)
    assert capfd.readouterr().err == ''
    whole = content(folder)
    (folder / 'ann_dir' / '000001.png').unlink()
    LongTailShapes(str(tmp_path), **SMALL)
    assert content(folder) == whole
    assert not list(tmp_path.glob('.building*'))


def test_other_arguments_get_a_folder_of_their_own(tmp_path: Path):
    variants = [{}, dict(seed=1), dict(split='val'), dict(num_images=2), dict(image_size=48)]
    folders = {LongTailShapes(str(tmp_path), **{**SMALL, **variant}).folder for variant in variants}
    assert len(folders) == len(names(tmp_path)) == len(variants)


def test_picture_that_finds_no_room_is_an_error():
    """OpenCV calls it a success where all of it fits into a buffer."""
    with pytest.raises(OSError, match='No space left'):
        long_tail_shapes._write_png(Path('/dev/full'), np.zeros((8, 8), np.uint8))


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        (dict(split='minival'), ValueError, "`split` should be one of .* Found 'minival'"),
        (dict(num_images=0), ValueError, '`num_images` should be at least 1. Found 0'),
        (dict(image_size=16), ValueError, '`image_size` should be from 32 to 1024. Found 16'),
        (dict(image_size=(64, 64)), TypeError, r'`image_size` should be an integer. Found \(64, 64\)'),
        (dict(seed=-1), ValueError, '`seed` should be at least 0. Found -1'),
        (dict(data_root=None), TypeError, '`data_root` should be a path. Found None'),
        (dict(ann_file='x.txt'), TypeError, "takes no `ann_file`. Found 'x.txt'"),
        (dict(data_prefix={}), TypeError, 'takes no `data_prefix`'),
    ],
)
def test_bad_arguments_are_named(tmp_path: Path, arguments: dict, error: type, message: str):
    with pytest.raises(error, match=message):
        LongTailShapes(**{'data_root': str(tmp_path), **arguments})
    assert names(tmp_path) == []

"""The generated data set of classification, as MMEngine sees it."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS

from mmseg_nondecomp.datasets import GroupedShapes
from mmseg_nondecomp.datasets.striped_shape import CLASSES, draw_striped_shape


def test_is_built_by_its_bare_name():
    dataset = DATASETS.build(dict(type='GroupedShapes', split='val', images_per_class=1))
    assert isinstance(dataset, GroupedShapes)
    assert isinstance(dataset, BaseDataset)
    assert dataset.metainfo['classes'] == CLASSES


@pytest.mark.parametrize('split', ['train', 'val'])
def test_items_are_the_drawn_images_with_their_classes(split: str):
    dataset = GroupedShapes(split, images_per_class=2, seed=5)
    assert len(dataset) == 200
    for index in (0, 7, 99, 100, 199):
        item = dataset[index]
        assert item['gt_label'] == index % 100
        assert dataset.get_cat_ids(index) == [index % 100]
        assert item['sample_idx'] == index
        assert np.array_equal(item['img'], draw_striped_shape(5, split, index, index % 100))


def test_default_size_and_time():
    begin = time.process_time()
    dataset = GroupedShapes()
    assert time.process_time() - begin < 10
    assert len(dataset) == 5000
    assert len(GroupedShapes('val')) == 2000
    labels = np.array([dataset.get_data_info(index)['gt_label'] for index in range(5000)])
    assert (np.bincount(labels) == 50).all()


def test_more_images_keep_the_first_ones():
    few, many = (GroupedShapes(images_per_class=n) for n in (1, 2))
    assert all(np.array_equal(few[index]['img'], many[index]['img']) for index in range(100))


def test_arguments_of_the_base_class():
    dataset = GroupedShapes(
        images_per_class=1, pipeline=[lambda results: results['gt_label']], indices=10, test_mode=True, lazy_init=True
    )
    assert not dataset._fully_initialized
    dataset.full_init()
    assert [dataset[index] for index in range(len(dataset))] == list(range(10))


@pytest.mark.parametrize(
    ('wrong', 'error', 'found'),
    [
        (dict(split='test'), ValueError, "`split`.*Found 'test'"),
        (dict(images_per_class=0), ValueError, '`images_per_class`.*Found 0'),
        (dict(images_per_class=2.5), TypeError, '`images_per_class`.*Found 2.5'),
        (dict(seed=-1), ValueError, '`seed`.*Found -1'),
        (dict(seed=True), TypeError, '`seed`.*Found True'),
        (dict(data_root='data'), TypeError, "`data_root`.*Found 'data'"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], error: type[Exception], found: str):
    with pytest.raises(error, match=found):
        GroupedShapes(**wrong)


def test_needs_no_mmsegmentation():
    """Where it is not installed, the other data sets are there."""
    program = """
import sys
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.partition('.')[0] == 'mmseg' else found(name, *rest)
import mmseg_nondecomp.datasets as datasets
assert 'mmseg' not in sys.modules
assert not hasattr(datasets, 'LongTailShapes')
assert 'LongTailShapes' not in datasets.__all__
from mmengine.registry import DATASETS
assert len(DATASETS.build(dict(type='GroupedShapes', images_per_class=1))) == 100
"""
    subprocess.run([sys.executable, '-c', program], check=True)


def test_broken_mmsegmentation_says_so(tmp_path):
    (tmp_path / 'mmseg').mkdir()
    (tmp_path / 'mmseg' / '__init__.py').write_text("raise ImportError('no such version')\n")
    program = f'import sys; sys.path.insert(0, {str(tmp_path)!r}); import mmseg_nondecomp.datasets'
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=False)
    assert done.returncode
    assert 'ImportError: no such version' in done.stderr

"""Behaviour of all data sets that are drawn in memory."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any, NamedTuple

import pytest
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS

from mmseg_nondecomp.datasets import GroupedShapes, ShapeBoxes, grouped_shapes, shape_boxes


class Kind(NamedTuple):
    build: type[BaseDataset]
    size: str
    """Name of the parameter of the number of images."""
    n_per_size: int
    """How many images a size of 1 has."""
    defaults: dict[str, int]
    """How many images each split has by default."""
    classes: tuple[str, ...]


KINDS = {
    'GroupedShapes': Kind(GroupedShapes, 'images_per_class', 100, dict(train=5000, val=2000), grouped_shapes.CLASSES),
    'ShapeBoxes': Kind(ShapeBoxes, 'num_images', 1, dict(train=400, val=200), shape_boxes.CLASSES),
}
each_kind = pytest.mark.parametrize('kind', KINDS.values(), ids=KINDS)


def images(dataset: BaseDataset) -> list[bytes]:
    return [item['img'].tobytes() for item in dataset]


@each_kind
def test_is_built_by_its_bare_name_with_empty_arguments_of_files(kind: Kind):
    files: dict[str, Any] = dict(data_root='', ann_file='', data_prefix={})
    dataset = DATASETS.build({'type': kind.build.__name__, 'split': 'val', 'seed': 5, kind.size: 2} | files)
    assert type(dataset) is kind.build
    assert isinstance(dataset, BaseDataset)
    assert dataset.metainfo['classes'] == kind.classes
    assert (dataset.split, getattr(dataset, kind.size), dataset.seed) == ('val', 2, 5)
    assert len(dataset) == 2 * kind.n_per_size


@each_kind
def test_default_size_and_time(kind: Kind):
    begin = time.process_time()
    assert len(kind.build()) == kind.defaults['train']
    assert time.process_time() - begin < 10
    assert len(kind.build('val')) == kind.defaults['val']


@each_kind
def test_more_images_keep_the_first_ones(kind: Kind):
    few, many = (images(kind.build(**{kind.size: n})) for n in (3, 9))
    assert few == many[: len(few)]
    assert len(many) == 3 * len(few)


@each_kind
def test_seeds_splits_and_indices_have_images_of_their_own(kind: Kind):
    drawn = [images(kind.build(split, 2, seed)) for seed in (0, 1) for split in ('train', 'val')]
    assert len(set().union(*drawn)) == 4 * 2 * kind.n_per_size


@each_kind
def test_another_process_draws_the_same_bytes(kind: Kind):
    # Spawned, so that it shares no state with this one.
    with multiprocessing.get_context('spawn').Pool(1) as pool:
        there = pool.apply_async(kind.build, ('val', 3, 7)).get(timeout=120)
    assert images(there) == images(kind.build('val', 3, 7))


@each_kind
def test_arguments_of_the_base_class(kind: Kind):
    dataset = kind.build(
        **{kind.size: 20}, pipeline=[lambda results: results['sample_idx']], indices=10, test_mode=True, lazy_init=True
    )
    assert not dataset._fully_initialized
    dataset.full_init()
    assert dataset.test_mode
    assert [dataset[index] for index in range(len(dataset))] == list(range(10))


@pytest.mark.parametrize('wrong', ['test', 'Train', '', None, ['train']], ids=str)
@each_kind
def test_other_splits_are_refused(kind: Kind, wrong: Any):
    with pytest.raises(ValueError, match=r"`split` should be one of \('train', 'val'\)") as error:
        kind.build(wrong)
    assert repr(wrong) in str(error.value)


@pytest.mark.parametrize(
    ('name', 'wrong', 'error'),
    [('size', 0, ValueError), ('size', True, TypeError), ('seed', -1, ValueError), ('seed', None, TypeError)],
)
@each_kind
def test_numbers_out_of_range_are_named(kind: Kind, name: str, wrong: Any, error: type[Exception]):
    name = kind.size if name == 'size' else name
    with pytest.raises(error, match=f'`{name}`.*Found {wrong!r}'):
        kind.build(**{name: wrong})


@pytest.mark.parametrize(
    'files', [dict(data_root='data'), dict(ann_file='a.json'), dict(data_prefix=dict(img='a'))], ids=str
)
@each_kind
def test_files_are_refused(kind: Kind, files: dict[str, Any]):
    [(name, found)] = files.items()
    with pytest.raises(TypeError, match=f'{kind.build.__name__} has no files and takes no `{name}`. Found {found!r}'):
        kind.build(**files)

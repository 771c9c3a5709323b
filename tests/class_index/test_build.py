import needs_openmmlab  # noqa: F401  isort: skip

import tracemalloc

import cv2
import numpy as np
import pytest
import torch
from class_index.test_annotations import Animals, Objects
from class_index.test_class_index import same
from mmengine.dataset import ClassBalancedDataset, ConcatDataset, RepeatDataset
from mmseg.datasets import MultiImageMixDataset
from numbered import Numbered
from torch.utils.data import ConcatDataset as Joined
from torch.utils.data import Subset

from mmseg_nondecomp.class_index import ClassIndex, _build, index_classes
from mmseg_nondecomp.class_index._index import ImageClasses


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for part in ('images', 'labels'):
        (tmp_path / part).mkdir()
    for i in range(40):
        (tmp_path / 'images' / f'{i:02}.jpg').touch()
        cv2.imwrite(str(tmp_path / 'labels' / f'{i:02}.png'), rng.integers(0, 4, (8, 9), np.uint8))
    return tmp_path


def animals(folder):
    return Animals(data_root=str(folder), data_prefix=dict(img_path='images', seg_map_path='labels'))


class TestMadeOfOthers:
    """Every image that the index names holds the class, looked up in the whole."""

    @pytest.mark.parametrize(
        ('build', 'times'),
        [
            (lambda: Joined([Numbered([0], [1, 0]), Numbered([2]), Numbered([], [0, 2])]), [3, 1, 2]),
            (lambda: Repeated(Numbered([0], [1, 0]), 40_000), [2, 1, 0]),
            (lambda: Joined([Repeated(Numbered([0], [1, 0]), 6), Repeated(Numbered([2]), 4)]), [6, 3, 2]),
            (
                lambda: Joined(
                    [Numbered([1]), Repeated(Joined([Numbered([0], [1]), Numbered([2])]), 2), Numbered([0])]
                ),
                [3, 3, 2],
            ),
            (lambda: JoinedByAUser([Numbered([0]), Numbered([2, 1])]), [1, 1, 1]),
        ],
        ids=['joined', 'repeated', 'one more often than the other', 'nested', 'wrapper of a user'],
    )
    def test_counts(self, build, times):
        dataset = build()
        index = index_classes(dataset)
        for c in range(3):
            images = index.images_of(c).tolist()
            assert all(c in dataset[i] for i in images)
            assert len(images) == times[c]

    def test_of_mmengine(self, folder):
        data = animals(folder)
        whole = index_classes(RepeatDataset(dict(type=ConcatDataset, datasets=[data, data]), 3))
        alone = index_classes(data)
        for c in range(4):
            images = alone.images_of(c)
            assert np.array_equal(whole.images_of(c), np.concatenate([images, images + 40]))
        assert same(index_classes(MultiImageMixDataset(ConcatDataset([data]), [])), alone)

    @pytest.mark.parametrize('wrapper', [lambda d: ClassBalancedDataset(d, 0.5), lambda d: Subset(d, [0, 1])])
    def test_those_that_lose_the_class_are_refused(self, wrapper):
        with pytest.raises(TypeError, match='Give the sampler the data set inside it'):
            index_classes(wrapper(Objects()))


class Repeated:
    def __init__(self, dataset, times):
        self.dataset, self.times = dataset, times

    def __len__(self):
        return len(self.dataset) * self.times

    def __getitem__(self, image):
        return self.dataset[image % len(self.dataset)]


Repeated.__name__ = 'RepeatDataset'


class JoinedByAUser(Joined):
    pass


def test_index_is_kept_in_the_home_of_the_user(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv('HOME', str(tmp_path))
    first = index_classes(animals(folder), '~/cache')
    assert 'counting classes: 40/40' in capsys.readouterr().err
    monkeypatch.setattr(_build, '_build', lambda *_: pytest.fail('built again'))
    assert same(index_classes(animals(folder), tmp_path / 'cache'), first)


def test_change_of_a_label_file_is_seen(folder, tmp_path, capsys):
    before = index_classes(animals(folder), tmp_path / 'cache')
    cv2.imwrite(str(folder / 'labels' / '07.png'), np.full((50, 50), 3, np.uint8))
    after = index_classes(animals(folder), tmp_path / 'cache')
    assert (before.n_items[7], after.n_items[7]) == (72, 2500)
    assert 'have changed' in capsys.readouterr().err


def test_nothing_is_written_beside_the_data(folder, tmp_path):
    before = sorted(folder.rglob('*'))
    index_classes(animals(folder))
    assert sorted(folder.rglob('*')) == before


def test_workers_find_the_same_and_random_state_stays_whether_it_is_built_or_read(folder, tmp_path):
    torch.manual_seed(0)
    np.random.seed(0)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    found = []
    for num_workers in (0, 0, 3, 3):
        found.append(index_classes(animals(folder), tmp_path / f'cache of {num_workers}', num_workers))
        assert torch.equal(torch.get_rng_state(), before)
        assert np.array_equal(np.random.get_state()[1], numpy_before)
    assert all(same(index, found[0]) for index in found)


@pytest.mark.parametrize('num_workers', [0, 2])
def test_unreadable_file_is_named(folder, tmp_path, num_workers):
    (folder / 'labels' / '23.png').write_bytes(b'no picture')
    with pytest.raises(OSError, match=r'labels/23\.png'):
        index_classes(animals(folder), tmp_path / 'cache', num_workers)


def test_a_label_that_is_no_class_warns_once(folder, tmp_path):
    for name in ('03', '05'):
        cv2.imwrite(str(folder / 'labels' / f'{name}.png'), np.full((4, 4), 9, np.uint8))
    for _ in range(2):  # counted, and from the cache
        with pytest.warns(UserWarning, match=r'Label 9 of .*03\.png.* none of the 4 classes.* labels: 32') as said:
            index = index_classes(animals(folder), tmp_path / 'cache')
        assert len([w for w in said if 'none of the' in str(w.message)]) == 1
        assert np.diff(index.starts)[[3, 5]].tolist() == [0, 0]


def test_index_of_many_images_is_small(tmp_path):
    """A million entries, as of ADE20K times four: under 100 MB. How quickly it loads: tools/benchmark.py sampling."""
    rng = np.random.default_rng(0)
    images = [
        ImageClasses(np.arange(10), rng.integers(1, 1000, 10), 262144, np.full((10, 4, 2), 0.5)) for _ in range(100_000)
    ]
    index = ClassIndex.from_images(images, [str(i) for i in range(150)], 4)
    index.save(tmp_path / 'index.npz')
    del images
    tracemalloc.start()
    loaded = ClassIndex.load(tmp_path / 'index.npz')
    for c in range(150):
        loaded.images_of(c)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6

import needs_openmmlab  # noqa: F401  isort: skip

import os

import cv2
import numpy as np
import pytest
from mmengine.dataset import BaseDataset
from mmseg.datasets import BaseSegDataset
from mmseg.datasets.transforms import LoadAnnotations

from mmseg_nondecomp.class_index import index_classes
from mmseg_nondecomp.class_index._annotations import annotations_of

LABELS = np.array([[0, 1, 2, 3], [3, 3, 255, 0]], np.uint8)


class Animals(BaseSegDataset):
    METAINFO = dict(classes=('cat', 'dog', 'cow', 'hen'), palette=[[i, i, i] for i in range(4)])


@pytest.fixture
def folder(tmp_path):
    for part in ('images', 'labels'):
        (tmp_path / part).mkdir()
    for name, labels in {'a': LABELS, 'b': np.full_like(LABELS, 255), 'c': LABELS[:, :2]}.items():
        (tmp_path / 'images' / f'{name}.jpg').touch()
        assert cv2.imwrite(str(tmp_path / 'labels' / f'{name}.png'), labels)
    return tmp_path


def animals(folder, cls=Animals, **kwargs):
    return cls(data_root=str(folder), data_prefix=dict(img_path='images', seg_map_path='labels'), **kwargs)


def counted(dataset):
    annotations = annotations_of(dataset, 2)
    return [
        dict(zip(i.classes.tolist(), i.counts.tolist(), strict=True)) for i in map(annotations.__getitem__, range(3))
    ]


class TestLabelMaps:
    def test_as_they_are(self, folder):
        assert counted(animals(folder)) == [{0: 2, 1: 1, 2: 1, 3: 3}, {}, {0: 1, 1: 1, 3: 2}]
        assert counted(animals(folder, ignore_index=3))[0] == {0: 2, 1: 1, 2: 1}

    def test_as_the_training_pipeline_sees_them(self, folder):
        """Equal to the labels that come out of the pipeline, whatever the settings."""
        for settings in (
            dict(),
            dict(reduce_zero_label=True),
            dict(metainfo=dict(classes=('cow', 'cat'))),
            dict(reduce_zero_label=True, metainfo=dict(classes=('cow', 'cat'))),
        ):
            dataset = animals(folder, pipeline=[dict(type='mmseg.LoadAnnotations')], **settings)
            n_classes = len(dataset.metainfo['classes'])
            for found, results in zip(counted(dataset), [dataset[i] for i in range(3)], strict=True):
                labels = results['gt_seg_map']
                assert found == {c: (labels == c).sum() for c in range(n_classes) if (labels == c).any()}

    def test_loader_of_the_pipeline_is_used(self, folder):
        class Swaps(LoadAnnotations):
            def transform(self, results):
                results = super().transform(results)
                results['gt_seg_map'] = 3 - results['gt_seg_map']
                return results

        assert counted(animals(folder, pipeline=[Swaps()]))[0] == {0: 3, 1: 1, 2: 1, 3: 2}
        with pytest.warns(UserWarning, match='Found no transform that loads annotations in the pipeline of Animals'):
            annotations_of(animals(folder, pipeline=[dict(type='mmseg.PackSegInputs')]), 2)

    def test_of_mmdetection(self, folder):
        dataset = pytest.importorskip('mmdet.datasets').ADE20KSegDataset(
            data_root=str(folder),
            data_prefix=dict(img_path='images', seg_map_path='labels'),
            metainfo=Animals.METAINFO,
            pipeline=[dict(type='mmdet.LoadAnnotations', with_bbox=False, with_seg=True)],
        )
        found, labels = annotations_of(dataset, 2)[2], dataset[2]['gt_seg_map']
        assert found.counts.tolist() == [(labels == c).sum() for c in found.classes]
        assert len(found.classes) > 0

    def test_files_of_colours_and_missing_ones_are_named(self, folder):
        cv2.imwrite(str(folder / 'labels' / 'c.png'), np.zeros((4, 4, 3), np.uint8))
        (folder / 'labels' / 'b.png').unlink()
        with pytest.raises(ValueError, match=r'\(4, 4, 3\).*labels/c\.png'):
            annotations_of(animals(folder), 2)[2]
        with pytest.raises(FileNotFoundError, match=r'labels/b\.png'):
            annotations_of(animals(folder), 2).state()

    def test_no_label_maps_names_or_images(self, folder, tmp_path_factory):
        empty = tmp_path_factory.mktemp('empty')
        (empty / 'images').mkdir()
        for dataset, message in (
            (
                Animals(data_root=str(folder), data_prefix=dict(img_path='images')),
                'should have label maps.*seg_map_path',
            ),
            (animals(folder, BaseSegDataset), 'name its classes'),
            (animals(empty, serialize_data=False), 'at least one image'),
        ):
            with pytest.raises(ValueError, match=message):
                annotations_of(dataset, 2)


class TestIdentityAndState:
    def test_stay_the_same(self, folder):
        one, other = (annotations_of(animals(folder), 2) for _ in range(2))
        one[0]
        assert (one.identity(), one.state()) == (other.identity(), other.state())

    @pytest.mark.parametrize(
        'settings',
        [
            dict(reduce_zero_label=True),
            dict(ignore_index=0),
            dict(metainfo=dict(classes=('dog', 'cat'))),
            dict(metainfo=dict(classes=('cat', 'dog'))),
            dict(indices=2),
        ],
        ids=str,
    )
    def test_another_meaning_is_another_identity(self, folder, settings):
        others = {
            annotations_of(animals(folder, **other), 2).identity()
            for other in (dict(), dict(metainfo=dict(classes=('cow',))))
        }
        assert annotations_of(animals(folder, **settings), 2).identity() not in others

    def test_settings_of_the_loader_and_places_are_part_of_it(self, folder):
        loaders = [dict(), dict(imdecode_backend='cv2'), dict(backend_args=dict(backend='local'))]
        pipelines = [[dict(type='mmseg.LoadAnnotations', **loader)] for loader in loaders]
        found = {annotations_of(animals(folder, pipeline=p), n).identity() for p in pipelines for n in (2, 3)}
        assert len(found) == 6

    def test_changed_files_are_another_state(self, folder):
        annotations = annotations_of(animals(folder), 2)
        before, file = annotations.state(), folder / 'labels' / 'a.png'
        os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
        after = annotations.state()
        assert after != before
        cv2.imwrite(str(file), np.zeros((50, 50), np.uint8))
        assert annotations.state() not in (before, after)

    def test_remote_files_are_not_looked_at(self, folder):
        dataset = animals(folder, backend_args=dict(backend='petrel'), lazy_init=True)
        dataset.full_init = lambda: None
        dataset.serialize_data = False
        dataset.data_list = [dict(seg_map_path='s3://bucket/a.png')]
        assert annotations_of(dataset, 2).state()


class Objects(BaseDataset):
    METAINFO = dict(classes=('x', 'y', 'z'))

    def load_data_list(self):
        return [dict(labels=labels) for labels in ([2, 0, 2], [], [1])]

    def get_cat_ids(self, idx):
        return self.get_data_info(idx)['labels']


class Things(BaseDataset):
    """As MMDetection's data sets, one object of which is to be ignored."""

    METAINFO = dict(classes=('x', 'y'))

    def load_data_list(self):
        return [dict(instances=[dict(bbox_label=0, ignore_flag=0), dict(bbox_label=1, ignore_flag=1)])]

    def get_cat_ids(self, idx):
        return [thing['bbox_label'] for thing in self.get_data_info(idx)['instances']]


class TestCategories:
    def test_objects_that_are_not_ignored_are_counted(self):
        assert counted(Objects()) == [{0: 1, 2: 2}, {}, {1: 1}]
        assert [annotations_of(Objects(), 2)[i].n_items for i in range(3)] == [3, 0, 1]
        assert annotations_of(Things(), 2)[0].classes.tolist() == [0]

    def test_are_not_cached(self, tmp_path):
        index_classes(Objects(), tmp_path / 'cache')
        assert not (tmp_path / 'cache').exists()

    def test_names_may_be_missing(self):
        class Bare:
            def __len__(self):
                return 2

            def get_cat_ids(self, idx):
                return [[4], [0, 1]][idx]

        assert annotations_of(Bare(), 2).class_names == ('0', '1', '2', '3', '4')

    def test_category_beyond_the_classes(self):
        dataset = Objects(metainfo=dict(classes=('x', 'y')))
        with pytest.raises(ValueError, match=r'get_cat_ids\(0\).*from 0 to 1. Found 2'):
            annotations_of(dataset, 2)[0]

    def test_neither_maps_nor_categories(self):
        class Other(BaseDataset):
            def load_data_list(self):
                return [dict(x=0)]

        for dataset in (Other(), [1, 2, 3]):
            with pytest.raises(TypeError, match='segmentation data set, a data set with `get_cat_ids`'):
                annotations_of(dataset, 2)

import needs_openmmlab  # noqa: F401  isort: skip

import warnings

import cv2
import numpy as np
import pytest
from mmseg.datasets import BaseSegDataset

from mmseg_nondecomp import ClassIndex, EquiBatchSampler
from mmseg_nondecomp.class_index._annotations import classes_of_label_map
from mmseg_nondecomp.class_index._label_mistakes import foreign_labels, saved_with_255


def index_of(*maps, names=('background', 'bar'), n_places=2):
    images = [classes_of_label_map(np.array(one, np.uint8), len(names), 255, n_places) for one in maps]
    return ClassIndex.from_images(images, names, n_places)


def test_foreign_labels_are_named_with_their_pixels_images_and_first_file():
    index = index_of([[0, 1]], [[4, 3], [0, 255]], [[3, 0]])
    expected = 'is none of the 2 classes and is not ignored. Pixels with such labels: 3, in 2 of 3 images.'
    assert foreign_labels(index).startswith(f'Label 4 {expected}')
    assert foreign_labels(index, ['a', 'b', 'c']).startswith(f"Label 4 of 'b' {expected}")
    assert foreign_labels(index_of([[0, 1, 255]])) is None


def test_a_mask_with_255_for_the_object():
    text = saved_with_255(index_of([[0, 255]], [[0, 0]]))
    assert text.startswith("No pixel is of class 'bar', and 1 pixels are ignored: the label maps have labels 0 and 255")


@pytest.mark.parametrize(
    'index',
    [
        index_of([[0, 1]]),
        index_of([[0, 1, 255]]),
        index_of([[0, 0]]),
        index_of([[255, 255]]),
        index_of([[0, 255]], names=('a', 'b', 'c')),
        index_of([[0, 255]], n_places=0),
        index_of([[0, 7]]),
    ],
    ids=['0 and 1', 'and ignored', 'only 0', 'only ignored', 'three classes', 'objects', 'another label'],
)
def test_other_labels_are_no_mask_with_255(index):
    assert saved_with_255(index) is None


@pytest.mark.parametrize(('value', 'is_wrong'), [(255, True), (1, False)])
def test_a_sampler_warns_of_masks_with_255(tmp_path, value, is_wrong):
    labels = np.zeros((8, 8), np.uint8)
    labels[5:] = value
    for folder, file in (('images', '0.jpg'), ('labels', '0.png')):
        (tmp_path / folder).mkdir()
        cv2.imwrite(str(tmp_path / folder / file), labels)
    data = BaseSegDataset(
        data_root=str(tmp_path),
        data_prefix=dict(img_path='images', seg_map_path='labels'),
        metainfo=dict(classes=('background', 'bar')),
    )
    for _ in range(2):  # counted, and from the cache
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter('always')
            EquiBatchSampler(data, cache_dir=tmp_path / 'cache')
        texts = [str(warning.message) for warning in said if 'saved with 255' in str(warning.message)]
        assert len(texts) == is_wrong

"""The generated data set of classification, as MMEngine sees it."""

from __future__ import annotations

import numpy as np
import pytest

from mmseg_nondecomp.datasets import GroupedShapes
from mmseg_nondecomp.datasets.grouped_shapes import draw_striped_shape


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


def test_classes_have_equally_many_images():
    dataset = GroupedShapes()
    labels = np.array([dataset.get_data_info(index)['gt_label'] for index in range(5000)])
    assert (np.bincount(labels) == 50).all()

"""The generated data set of classification, as MMEngine sees it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from mmseg_nondecomp.datasets import GroupedShapes
from mmseg_nondecomp.datasets.grouped_shapes import CLASSES, COLORS, KINDS, OUTLINES, STRIPES, draw_striped_shape

GROUPS = [range(first, first + 5) for first in range(0, 100, 5)]


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


def test_pixels_are_those_of_this_version():
    """When this fails, the drawing has changed, and the figures of configs/grouped_shapes with it."""
    pixels = b''.join(draw_striped_shape(0, 'train', index, index).tobytes() for index in range(len(CLASSES)))
    assert hashlib.sha256(pixels).hexdigest()[:16] == '17346df0d3be7544'


def test_groups_are_colour_and_stripes_and_partition_the_classes():
    assert sorted(cls for group in GROUPS for cls in group) == list(range(100))
    assert len(set(CLASSES)) == 100
    for group in GROUPS:
        assert {outline for _, _, outline in (KINDS[cls] for cls in group)} == OUTLINES.keys()
        assert len({(color, stripes) for color, stripes, _ in (KINDS[cls] for cls in group)}) == 1


def centers(color: str, outline: str) -> np.ndarray:
    """The mean colour around the middle of images that differ in all else."""
    labels = [KINDS.index((color, stripes, outline)) for stripes in STRIPES]
    images = [draw_striped_shape(0, 'train', 5 * i + j, label) for i in range(20) for j, label in enumerate(labels)]
    return np.stack([image[12:20, 12:20].mean((0, 1)) for image in images])


@pytest.mark.parametrize('outline', OUTLINES)
def test_colour_shows_in_the_middle(outline: str):
    """By the nearest of the four colours, far above chance."""
    table = np.array(list(COLORS.values()), float)
    for place, color in enumerate(COLORS):
        distances = ((centers(color, outline)[:, None] - table) ** 2).sum(-1)
        assert (distances.argmin(1) == place).mean() > 0.6


def test_same_draws_of_a_group_differ_only_where_the_outlines_do():
    disk, square = (draw_striped_shape(0, 'train', 4, cls).astype(int) for cls in GROUPS[0][:2])
    differs = (disk != square).any(-1)
    assert 0 < differs.mean() < 0.3

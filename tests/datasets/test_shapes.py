"""Outlines against their areas and symmetries."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip('mmseg')

from mmseg_nondecomp.datasets._shapes import bar, chevron, cross, disk, grow, ring, shape_mask, square, triangle

AREAS = {
    disk: math.pi,
    ring: math.pi * 0.64,
    square: 1.7**2,
    triangle: 0.62 * 1.6**2,
    chevron: 0.62 * (1.6**2 - 0.9**2),
    cross: 2 * 0.4 * 2 - 0.4**2,
    bar: 2 * 0.4,
}


@pytest.mark.parametrize('degrees', [0, 17, 45])
@pytest.mark.parametrize('outline', AREAS, ids=lambda outline: outline.__name__)
def test_area(outline, degrees: int):
    mask = shape_mask(outline, 201, (100.3, 99.6), 80.2, degrees)
    assert mask.sum() / 80.2**2 == pytest.approx(AREAS[outline], rel=0.02)


@pytest.mark.parametrize('outline', AREAS, ids=lambda outline: outline.__name__)
def test_quarter_turns_are_exact(outline):
    upright = shape_mask(outline, 41, (20, 20), 15, 0)
    assert np.array_equal(shape_mask(outline, 41, (20, 20), 15, 90), np.rot90(upright, -1))
    assert np.array_equal(shape_mask(outline, 41, (20, 20), 15, 180), np.rot90(upright, 2))


def test_center_is_column_then_row_and_may_lie_outside_of_the_image():
    assert np.argwhere(shape_mask(disk, 9, (6, 2), 0.5, 0)).tolist() == [[2, 6]]
    assert not shape_mask(disk, 8, (-20, 4), 5, 0).any()
    assert shape_mask(disk, 8, (-2, 4), 5, 0).any()


def test_triangle_points_up():
    rows = shape_mask(triangle, 41, (20, 20), 15, 0).sum(axis=1)
    filled = rows[rows > 0]
    assert filled[0] < filled[-1]
    assert (np.diff(filled) >= 0).all()


def test_grow_adds_the_four_neighbours():
    mask = np.zeros((4, 4), dtype=bool)
    mask[0, 1] = True
    assert np.argwhere(grow(mask)).tolist() == [[0, 0], [0, 1], [0, 2], [1, 1]]

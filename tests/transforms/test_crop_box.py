"""A crop is its box made larger, at the right pixels, with what is beyond the image filled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mmengine.dataset import Compose
from mmengine.registry import TRANSFORMS

from mmseg_nondecomp.transforms import CropBox

HEIGHT, WIDTH = 12, 20
FILL = 255


def image(channels: int | None = 3) -> np.ndarray:
    pixels = np.arange(HEIGHT * WIDTH, dtype=np.uint8).reshape(HEIGHT, WIDTH)
    return pixels if channels is None else pixels[..., None].repeat(channels, 2)


def crop(bbox: Any, context: float = 1.0, pad_value: Any = FILL, channels: int | None = 3) -> np.ndarray:
    results = CropBox(context, pad_value)(dict(img=image(channels), bbox=bbox))
    assert results['img_shape'] == results['img'].shape[:2]
    assert results['bbox'] is bbox
    return results['img']


@pytest.mark.parametrize('channels', [None, 1, 3, 4])
def test_channels_stay(channels: int | None):
    assert np.array_equal(crop((3, 2, 9, 11), channels=channels), image(channels)[2:11, 3:9])


@pytest.mark.parametrize(
    ('context', 'bbox', 'expected'),
    [
        (2.0, (6, 4, 10, 8), (4, 2, 12, 10)),
        (1.5, (6, 4, 10, 8), (5, 3, 11, 9)),
        (1.5, (6, 4, 12, 6), (4, 3, 14, 7)),  # 1.5 and 0.5 pixels on each side, outwards to whole ones
        (1.0, (6.2, 4.0, 9.1, 7.5), (6, 4, 10, 8)),
        *((1.0, box, box) for box in [(0, 0, WIDTH, HEIGHT), (3, 2, 9, 11), (19, 11, 20, 12), (0, 5, 20, 6)]),
    ],
)
def test_box_grows_about_its_centre_to_whole_pixels(context: float, bbox: tuple, expected: tuple[int, int, int, int]):
    left, top, right, bottom = expected
    assert np.array_equal(crop(bbox, context), image()[top:bottom, left:right])


@pytest.mark.parametrize('bbox', [(0, 0, 4, 4), (17, 0, 20, 6), (2, 9, 8, 12), (15, 8, 20, 12), (0, 0, 20, 12)])
@pytest.mark.parametrize('context', [1.0, 1.2, 3.0])
def test_beyond_the_image_it_is_filled(bbox: tuple[int, int, int, int], context: float):
    margin = 40
    wide = np.pad(image(), ((margin, margin), (margin, margin), (0, 0)), constant_values=FILL)
    moved = tuple(side + margin for side in bbox)
    expected = CropBox(context)(dict(img=wide, bbox=moved))['img']
    assert np.array_equal(crop(bbox, context), expected)


def test_boxes_may_reach_beyond_the_image_and_each_channel_has_its_fill():
    found = crop((-2, 10, 3, 14), pad_value=(1, 2, 3))
    assert found.shape == (4, 5, 3)
    assert np.array_equal(found[:2, 2:], image()[10:, :3])
    assert (found[2:] == (1, 2, 3)).all()
    assert (found[:, :2] == (1, 2, 3)).all()


def test_crop_is_a_copy():
    whole = image()
    before = whole.copy()
    CropBox()(dict(img=whole, bbox=(0, 0, 3, 3)))['img'][:] = 77
    assert np.array_equal(whole, before)


def test_r_cnns_crop_has_16_of_227_pixels_around_the_box():
    """The box is one colour and its surroundings another, both larger than a pixel of the result."""
    whole = np.zeros((500, 600), np.uint8)
    bbox = (100, 100, 490, 295)
    whole[100:295, 100:490] = 255
    pipeline = Compose([dict(type='CropBox', context=227 / 195), dict(type='Resize', scale=(227, 227))])
    found = pipeline(dict(img=whole, bbox=bbox))['img']
    assert found.shape == (227, 227)
    for middle in (found[113], found[:, 113]):
        inside = np.flatnonzero(middle > 127)
        assert abs(inside[0] - 16) <= 1
        assert abs(inside[-1] - 210) <= 1


def test_is_built_by_its_bare_name():
    transform = TRANSFORMS.build(dict(type='CropBox', context=1.5, pad_value=[104, 116, 124]))
    assert isinstance(transform, CropBox)
    assert repr(transform) == 'CropBox(context=1.5, pad_value=[104, 116, 124])'


@pytest.mark.parametrize(
    ('wrong', 'error', 'found'),
    [
        (dict(context=0.9), ValueError, '`context`.*Found 0.9'),
        (dict(context=float('nan')), ValueError, '`context`.*Found nan'),
        (dict(context='2'), TypeError, "`context`.*Found '2'"),
        (dict(pad_value='mean'), TypeError, "`pad_value`.*Found 'mean'"),
        (dict(pad_value=(1, None, 3)), TypeError, '`pad_value`.*Found'),
        (dict(pad_value=()), TypeError, '`pad_value`.*Found'),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(wrong: dict, error: type[Exception], found: str):
    with pytest.raises(error, match=found):
        CropBox(**wrong)


@pytest.mark.parametrize(
    'bbox',
    [(3, 3, 3, 5), (5, 3, 3, 5), (0, 12, 5, 14), (20, 0, 22, 5), (-4, 0, 0, 5), (0, -3, 5, 0), (0, 0, float('nan'), 5)],
    ids=str,
)
def test_boxes_without_pixels_of_the_image_are_refused(bbox: tuple):
    with pytest.raises(ValueError, match=r'`bbox`.*20 x 12'):
        crop(bbox)


def test_other_numbers_of_boxes_and_of_channels_are_refused():
    for bbox in ([(0, 0, 3, 3)], (0, 0, 3), ()):
        with pytest.raises(ValueError, match='`bbox` should be one box'):
            crop(bbox)
    with pytest.raises(ValueError, match=r"needs the box.*Found \['img'\]"):
        CropBox()(dict(img=image()))
    with pytest.raises(ValueError, match=r'`pad_value`.*Found 3 for an image of shape \(12, 20\)'):
        crop((0, 0, 3, 3), pad_value=(1, 2, 3), channels=None)

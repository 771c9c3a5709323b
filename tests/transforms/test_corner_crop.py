import numpy as np
import pytest
from mmengine.registry import TRANSFORMS

import mmseg_nondecomp
from mmseg_nondecomp.transforms import CornerCrop

CORNERS = ('top-left', 'top-right', 'bottom-left', 'bottom-right')


def image(height=7, width=9, channels=(3,)):
    return np.random.default_rng(0).integers(0, 256, (height, width, *channels), dtype=np.uint8)


@pytest.mark.parametrize('channels', [(), (1,), (3,)])
@pytest.mark.parametrize('size', [4, (5, 2), [1, 9], 7])
@pytest.mark.parametrize('corner', CORNERS)
def test_each_pixel_is_as_far_from_its_corner_as_in_the_image(corner, size, channels):
    whole = image(channels=channels)
    found = CornerCrop(size, corner)(dict(img=whole.copy()))
    height, width = (size, size) if isinstance(size, int) else size
    assert found['img'].shape[:2] == found['img_shape'] == (height, width)
    assert found['img'].dtype == whole.dtype
    for y in range(height):
        for x in range(width):
            row = y if 'top' in corner else 6 - (height - 1 - y)
            column = x if 'left' in corner else 8 - (width - 1 - x)
            assert (found['img'][y, x] == whole[row, column]).all()


@pytest.mark.parametrize('corner', CORNERS)
def test_a_crop_of_the_size_of_the_image_is_the_image(corner):
    assert (CornerCrop((7, 9), corner)(dict(img=image()))['img'] == image()).all()


def test_other_keys_are_unchanged_and_the_crop_is_a_copy():
    whole = image()
    found = CornerCrop(3, 'top-left')(dict(img=whole, gt_label=4, ori_shape=(7, 9)))
    assert (found['gt_label'], found['ori_shape']) == (4, (7, 9))
    found['img'][:] = 0
    assert (whole == image()).all()


@pytest.mark.parametrize('size', [8, (8, 1), (1, 10)])
def test_an_image_that_is_smaller_than_the_crop_is_refused(size):
    with pytest.raises(ValueError, match=r'`crop_size` should be at most the size of the image, 7 x 9\. Found'):
        CornerCrop(size, 'top-left')(dict(img=image()))


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        (dict(crop_size=0), ValueError, '`crop_size`.*Found 0'),
        (dict(crop_size=(3, -1)), ValueError, '`crop_size`.*Found -1'),
        (dict(crop_size=2.0), TypeError, '`crop_size`.*Found 2.0'),
        (dict(crop_size=True), TypeError, '`crop_size`.*Found True'),
        (dict(crop_size=(1, 2, 3)), ValueError, r'`crop_size`.*Found \(1, 2, 3\)'),
        (dict(crop_size=()), ValueError, r'`crop_size`.*Found \(\)'),
        (dict(corner='center'), ValueError, "`corner`.*Found 'center'"),
        (dict(corner=0), ValueError, '`corner`.*Found 0'),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        CornerCrop(**dict(crop_size=3, corner='top-left') | arguments)


def test_it_is_registered_and_exported():
    built = TRANSFORMS.build(dict(type='CornerCrop', crop_size=3, corner='top-right'))
    assert isinstance(built, mmseg_nondecomp.CornerCrop)
    assert repr(built) == "CornerCrop(crop_size=(3, 3), corner='top-right')"

import itertools

import pytest
import torch
import torch.nn.functional as F

from mmseg_nondecomp.functional import predict_in_tiles

AXES = [(length, size, stride) for length in range(1, 15) for size in range(1, 8) for stride in range(1, size + 1)]


def places(height, width):
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing='ij')
    return torch.stack([y, x]).expand(2, -1, -1, -1)


def starts(tile):
    return tile[..., :1, :1].expand_as(tile)


def deciding_start(pixel, length, size, stride):
    """Search the tiles of an axis for the one with the nearest centre; of two, the first."""
    size, tiles, start = min(size, length), [], 0
    while start + size < length:
        tiles.append(start)
        start += stride
    tiles.append(length - size)
    return min(tiles, key=lambda start: abs(2 * pixel + 1 - (2 * start + size)))


def integers(*shape):
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(sum(shape))).double()


def network(reach):
    """Return a network whose receptive field reaches exactly that far in both directions."""
    weights = [integers(3, 2, 3, 3), *[integers(3, 3, 3, 3) for _ in range(reach - 1)]]

    def predict(images):
        for weight in weights:
            images = F.conv2d(images, weight, padding=1)
        return images

    return predict


@pytest.mark.parametrize('axis', [0, 1], ids=['down', 'across'])
def test_each_pixel_is_decided_by_the_tile_with_the_nearest_centre(axis):
    for length, size, stride in AXES:
        shape, crop_size, strides = [3, 3], [5, 5], [5, 5]
        shape[axis], crop_size[axis], strides[axis] = length, size, stride
        found = predict_in_tiles(starts, places(*shape), tuple(crop_size), tuple(strides))
        expected = torch.tensor([deciding_start(pixel, length, size, stride) for pixel in range(length)])
        expected = expected.view([-1, 1] if axis == 0 else [1, -1]).expand(shape)
        assert torch.equal(found[1, axis], expected), (length, size, stride)
        assert not found[:, 1 - axis].any()


def test_both_axes_at_once_and_the_pixel_in_the_middle_of_an_overlap_is_decided_by_the_first_tile():
    found = predict_in_tiles(starts, places(9, 11), (5, 4), (3, 2))
    for y, x in itertools.product(range(9), range(11)):
        assert found[0, :, y, x].tolist() == [deciding_start(y, 9, 5, 3), deciding_start(x, 11, 4, 2)]
    # Tiles of the pixels 0 to 9, 5 to 14 and, moved inwards, 7 to 16.
    found = predict_in_tiles(starts, places(1, 17), (1, 10), (1, 5))[0, 1, 0]
    assert found.tolist() == [0] * 8 + [5] * 3 + [7] * 6


@pytest.mark.parametrize('overlap', [2, 3, 4, 5, 6])
def test_equals_the_whole_prediction_up_to_a_receptive_field_of_half_the_overlap(overlap):
    images = integers(2, 2, 31, 37)
    for crop_size in ((12, 13), (9, 31), (40, 11)):
        stride = tuple(side - overlap for side in crop_size)
        near, far = network(overlap // 2), network(overlap // 2 + 1)
        assert torch.equal(predict_in_tiles(near, images, crop_size, stride), near(images))
        assert not torch.equal(predict_in_tiles(far, images, crop_size, stride), far(images))


def test_each_tile_is_predicted_once_and_scores_keep_their_dtype_and_have_gradients():
    seen, images = [], integers(2, 3, 8, 9)
    for crop_size in ((8, 9), (10, 9), (8, 100)):
        assert torch.equal(predict_in_tiles(lambda tile: seen.append(tile) or tile, images, crop_size, (1, 1)), images)
    assert len(seen) == 3
    assert all(torch.equal(tile, images) for tile in seen)
    seen.clear()
    predict_in_tiles(lambda tile: seen.append(tile) or tile, places(10, 9), (4, 3), (3, 3))
    assert [tile[0, :, 0, 0].tolist() for tile in seen] == [[y, x] for y in (0, 3, 6) for x in (0, 3, 6)]
    assert {tuple(tile.shape[2:]) for tile in seen} == {(4, 3)}
    images = torch.rand(1, 2, 5, 6, requires_grad=True)
    found = predict_in_tiles(lambda tile: tile.double().sum(1, keepdim=True), images, (3, 3), (2, 2))
    assert found.dtype == torch.float64
    found.sum().backward()
    assert torch.equal(images.grad, torch.ones_like(images))


@pytest.mark.parametrize(
    ('crop_size', 'stride', 'message'),
    [
        ((4, 4), (4, 5), r'`stride` should be at most `crop_size`, \(4, 4\), or gaps stay. Found \(4, 5\)'),
        ((4, 0), (4, 4), r'`crop_size`.*Found \(4, 0\)'),
        (256, (4, 4), '`crop_size`.*Found 256'),
        ((4, 4), (4, 0.5), '`stride`'),
        ((4, 4), (4, 4, 4), '`stride`'),
    ],
)
def test_sizes_and_strides_out_of_range_are_named(crop_size, stride, message):
    with pytest.raises(ValueError, match=message):
        predict_in_tiles(lambda tile: tile, places(8, 8), crop_size, stride)


def test_scores_that_do_not_have_the_size_of_the_tile_are_named():
    with pytest.raises(ValueError, match=r'size of a tile, \(4, 4\). Found \(2, 2\)'):
        predict_in_tiles(lambda tile: tile[..., ::2, ::2], places(8, 8), (4, 4), (4, 4))

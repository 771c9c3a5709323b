r"""Predictions of a large image from overlapping tiles, each pixel decided by one of them.

Along an axis, tiles :math:`[a_k, a_k + s)` start a stride apart, and the last is moved inwards to end with the image.
The overlap of two neighbours, :math:`[a_{k+1}, a_k + s)`, is cut in the middle: the tile before decides the first half,
the next one the second. All tiles have one size, so each pixel is decided by the tile with the nearest centre, which
gives it the most context on its poorer side; a pixel in the middle of an odd overlap by the first of two.

For an overlap of :math:`o = s - \text{stride}`, there are :math:`\lfloor o/2 \rfloor` pixels or more between a pixel
that a tile decides and any end of the tile inside the image. A network whose receptive field reaches no further
predicts the same as from the whole image.

Reference:
    S. Rota Bulò, G. Neuhold, P. Kontschieder: Loss Max-Pooling for Semantic Image Segmentation. CVPR 2017, section 5.2,
    "optimized tiling", and with no overlap "efficient tiling". https://arxiv.org/abs/1704.02966
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Tile(NamedTuple):
    """A tile along one axis."""

    seen: slice  # pixels of the image that the tile covers
    decided: slice  # pixels of the image that the tile decides

    @property
    def kept(self) -> slice:
        """Part of the prediction of the tile that is used."""
        return slice(self.decided.start - self.seen.start, self.decided.stop - self.seen.start)


def predict_in_tiles(
    predict: Callable[[Tensor], Tensor], images: Tensor, crop_size: tuple[int, int], stride: tuple[int, int]
) -> Tensor:
    """Compute the scores [N, K, H, W] of images from tiles that overlap by ``crop_size - stride``, without averaging.

    Args:
        predict: Computes scores [N, K, h, w] of tiles [N, C, h, w].
        images: Of shape [N, C, H, W].
        crop_size: Height and width of the tiles; where the image is smaller, that of the image.
        stride: From one tile to the next, down and across, at most ``crop_size``.

    Raises:
        ValueError: If a size or a stride is out of range, or the scores of a tile are not of its size.

    Example:
        >>> images = torch.arange(6.0).view(1, 1, 1, 6)
        >>> predict_in_tiles(lambda tile: tile - tile.mean(), images, crop_size=(1, 4), stride=(1, 2))
        tensor([[[[-1.5000, -0.5000,  0.5000, -0.5000,  0.5000,  1.5000]]]])
    """
    check_tiling(crop_size, stride)
    rows, columns = (tiles(*axis) for axis in zip(images.shape[2:], crop_size, stride, strict=True))

    def decide(row: Tile, column: Tile) -> Tensor:
        tile = images[..., row.seen, column.seen]
        scores = predict(tile)
        if scores.shape[2:] != tile.shape[2:]:
            raise ValueError(
                f'Parameter `predict` should give scores of the size of a tile, {tuple(tile.shape[2:])}. '
                f'Found {tuple(scores.shape[2:])}.'
            )
        return scores[..., row.kept, column.kept]

    return torch.cat([torch.cat([decide(row, column) for column in columns], -1) for row in rows], -2)


def tiles(length: int, size: int, stride: int) -> list[Tile]:
    """Return the tiles of an axis, from its start to its end.

    Example:
        >>> [(tile.seen, tile.decided) for tile in tiles(7, 4, 2)][-1]
        (slice(3, 7, None), slice(5, 7, None))
    """
    size = min(size, length)
    starts = [min(start, length - size) for start in range(0, length - size + stride, stride)]
    borders = [0, *((before + size + start + 1) // 2 for before, start in pairwise(starts)), length]
    decided = [slice(*ends) for ends in pairwise(borders)]
    return [Tile(slice(start, start + size), part) for start, part in zip(starts, decided, strict=True)]


def check_tiling(crop_size: Any, stride: Any) -> None:
    """Raise unless these are pairs of positive integers and there is no gap between tiles."""
    for name, value in (('crop_size', crop_size), ('stride', stride)):
        is_pair = isinstance(value, (tuple, list)) and len(value) == 2
        if not is_pair or not all(isinstance(side, int) and side > 0 for side in value):
            raise ValueError(f'Parameter `{name}` should be two positive ints, a height and a width. Found {value!r}.')
    if any(step > side for step, side in zip(stride, crop_size, strict=True)):
        raise ValueError(
            f'Parameter `stride` should be at most `crop_size`, {crop_size}, or gaps stay. Found {stride}.'
        )

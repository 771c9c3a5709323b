"""Crop of an image to a box and its surroundings."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform

from mmseg_nondecomp.functional._inputs import check_number, is_number
from mmseg_nondecomp.registry import TRANSFORMS


@TRANSFORMS.register_module()
class CropBox(BaseTransform):
    """Crop of an image to its box, enlarged about its centre.

    The crop has the fewest whole pixels that hold the enlarged box. Pixels outside of the image are filled. The crops
    of R-CNN (https://arxiv.org/abs/1311.2524, appendix A), 227 x 227 pixels with a margin of 16 around the box, are
    those of ``context=227 / 195`` resized to 227 x 227, filled with the mean colour.

    Required keys: ``img``; ``bbox``, the edges left, top, right, bottom of the box in pixels, from 0. Modified keys:
    ``img``, ``img_shape``. The box is not changed.

    Args:
        context: Factor of both sides of the box, at least 1.
        pad_value: Value outside of the image: a number, or one for each channel as loaded, which is blue, green, red.

    Example:
        >>> image = np.arange(12).reshape(3, 4)
        >>> CropBox()(dict(img=image, bbox=[1, 0, 3, 2]))['img']
        array([[1, 2],
               [5, 6]])
        >>> CropBox(context=2.0, pad_value=-1)(dict(img=image, bbox=[1, 0, 3, 2]))['img']
        array([[-1, -1, -1, -1],
               [ 0,  1,  2,  3],
               [ 4,  5,  6,  7],
               [ 8,  9, 10, 11]])
    """

    def __init__(self, context: float = 1.0, pad_value: float | Sequence[float] = 0) -> None:
        check_number('context', context, '[1, inf)')
        fills = [pad_value] if not isinstance(pad_value, (list, tuple)) else pad_value
        if not fills or not all(is_number(fill) for fill in fills):
            raise TypeError(f'Parameter `pad_value` should be a number, or one for each channel. Found {pad_value!r}.')
        self.context = context
        self.pad_value = pad_value

    def transform(self, results: dict[str, Any]) -> dict[str, Any]:
        """Crop the image."""
        image = results['img']
        height, width = image.shape[:2]
        if isinstance(self.pad_value, Sequence) and image.shape[2:] != (len(self.pad_value),):
            raise ValueError(
                'Parameter `pad_value` should hold a number for each channel of the image. '
                f'Found {len(self.pad_value)} for an image of shape {image.shape}.'
            )
        left, top, right, bottom = self._crop(results, width, height)
        crop = np.empty((bottom - top, right - left, *image.shape[2:]), image.dtype)
        crop[...] = self.pad_value
        rows, columns = slice(max(top, 0), min(bottom, height)), slice(max(left, 0), min(right, width))
        inside = image[rows, columns]
        y, x = rows.start - top, columns.start - left
        crop[y : y + inside.shape[0], x : x + inside.shape[1]] = inside
        results['img'] = crop
        results['img_shape'] = crop.shape[:2]
        return results

    def _crop(self, results: dict[str, Any], width: int, height: int) -> tuple[int, int, int, int]:
        """Return the edges of the crop."""
        if 'bbox' not in results:
            raise ValueError(f'CropBox needs the box of each image, `bbox`. Found {sorted(results)}.')
        box = np.asarray(results['bbox'], np.float64)
        if box.shape != (4,):
            raise ValueError(f'Key `bbox` should be one box: left, top, right, bottom. Found {results["bbox"]!r}.')
        left, top, right, bottom = box.tolist()
        # Written so that NaN is refused.
        if not (left < right and top < bottom and left < width and top < height and right > 0 and bottom > 0):
            raise ValueError(
                f'Key `bbox` should have left < right and top < bottom, and share pixels with the image of '
                f'{width} x {height}. Found {box.tolist()}.'
            )
        x, y = (right - left) * (self.context - 1) / 2, (bottom - top) * (self.context - 1) / 2
        return math.floor(left - x), math.floor(top - y), math.ceil(right + x), math.ceil(bottom + y)

    def __repr__(self) -> str:
        return f'{type(self).__name__}(context={self.context}, pad_value={self.pad_value})'

"""Crop at a corner of an image."""

from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform

from mmseg_nondecomp.functional._inputs import check_integer, check_option
from mmseg_nondecomp.registry import TRANSFORMS

CORNERS = ('top-left', 'top-right', 'bottom-left', 'bottom-right')


@TRANSFORMS.register_module()
class CornerCrop(BaseTransform):
    """Crop of fixed size at a corner of an image.

    With MMCV's ``TestTimeAug``, ``CenterCrop`` and ``RandomFlip`` it makes the ten crops of AlexNet
    (https://papers.nips.cc/paper/4824-imagenet-classification-with-deep-convolutional-neural-networks, section 4.1):
    the four corners and the centre, each with its mirror image.

    Required key: ``img``. Modified keys: ``img``, ``img_shape``. The transform is for image classification: label maps
    and boxes are not changed.

    Args:
        crop_size: Height and width, or one number for both.
        corner: 'top-left', 'top-right', 'bottom-left' or 'bottom-right'.

    Example:
        >>> image = np.arange(12).reshape(3, 4)
        >>> CornerCrop(crop_size=2, corner='bottom-right')(dict(img=image))['img']
        array([[ 6,  7],
               [10, 11]])
    """

    def __init__(self, crop_size: int | tuple[int, int], corner: str) -> None:
        size = tuple(crop_size) if isinstance(crop_size, (tuple, list)) else (crop_size, crop_size)
        for side in size:
            check_integer('crop_size', side, lowest=1)
        if len(size) != 2:
            raise ValueError(f'Parameter `crop_size` should be one or two integers. Found {crop_size!r}.')
        check_option('corner', corner, CORNERS)
        self.crop_size = size
        self.corner = corner

    def transform(self, results: dict[str, Any]) -> dict[str, Any]:
        """Crop the image."""
        image = results['img']
        (height, width), (rows, columns) = image.shape[:2], self.crop_size
        if height < rows or width < columns:
            raise ValueError(
                f'Parameter `crop_size` should be at most the size of the image, {height} x {width}. '
                f'Found {rows} x {columns}.'
            )
        top = height - rows if self.corner.startswith('bottom') else 0
        left = width - columns if self.corner.endswith('right') else 0
        results['img'] = np.ascontiguousarray(image[top : top + rows, left : left + columns])
        results['img_shape'] = self.crop_size
        return results

    def __repr__(self) -> str:
        return f'{type(self).__name__}(crop_size={self.crop_size}, corner={self.corner!r})'

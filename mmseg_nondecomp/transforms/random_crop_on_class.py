"""Random crop that holds the sampled class."""

from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform
from mmcv.transforms.utils import cache_randomness

from mmseg_nondecomp.registry import TRANSFORMS

TRIES = 10  # Number of attempts of MMSegmentation's crop to satisfy ``cat_max_ratio``

Box = tuple[int, int, int, int]


@TRANSFORMS.register_module()
class RandomCropOnClass(BaseTransform):
    """MMSegmentation's ``RandomCrop``, at a place of the sampled class.

    For an image that a class-driven sampler drew for a class, one pixel of the class is drawn uniformly, and the crop
    is drawn from all those that hold it. For any other image, or if the class is no longer in the label map, it is a
    plain random crop, so the transform fits any pipeline.

    An object of a pixel or two can be lost when an image is scaled down. If the class is missing from the label map, it
    is written to one pixel, at a place from the class index; put rotations and the like after the crop. Images that
    were flipped or combined before are not changed in this way. As in the stock crop, images smaller than the crop are
    not changed; the data preprocessor pads them.

    Required keys: ``img``, ``gt_seg_map``; ``sample_idx``, which MMEngine's data sets set. Modified keys: ``img``,
    ``img_shape`` and those named in ``seg_fields``.

    Args:
        crop_size: Height and width, or one number for both.
        cat_max_ratio: Largest share of the valid pixels that one class may have. If it is below 1, a crop with a larger
            share, or without a second class, is drawn again, up to 10 times.
        ignore_index: The label of pixels without a class.
    """

    def __init__(self, crop_size: int | tuple[int, int], cat_max_ratio: float = 1.0, ignore_index: int = 255) -> None:
        size = (crop_size, crop_size) if isinstance(crop_size, int) else tuple(crop_size)
        if not all(isinstance(side, int) and not isinstance(side, bool) for side in size):
            raise TypeError(f'Parameter `crop_size` should be one or two integers. Found {crop_size!r}.')
        if len(size) != 2 or min(size) < 1:
            raise ValueError(f'Parameter `crop_size` should be one or two positive integers. Found {crop_size!r}.')
        if not 0 < cat_max_ratio <= 1:
            raise ValueError(f'Parameter `cat_max_ratio` should be above 0 and at most 1. Found {cat_max_ratio!r}.')
        self.crop_size = size
        self.cat_max_ratio = cat_max_ratio
        self.ignore_index = ignore_index

    def transform(self, results: dict[str, Any]) -> dict[str, Any]:
        """Crop the image and its label maps."""
        _restore_class(results)
        top, bottom, left, right = self.crop_bbox(results)
        for key in ['img', *results.get('seg_fields', [])]:
            results[key] = results[key][top:bottom, left:right, ...]
        results['img_shape'] = results['img'].shape[:2]
        return results

    @cache_randomness
    def crop_bbox(self, results: dict[str, Any]) -> Box:
        """Draw the crop of an image: top, bottom, left and right."""
        shape = results['img'].shape[:2]
        pixels = self._pixels_of_class(results)
        if self.cat_max_ratio < 1:
            for _ in range(TRIES):
                box = self._draw(shape, pixels)
                if self._is_mixed(results['gt_seg_map'], box):
                    return box
        return self._draw(shape, pixels)

    def _pixels_of_class(self, results: dict[str, Any]) -> np.ndarray:
        """Return the pixels of the sampled class, as indices in reading order; none if there is no such class."""
        cls = getattr(results.get('sample_idx'), 'cls', None)
        if cls is None or 'gt_seg_map' not in results:
            return np.zeros(0, int)
        return np.flatnonzero(results['gt_seg_map'] == cls)

    def _draw(self, shape: tuple[int, int], pixels: np.ndarray) -> Box:
        """Draw a crop within an image that holds one of the pixels if there are any."""
        pixel = divmod(int(np.random.choice(pixels)), shape[1]) if len(pixels) else (None, None)
        top, left = (_offset(size, crop, at) for size, crop, at in zip(shape, self.crop_size, pixel, strict=True))
        return top, top + self.crop_size[0], left, left + self.crop_size[1]

    def _is_mixed(self, labels: np.ndarray, box: Box) -> bool:
        """Return whether no class has more than its share of the crop."""
        top, bottom, left, right = box
        classes, counts = np.unique(labels[top:bottom, left:right], return_counts=True)
        counts = counts[classes != self.ignore_index]
        return len(counts) > 1 and counts.max() / counts.sum() < self.cat_max_ratio

    def __repr__(self) -> str:
        return f'{type(self).__name__}(crop_size={self.crop_size}, cat_max_ratio={self.cat_max_ratio})'


def _restore_class(results: dict[str, Any]) -> None:
    """Write the sampled class to its place if scaling the image down has removed it."""
    index, labels = results.get('sample_idx'), results.get('gt_seg_map')
    cls, place = getattr(index, 'cls', None), getattr(index, 'place', None)
    if place is None or labels is None or not _is_scaled_down(results) or (labels == cls).any():
        return
    height, width = labels.shape[:2]
    results['gt_seg_map'] = labels.copy()
    results['gt_seg_map'][int(place[0] * height), int(place[1] * width)] = cls


def _is_scaled_down(results: dict[str, Any]) -> bool:
    """Return whether an image is the loaded one at a smaller scale, by the record of its transforms."""
    if results.get('flip') or 'scale_factor' not in results or 'ori_shape' not in results:
        return False
    (height, width), (x, y) = results['ori_shape'], results['scale_factor']
    return min(x, y) < 1 and np.abs(np.subtract(results['img'].shape[:2], (height * y, width * x))).max() < 1


def _offset(size: int, crop: int, at: int | None) -> int:
    """Draw the start of a crop along one axis, so that it lies within the image and holds a pixel."""
    last = max(size - crop, 0)
    low, high = (0, last) if at is None else (max(at - crop + 1, 0), min(at, last))
    return np.random.randint(low, high + 1)

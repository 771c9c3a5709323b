"""Difference between two configs: mean over seeds and bootstrap interval."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Areas = NDArray[np.float64]
"""Intersection and union of each image and class [N, 2, C]."""

N_RESAMPLES = 2000
CHUNK = 250


class Difference(NamedTuple):
    """Difference between the seeds of two configs, in points."""

    mean: float
    low: float
    high: float
    n_ahead: int
    n_seeds: int

    def __str__(self) -> str:
        return f'{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}], {self.n_ahead} of {self.n_seeds}'


def data_set_iou(weights: NDArray[np.float64], areas: Areas) -> NDArray[np.float64]:
    """Return the mean over classes of the IoU of the data set, in percent, for each row of ``weights`` [B, N]."""
    total = np.einsum('bn,nkc->bkc', weights, areas, optimize=True)
    with np.errstate(invalid='ignore'):
        return np.asarray(100 * np.nanmean(total[:, 0] / total[:, 1], axis=1))


def image_iou(weights: NDArray[np.float64], areas: Areas) -> NDArray[np.float64]:
    """Return the weighted mean over images of the mean IoU of the classes in each, in percent."""
    return _weighted_mean(weights, iou_of_images(areas))


def image_dice(weights: NDArray[np.float64], areas: Areas) -> NDArray[np.float64]:
    """Return the weighted mean over images of the mean Dice of the classes in each, in percent."""
    hits, union = areas[:, 0], areas[:, 1]
    return _weighted_mean(weights, iou_of_images(np.stack([2 * hits, hits + union], 1)))


def _weighted_mean(weights: NDArray[np.float64], of_images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted mean over the images that have a value, in percent."""
    valid = ~np.isnan(of_images)
    return np.asarray(100 * (weights[:, valid] @ of_images[valid]) / weights[:, valid].sum(1))


def iou_of_images(areas: Areas) -> NDArray[np.float64]:
    """Return the mean IoU of the classes of each image; NaN for an image without valid pixels."""
    seen = areas[:, 1] > 0
    index = np.divide(areas[:, 0], areas[:, 1], out=np.zeros_like(areas[:, 0]), where=seen)
    return np.divide(index.sum(1), seen.sum(1), out=np.full(len(areas), np.nan), where=seen.any(1))


MEASURES = {'data set': data_set_iou, 'image': image_iou, 'image Dice': image_dice}


def paired_difference(ours: Sequence[Areas], theirs: Sequence[Areas], measure: str) -> Difference:
    """Return the gain of our seeds over theirs with its 95 % bootstrap interval over seeds and images.

    Seed i of ours is paired with seed i of theirs on the same images, which removes the difficulty of images and seeds
    common to both. With a single seed the interval only covers the images.

    Args:
        ours: The areas of each seed.
        theirs: The areas of the same seeds with the other config.
        measure: One of `MEASURES`.
    """
    iou = MEASURES[measure]
    generator = np.random.default_rng(0)
    n_images, n_seeds = len(ours[0]), len(ours)
    once = np.ones((1, n_images))
    gains = np.array([iou(once, a)[0] - iou(once, b)[0] for a, b in zip(ours, theirs, strict=True)])
    resampled = []
    for _ in range(N_RESAMPLES // CHUNK):
        weights = generator.multinomial(n_images, np.full(n_images, 1 / n_images), size=CHUNK).astype(float)
        by_seed = np.stack([iou(weights, a) - iou(weights, b) for a, b in zip(ours, theirs, strict=True)])
        drawn = generator.integers(n_seeds, size=(n_seeds, CHUNK))
        resampled.append(np.take_along_axis(by_seed, drawn, axis=0).mean(0))
    low, high = np.quantile(np.concatenate(resampled), (0.025, 0.975))
    return Difference(float(gains.mean()), float(low), float(high), int((gains > 0).sum()), n_seeds)

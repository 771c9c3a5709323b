"""Measures of a data set, and their differences between configs: means over seeds and bootstrap intervals."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Areas = NDArray[np.float64]
"""Intersection, union and, where they were counted, labelled pixels of each image and class [N, 2 or 3, C]."""
Measure = Callable[[NDArray[np.float64], Areas], NDArray[np.float64]]
"""Function of the weights of the images, a row for each resampled data set [B, N], and of their areas; returns [B]."""

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
    return _mean_of_classes(weights, areas, 1)


def class_accuracy(weights: NDArray[np.float64], areas: Areas) -> NDArray[np.float64]:
    """Return the mean over the labelled classes of the share of their pixels that is right, in percent."""
    return _mean_of_classes(weights, areas, 2)


def iou_of_classes(classes: Sequence[int]) -> Measure:
    """Return the measure that is the mean IoU of some classes, in percent."""
    return lambda weights, areas: _mean_of_classes(weights, areas[:, :, list(classes)], 1)


def _mean_of_classes(weights: NDArray[np.float64], areas: Areas, whole: int) -> NDArray[np.float64]:
    """Return the mean over classes of their intersections, summed over images, as a share of the areas ``whole``."""
    total = np.einsum('bn,nkc->bkc', weights, areas[:, [0, whole]], optimize=True)
    with np.errstate(invalid='ignore'):
        return np.asarray(100 * np.nanmean(total[:, 0] / total[:, 1], axis=1))


def image_iou(weights: NDArray[np.float64], areas: Areas) -> NDArray[np.float64]:
    """Return the weighted mean over images of the mean IoU of the classes in each, in percent."""
    return _weighted_mean(weights, iou_of_images(areas))


def image_dice(weights: NDArray[np.float64], areas: Areas) -> NDArray[np.float64]:
    """Return the weighted mean over images of the mean Dice of the classes in each, in percent."""
    hits, union = areas[:, 0], areas[:, 1]
    return _weighted_mean(weights, iou_of_images(np.stack([2 * hits, hits + union], 1)))


def class_image_iou(weights: NDArray[np.float64], areas: Areas) -> NDArray[np.float64]:
    """Return the weighted mean over images of the mean IoU of all classes, 1 for a class that is absent, in percent.

    A class is absent from an image if it is neither labelled nor decided there. The convention is that of equation 3 of
    the Lovász-Softmax paper (https://arxiv.org/abs/1705.08790).
    """
    hits, union = areas[:, 0], areas[:, 1]
    index = np.divide(hits, union, out=np.ones_like(hits), where=union > 0)
    return _weighted_mean(weights, index.mean(1))


def _weighted_mean(weights: NDArray[np.float64], of_images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted mean over the images that have a value, in percent."""
    valid = ~np.isnan(of_images)
    return np.asarray(100 * (weights[:, valid] @ of_images[valid]) / weights[:, valid].sum(1))


def iou_of_images(areas: Areas) -> NDArray[np.float64]:
    """Return the mean IoU of the classes of each image; NaN for an image without valid pixels."""
    seen = areas[:, 1] > 0
    index = np.divide(areas[:, 0], areas[:, 1], out=np.zeros_like(areas[:, 0]), where=seen)
    return np.divide(index.sum(1), seen.sum(1), out=np.full(len(areas), np.nan), where=seen.any(1))


MEASURES: dict[str, Measure] = {'data set': data_set_iou, 'image': image_iou, 'image Dice': image_dice}


def value_of(measure: Measure, areas: Areas) -> float:
    """Return a measure of the images as they are."""
    return float(measure(np.ones((1, len(areas))), areas)[0])


def paired_difference(ours: Sequence[Areas], theirs: Sequence[Areas], measure: str | Measure) -> Difference:
    """Return the gain of our seeds over theirs with its 95 % bootstrap interval over seeds and images.

    Seed i of ours is paired with seed i of theirs on the same images, which removes the difficulty of images and seeds
    common to both. With a single seed the interval only covers the images.

    Args:
        ours: The areas of each seed.
        theirs: The areas of the same seeds with the other config.
        measure: One of `MEASURES`, or another measure.
    """
    measure = MEASURES[measure] if isinstance(measure, str) else measure
    gains = np.array([value_of(measure, a) - value_of(measure, b) for a, b in zip(ours, theirs, strict=True)])
    mine, other = resampled([ours, theirs], measure)
    low, high = np.quantile(mine - other, (0.025, 0.975))
    return Difference(float(gains.mean()), float(low), float(high), int((gains > 0).sum()), len(gains))


def shares_first(groups: Mapping[str, Sequence[Areas]], measure: str | Measure) -> dict[str, float]:
    """Return for each config the share of the resampled comparisons in which it is the first of all.

    Configs that are equally high share a first place. The shares add up to 1.

    Args:
        groups: The areas of each seed, for each config; seeds and images are the same for all.
        measure: One of `MEASURES`, or another measure.
    """
    values = resampled(list(groups.values()), MEASURES[measure] if isinstance(measure, str) else measure)
    first = values == values.max(0)
    return dict(zip(groups, (first / first.sum(0)).mean(1).tolist(), strict=True))


def resampled(groups: Sequence[Sequence[Areas]], measure: Measure) -> NDArray[np.float64]:
    """Return the mean over seeds of a measure, with seeds and images drawn anew, as often as `N_RESAMPLES`.

    Draws are paired: in each of them all configs have the same images and the same seeds.

    Args:
        groups: The areas of each config and seed; all have the same seeds and images.
        measure: The measure.

    Returns:
        Values [configs, draws].
    """
    generator = np.random.default_rng(0)
    n_seeds, n_images = len(groups[0]), len(groups[0][0])
    parts = []
    for _ in range(N_RESAMPLES // CHUNK):
        weights = generator.multinomial(n_images, np.full(n_images, 1 / n_images), size=CHUNK).astype(float)
        drawn = generator.integers(n_seeds, size=(n_seeds, CHUNK))
        by_seed = np.array([[measure(weights, areas) for areas in group] for group in groups])
        parts.append(np.take_along_axis(by_seed, drawn[None], axis=1).mean(1))
    return np.concatenate(parts, axis=1)

"""Measures of resampled test sets, and paired differences between trained models with bootstrap intervals."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from comparison.statistics import Difference
from numpy.typing import NDArray

Weights = NDArray[np.float32]
"""How often each item of the test set is drawn, for each of B resamplings [B, n]."""


class Measured(NamedTuple):
    """Measure of a trained model in percent."""

    value: float
    """On the test set."""
    resampled: NDArray[np.float64]
    """On the resampled test sets [B], the same for all models."""


def draw_weights(groups: NDArray[np.int64], n_resamples: int) -> Weights:
    """Return the weights of items that are resampled within each group [n]; the first row is the set itself."""
    generator = np.random.default_rng(0)
    weights = np.ones((1 + n_resamples, len(groups)), np.float32)
    for group in np.unique(groups):
        (members,) = np.nonzero(groups == group)
        shares = np.full(len(members), 1 / len(members))
        weights[1:, members] = generator.multinomial(len(members), shares, size=n_resamples)
    return weights


def measured(values: NDArray[np.float64]) -> Measured:
    """Return the measure in percent from its values for each row of the weights."""
    return Measured(float(100 * values[0]), 100 * values[1:])


def paired_gain(ours: Sequence[Measured], theirs: Sequence[Measured]) -> Difference:
    """Return the gain over models of the same seeds with its 95 % interval over resampled seeds and test sets."""
    gains = np.array([a.value - b.value for a, b in zip(ours, theirs, strict=True)])
    by_seed = np.stack([a.resampled - b.resampled for a, b in zip(ours, theirs, strict=True)])
    drawn = np.random.default_rng(1).integers(len(ours), size=by_seed.shape)
    resampled = np.take_along_axis(by_seed, drawn, axis=0).mean(0)
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Difference(float(gains.mean()), float(low), float(high), int((gains > 0).sum()), len(gains))


def average_precision(
    is_positive: NDArray[np.bool_],
    weights: Weights,
    n_positives: NDArray[np.float64] | None = None,
    *,
    envelope: bool = False,
) -> NDArray[np.float64]:
    """Return the average precision of weighted items in descending order of their scores, for each row of weights.

    Args:
        is_positive: Whether an item is a positive, of shape [n].
        weights: The weights of the items, of shape [B, n].
        n_positives: The weighted number of positives [B], where some of them are not among the items.
        envelope: Whether the precision at a recall is the highest at this or any higher recall, as in Pascal VOC.
    """
    of_positives = np.where(is_positive, weights, 0)
    above = weights.cumsum(1, dtype=np.float64)
    hits = of_positives.cumsum(1, dtype=np.float64)
    precision = np.divide(hits, above, out=np.zeros_like(hits), where=above > 0)
    if envelope:
        precision = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    total = of_positives.sum(1, dtype=np.float64) if n_positives is None else n_positives
    return np.asarray((precision * of_positives).sum(1) / np.maximum(total, 1))

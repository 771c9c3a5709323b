"""Oracle of decisions for the expected IoU or Dice of independent pixels, in float64 and without an approximation.

Sets of n pixels are integers below 2^n; bit j is pixel j. With a decided set D, a true set Y, the numerator N and the
denominator M of a measure, IoU has `N = |D ∩ Y|` and `M = |D ∪ Y|`, Dice has `N = 2 |D ∩ Y|` and `M = |D| + |Y|`. If
both sets are empty, the measure is `zero_division`.

* For up to 12 pixels, expectations are sums over all true sets, for all decided sets. The optimum of a label map is
  searched among all maps.
* For larger images, the value of one decided set is a sum over the Poisson-binomial distributions of the hits and the
  misses. They are products of polynomials, multiplied in a tree by the fast Fourier transform.

The empty set has its exact expectation also where other sets have an approximation of Nowozin.

Reference: Nowozin, "Optimal decisions from probabilistic models: the intersection-over-union case", CVPR 2014.
"""

from functools import cache

import numpy as np

ROWS = 512  # decided sets whose expectations are computed at a time
NEGLIGIBLE = 1e-19  # probability of a count that is left out


@cache
def sizes_of_sets(n):
    """Return the number of pixels of each of the 2^n sets."""
    return np.array([bin(s).count('1') for s in range(2**n)], np.int16)


def probabilities_of_sets(p):
    """Return the probability of each of the 2^n true sets, for probabilities [n]."""
    found = np.ones(1)
    for p_j in p:
        found = np.concatenate([found * (1 - p_j), found * p_j])
    return found


def parts_of_measure(decided, n, measure):
    """Return numerator and denominator for some decided sets and all true sets, of shape [R, 2^n]."""
    sizes = sizes_of_sets(n)
    true = np.arange(2**n)
    hits = sizes[decided[:, None] & true].astype(float)
    if measure == 'iou':
        return hits, sizes[decided[:, None] | true].astype(float)
    return 2 * hits, sizes[decided][:, None] + sizes[true].astype(float)


def values_of_sets(p, measure='iou', expectation='exact', zero_division=0.0):
    """Return the expected measure of each of the 2^n decided sets, or its approximation, for probabilities [n]."""
    n, weight = len(p), probabilities_of_sets(p)
    found = []
    for decided in np.array_split(np.arange(2**n), max(1, 2**n // ROWS)):
        N, M = parts_of_measure(decided, n, measure)
        if expectation == 'exact':
            found.append(np.divide(N, M, out=np.full_like(N, zero_division), where=M > 0) @ weight)
            continue
        with np.errstate(divide='ignore', invalid='ignore'):
            EN, EM = N @ weight, M @ weight
            value = EN / EM
            if expectation == 'second_order':
                covariance, variance = (N * M) @ weight - EN * EM, (M * M) @ weight - EM**2
                value = value - covariance / EM**2 + variance * EN / EM**3
        found.append(value)
    found = np.concatenate(found)
    found[0] = zero_division * weight[0]
    return found


@cache
def maps_as_sets(n, n_classes):
    """Return the set of the pixels of each class for each of the C^n label maps, of shape [C, C^n]."""
    found = np.zeros((n_classes, n_classes**n), np.int16)
    for j in range(n):
        label = np.arange(n_classes**n) // n_classes**j % n_classes
        for c in range(n_classes):
            found[c] |= (label == c).astype(np.int16) << j
    return found


def values_of_maps(p, measure='iou', expectation='exact', zero_division=0.0):
    """Return the sum of the classes' values for each of the C^n label maps, for probabilities [C, n]."""
    sets = maps_as_sets(p.shape[1], len(p))
    return sum(values_of_sets(q, measure, expectation, zero_division)[s] for q, s in zip(p, sets, strict=True))


def index_of_map(label, n_classes):
    """Return the place of a label map [n] among all of them; that of a set, a map of 0 and 1, is the set."""
    return int(sum(int(c) * n_classes**j for j, c in enumerate(label)))


def poisson_binomial(p):
    """Return the distribution of the number of true pixels, of shape [n + 1]."""
    p = np.asarray(p, float)
    leaves = 1 << max(0, len(p) - 1).bit_length()
    padded = np.concatenate([p, np.zeros(leaves - len(p))])
    found = np.stack([1 - padded, padded], 1)
    while len(found) > 1:
        degree = found.shape[1] - 1
        spectrum = np.fft.rfft(found, 3 * degree, axis=1)  # a length with small prime factors
        found = np.fft.irfft(spectrum[::2] * spectrum[1::2], 3 * degree, axis=1)[:, : 2 * degree + 1]
    return found[0, : len(p) + 1]


def value_of_set(p, decided, measure='iou', zero_division=0.0):
    """Return the expected measure of a decided set, bool of shape [n]."""
    p, decided = np.asarray(p, float), np.asarray(decided, bool)
    size = int(decided.sum())
    of_hits, of_misses = poisson_binomial(p[decided]), poisson_binomial(p[~decided])
    if size == 0:
        return zero_division * np.prod(1 - p)
    hits, misses = (np.flatnonzero(q > NEGLIGIBLE) for q in (of_hits, of_misses))
    I, S = hits[:, None], misses[None, :]
    value = I / (size + S) if measure == 'iou' else 2 * I / (size + I + S)
    return float(of_hits[hits] @ value @ of_misses[misses])


def value_of_map(p, label, measure='iou', zero_division=0.0):
    """Return the sum of the classes' expected measures, for probabilities [C, n] and labels [n]."""
    return sum(value_of_set(q, label == c, measure, zero_division) for c, q in enumerate(p))

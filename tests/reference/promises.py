"""Oracles of promises, from the distributions of SciPy and searches over everything.

For a promised recall `r` with an error of at most `delta`:

* `error_of_items` is the probability that more than `m (1 - r)` of `m` new positives are below the `(k + 1)`-th
  smallest of `n` fitted ones;
* `most_misses` searches all `k` and many sizes of the new set;
* `sample_bound` bounds the probability that `n` of `n + m` numbers in [0, 1] with a total have at least some mean;
* `smallest_mean` searches the mean for which it is `delta`;
* `population_error` is the exact probability for images that are found as a whole or not at all.
"""

import math
from fractions import Fraction

import numpy as np
from scipy.optimize import brentq
from scipy.stats import beta, betabinom, hypergeom


def misses_of(m, r):
    """Return how many of m positives may be missed, with the recall as a decimal fraction."""
    return math.floor((1 - Fraction(str(r))) * m)


def error_of_items(n, k, m, r):
    return betabinom.sf(misses_of(m, r), m, k + 1, n - k)


def error_in_population(n, k, r):
    return beta.sf(1 - r, k + 1, n - k)


def sizes_from(m, r):
    """Return sizes of new sets: all of the first ones, and ever fewer of the larger ones."""
    near = range(m, m + int(20 / (1 - r)) + 60)
    return sorted({*near, *(int(m * factor) for factor in np.geomspace(1, 1000, 60))})


def most_misses(n, r, delta, n_new):
    """Return the largest number of misses with an error of at most delta for all new sets; -1 if there is none."""
    k = int(np.arange(-1, n)[np.r_[True, error_in_population(n, np.arange(n), r) <= delta]].max())
    if n_new == math.inf:
        return k
    sizes = np.array(sizes_from(n_new, r))
    allowed = np.array([misses_of(int(m), r) for m in sizes])
    while k >= 0 and betabinom.sf(allowed, sizes, k + 1, n - k).max() > delta:
        k -= 1
    return k


def sample_bound(n, m, total, mean):
    """Return the least `E(S - h)_+ / (n mean - h)` for a sample of n from ones, zeros and a fraction of this total."""
    ones = min(math.floor(total), n + m - 1)
    fraction = total - ones
    values, masses = [], []
    for drawn in (0, 1):
        s = np.arange(n - drawn + 1)
        p = hypergeom.pmf(s, n + m - 1, ones, n - drawn)
        values.append(s + drawn * fraction)
        masses.append(p * (n if drawn else m) / (n + m))
    values, masses = np.concatenate(values), np.concatenate(masses)
    level = n * mean
    # The ratio is monotone between neighbouring values: its least value is at one of them, or in the limit.
    bounds = [masses[values >= level - 1e-12].sum() if not (values > level + 1e-12).any() else 1.0]
    below = values[values < level - 1e-9]
    bounds += [(np.maximum(values - h, 0) * masses).sum() / (level - h) for h in below]
    return min(1.0, min(bounds))


def smallest_mean(n, m, r, delta):
    """Return the mean of n fitted numbers from which on that of m new ones is r, for this m; infinity if none is."""

    def excess(mean):
        return sample_bound(n, m, n * mean + m * r, mean) - delta

    if excess(1.0) > 0:
        return math.inf
    return 1.0 if excess(1.0) == 0 else brentq(excess, r, 1.0, xtol=1e-12)


def population_error(n, m, mean, r):
    """Return the error for images that are found as a whole or not at all, by the number that may be missed."""
    return float(error_of_items(n, math.floor(n * (1 - mean) + 1e-9), m, r))

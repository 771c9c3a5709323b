r"""Statistics of promises: how good a measure has to be on fitted data to be kept on new data.

All bounds are finite-sample and free of assumptions on the distribution. Write :math:`r` for the promised recall,
:math:`1 - \delta` for the confidence, :math:`n` for the number of fitted units and :math:`m` for that of new ones.

**Items.** Let the threshold be the :math:`(k+1)`-th smallest of the :math:`n` scores of positives. By exchangeability,
the number of new positives below it follows the Pólya distribution, the beta-binomial of :math:`m` trials with
parameters :math:`k + 1` and :math:`n - k`; ties only make it smaller. For :math:`m \to \infty` the missed share has the
beta distribution with these parameters, which exceeds :math:`1 - r` with the probability that a binomial variable of
:math:`n` trials with probability :math:`1 - r` is at most :math:`k`.

**Images.** Let :math:`x_i(t)`, :math:`y_j(t)` be the recall in fitted and new images, non-increasing in the threshold
:math:`t`, and let :math:`t` be accepted if :math:`\bar x(t) \ge b`. Take the images together, and, on the curves joined
linearly, the point :math:`u` at which they add up to :math:`T = nb + mr`. If :math:`\bar y(t) < r` at an accepted
:math:`t`, then :math:`\bar x(u) \ge b`: for :math:`t \ge u` since :math:`\bar x` does not increase, and for
:math:`t < u` since :math:`\bar y(u) < r` leaves more than :math:`nb` to the fitted images. Hence a single event at
:math:`u` bounds the error of all thresholds. There, the fitted images are a random sample of size :math:`n` from
:math:`n + m` numbers in [0, 1] whose sum is :math:`T`. For any :math:`h < nb`, their sum :math:`S` satisfies

.. math:: P(S \ge nb) \le \frac{E(S - h)_+}{nb - h} \le \frac{E(S^* - h)_+}{nb - h},

where :math:`S^*` is the sum of a sample from as many ones as possible, zeros, and one fraction: moving two numbers
apart increases the expectation of a convex function of the sum. The bound is :math:`\delta` for some :math:`h` if
:math:`nb` is the mean of :math:`S^*` in its largest :math:`\delta` part. For :math:`m \to \infty` the sum is binomial.

Reference:
    W. Hoeffding: Probability Inequalities for Sums of Bounded Random Variables. JASA 1963.

    V. Bentkus: On Hoeffding's Inequalities. Annals of Probability 2004.

    S. Bates, A. Angelopoulos, L. Lei, J. Malik, M. Jordan: Distribution-Free, Risk-Controlling Prediction Sets.
    JACM 2021. https://arxiv.org/abs/2101.02703

    A. Angelopoulos, S. Bates, E. Candès, M. Jordan, L. Lei: Learn then Test. 2021. https://arxiv.org/abs/2110.01052
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

DEVIATIONS = 40  # number of standard deviations around the mean beyond which a mass is below 1e-16
TEETH = 32  # number of sizes of new sets that are compared: the last of those with equally many allowed misses
NEAR = 64  # number of sizes of new sets of images that are compared, besides
SLACK = 0.99  # share of the error that is used, as sizes in between are harder by less than the rest
MOST_UNITS = 1 << 20  # number of units up to which the number that a promise needs is searched
HALVINGS = 50


class Distribution(NamedTuple):
    """Distribution of a whole number."""

    low: int  # smallest value
    masses: Tensor  # probabilities of low, low + 1, ..., float64

    def at_most(self, value: int) -> float:
        """Return the probability of values up to this one."""
        return self.masses[: max(0, value - self.low + 1)].sum().item()

    def at_least(self, value: int) -> float:
        """Return the probability of values from this one on."""
        return self.masses[max(0, value - self.low) :].sum().item()

    @property
    def values(self) -> Tensor:
        """Values in float64."""
        return self.low + torch.arange(len(self.masses), dtype=torch.float64)


def binomial(n: int, p: float) -> Distribution:
    """Return the distribution of the number of successes in n trials, for p in (0, 1)."""
    low, high = _range_of(n * p, n * p * (1 - p), 0, n)
    j = torch.arange(low, high, dtype=torch.float64)
    return _from_ratios(low, ((n - j) / (j + 1)).log() + math.log(p / (1 - p)))


def beta_binomial(m: int, a: int, b: int) -> Distribution:
    """Return the distribution of the number of successes in m trials with a probability from Beta(a, b)."""
    total = a + b
    variance = m * (a / total) * (b / total) * ((total + m) / (total + 1))
    low, high = _range_of(m * a / total, variance, 0, m)
    j = torch.arange(low, high, dtype=torch.float64)
    return _from_ratios(low, ((m - j) / (j + 1)).log() + ((j + a) / (m - j - 1 + b)).log())


def hypergeometric(population: int, ones: int, n: int) -> Distribution:
    """Return the distribution of the sum of n draws without replacement from a population of zeros and ones."""
    zeros = population - ones
    share = ones / population
    variance = n * share * (1 - share) * (population - n) / max(1, population - 1)
    low, high = _range_of(n * share, variance, max(0, n - zeros), min(n, ones))
    j = torch.arange(low, high, dtype=torch.float64)
    return _from_ratios(low, ((ones - j) / (j + 1)).log() + ((n - j) / (zeros - n + j + 1)).log())


@cache
def allowed_misses(n: int, recall: float, confidence: float, n_new: float | None = None) -> int:
    """Return how many of n fitted positives a threshold may miss for its recall on new positives; -1 if none.

    The promise holds for each new set of ``n_new`` or more positives, by default of n or more; for math.inf, for the
    population.

    Example:
        >>> allowed_misses(1000, recall=0.9, confidence=0.95), allowed_misses(1000, 0.9, 0.95, n_new=math.inf)
        (78, 84)
    """
    if n == 0:
        return -1
    error = 1 - confidence
    if n_new == math.inf:
        missed = binomial(n, 1 - recall)
        return missed.low - 1 + int((missed.masses.cumsum(0) <= error).sum())
    sizes = _hardest_sizes(n if n_new is None else int(n_new), recall)

    def is_kept(k: int, size: int, allowed: int) -> bool:
        return beta_binomial(size, k + 1, n - k).at_least(allowed + 1) <= error

    found = _last(lambda k: k < 0 or is_kept(k, *sizes[0]), -1, n)
    while found >= 0 and not all(is_kept(found, *size) for size in sizes[1:]):
        found -= 1
    return found


@cache
def required_mean(n: int, recall: float, confidence: float, n_new: float | None = None) -> float:
    """Return the mean recall of n fitted images from which on that of new images is kept; infinity if there is none.

    The promise holds for the mean over ``n_new`` or more new images, by default n or more; for math.inf, for the
    population.

    Example:
        >>> [round(required_mean(n, recall=0.9, confidence=0.95), 3) for n in (40, 100, 400)]
        [inf, 0.971, 0.94]
    """
    if n == 0:
        return math.inf
    error = 1 - confidence
    if n_new == math.inf:
        hit = binomial(n, recall)
        return _mean_of_largest(hit.values, hit.masses, error) / n
    needed = 0.0
    for m in _sizes_of_images(n if n_new is None else int(n_new), recall):
        if needed < math.inf and not _is_mean_kept(needed, n, m, recall, SLACK * error):
            needed = max(needed, _required_mean(n, m, recall, SLACK * error))
    return needed


def units_needed(is_possible: Callable[[int], bool]) -> float:
    """Return the smallest number of units for which a promise is possible; infinity if there is none in reach.

    Example:
        >>> units_needed(lambda n: allowed_misses(n, recall=0.9, confidence=0.95) >= 0)
        40
    """
    high = 1
    while not is_possible(high):
        high *= 2
        if high > MOST_UNITS:
            return math.inf
    return _last(lambda n: not is_possible(n), high // 2, high) + 1


def smallest_precise(
    hits: Sequence[int], predicted: Sequence[int], precision: float, confidence: float, starts: Sequence[int]
) -> int | None:
    """Return the first of ascending thresholds whose precision is kept in the population; None if there is none.

    ``hits`` of the ``predicted`` positives at each threshold are right; given ``predicted``, they are binomial. From
    each start, thresholds are tested in descending order up to the first failure, each sequence with an equal share of
    the error. A sequence fails no later than at its first threshold with too low a precision, except with this share
    (Learn then Test, fixed sequences with several starts). The starts must not depend on the data.

    Example:
        >>> smallest_precise([90, 60, 60], [200, 60, 60], precision=0.9, confidence=0.95, starts=[2])
        1
    """
    error = (1 - confidence) / len(starts)

    @cache
    def passes(right: int, n: int) -> bool:
        return right > precision * n and binomial(n, precision).at_least(right) <= error

    found: list[int] = []
    for start in starts:
        place = start
        while place >= 0 and passes(hits[place], predicted[place]):
            found.append(place)
            place -= 1
    return min(found, default=None)


def predictions_needed(precision: float, confidence: float, n_starts: int) -> int:
    """Return how many predicted positives are needed for a promise of precision, if all are right."""
    return math.ceil(math.log((1 - confidence) / n_starts) / math.log(precision))


def _range_of(mean: float, variance: float, lowest: int, highest: int) -> tuple[int, int]:
    """Return the values outside of which masses are negligible."""
    reach = DEVIATIONS * (1 + math.sqrt(variance))
    return max(lowest, math.floor(mean - reach)), min(highest, math.ceil(mean + reach))


def _from_ratios(low: int, log_ratios: Tensor) -> Distribution:
    """Return the distribution with these ratios of the masses of a value and the one before.

    Masses normalise themselves, which is exact where the logarithms of factorials are too large to be subtracted.
    """
    return Distribution(low, torch.cat([log_ratios.new_zeros(1), log_ratios.cumsum(0)]).softmax(0))


def _last(is_true: Callable[[int], bool], low: int, high: int) -> int:
    """Return the last number from low to high - 1 with a property that holds up to some number; it holds for low."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_true(middle) else (low, middle)
    return low


def _hardest_sizes(m: int, recall: float) -> list[tuple[int, int]]:
    """Return sizes of new sets, from m on, for which a recall is hardest to keep, and how many misses each allows.

    Larger sets are harder as long as they allow no further miss, and easier in the long run.
    """
    may_miss = 1 - Fraction(str(recall))
    allowed = math.floor(m * may_miss)
    return [(math.ceil((a + 1) / may_miss) - 1, a) for a in range(allowed, allowed + TEETH)]


def _sizes_of_images(m: int, recall: float) -> list[int]:
    """Return sizes of new sets, from m on, for which a mean recall of images is hardest to keep."""
    two_teeth = math.ceil(2 / (1 - recall))
    near = range(m, m + two_teeth + 1, math.ceil(two_teeth / NEAR))
    return [*near, *(size for size, _ in _hardest_sizes(m, recall))]


def _required_mean(n: int, m: int, recall: float, error: float) -> float:
    """Return the mean of n fitted images from which on that of m new images is kept; infinity if there is none."""
    low, high = recall, 1.0
    if not _is_mean_kept(high, n, m, recall, error):
        return math.inf
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _is_mean_kept(middle, n, m, recall, error) else (middle, high)
    return high


def _is_mean_kept(mean: float, n: int, m: int, recall: float, error: float) -> bool:
    """Return whether a mean of n fitted images is enough for m new images."""
    return mean >= recall and _mean_of_largest(*_sums_of_samples(n, m, n * mean + m * recall), error) <= n * mean


def _sums_of_samples(n: int, m: int, total: float) -> tuple[Tensor, Tensor]:
    """Return the distribution of the sum of n of n + m numbers: ones and zeros and one fraction, of this total."""
    ones = min(math.floor(total), n + m - 1)
    fraction = total - ones
    without, beside = (hypergeometric(n + m - 1, ones, drawn) for drawn in (n, n - 1))
    share = n / (n + m)  # probability that the fraction is drawn
    values = torch.cat([without.values, beside.values + fraction])
    return values, torch.cat([without.masses * (1 - share), beside.masses * share])


def _mean_of_largest(values: Tensor, masses: Tensor, share: float) -> float:
    """Return the mean of a distribution in its largest share; infinity if the largest value alone has more."""
    if masses[values == values.max()].sum() > share:
        return math.inf
    values, order = values.sort(descending=True)
    masses = masses[order]
    taken = (share - (masses.cumsum(0) - masses)).clamp(min=0).minimum(masses)
    return ((taken * values).sum() / share).item()

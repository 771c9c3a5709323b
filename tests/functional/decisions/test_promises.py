import math

import pytest
import torch
from reference import promises as reference
from scipy import stats

from mmseg_nondecomp.functional.decisions._promises import (
    _is_mean_kept,
    allowed_misses,
    beta_binomial,
    binomial,
    hypergeometric,
    predictions_needed,
    required_mean,
    smallest_precise,
    units_needed,
)

SIZES = (1, 10, 40, 77, 333)
RECALLS = (0.5, 0.7, 0.9, 0.9137, 0.99)
CONFIDENCES = (0.5, 0.95, 0.99)
each_promise = pytest.mark.parametrize(('recall', 'confidence'), [(r, c) for r in RECALLS for c in CONFIDENCES])


def largest_difference(found, expected):
    """Compare masses with those of SciPy, which may have less precision in the tails."""
    values = found.values.numpy()
    return abs(found.masses.numpy() - expected(values)).max()


def test_distributions_are_those_of_scipy():
    for n, p in ((1, 0.3), (10, 0.5), (1000, 0.9), (100_000, 0.001), (10_000_000, 0.95)):
        assert largest_difference(binomial(n, p), stats.binom(n, p).pmf) < 1e-9
    for m, a, b in ((1, 1, 1), (10, 1, 40), (1000, 78, 923), (100_000, 1, 5), (1_000_000, 99_000, 901_000)):
        assert largest_difference(beta_binomial(m, a, b), stats.betabinom(m, a, b).pmf) < 1e-7
    for population, ones, n in ((1, 1, 1), (10, 0, 3), (10, 10, 3), (200, 193, 100), (40_000, 37_000, 20_000)):
        assert largest_difference(hypergeometric(population, ones, n), stats.hypergeom(population, ones, n).pmf) < 1e-9


def test_masses_add_up_to_one_and_tails_are_those_of_scipy():
    found = binomial(10**8, 0.1)
    assert found.masses.sum().item() == pytest.approx(1, abs=1e-12)
    for k in (9_990_000, 9_995_000, 10_000_000, 10_004_000):
        assert found.at_most(k) == pytest.approx(stats.binom.cdf(k, 10**8, 0.1), rel=1e-6)
        assert found.at_least(k) == pytest.approx(stats.binom.sf(k - 1, 10**8, 0.1), rel=1e-6)
    assert found.at_most(0) == found.at_least(10**8) == 0


@each_promise
def test_misses_are_those_of_a_search_over_all_sizes_of_new_sets(recall, confidence):
    for n in SIZES:
        for n_new in (n, max(1, n // 3), math.inf):
            found = allowed_misses(n, recall, confidence, n_new)
            errors = 1 - confidence + 1e-9, 1 - confidence - 1e-9  # of 1/2, by symmetry, up to rounding
            expected = [reference.most_misses(n, recall, error, n_new) for error in errors]
            assert found in expected, (n, n_new)
        assert allowed_misses(n, recall, confidence) == allowed_misses(n, recall, confidence, n)


def test_new_sets_of_one_size_only_would_allow_more_than_a_promise_for_all_larger_ones():
    """New sets of 50 and of 59 positives may have 5 misses each."""
    assert reference.error_of_items(50, 1, 50, 0.9) < 0.06 < reference.error_of_items(50, 1, 59, 0.9)
    assert allowed_misses(50, 0.9, 0.94) == 0


def test_large_sets_approach_the_quantile():
    for n in (10**4, 10**6, 10**8):
        missed, of_population = allowed_misses(n, 0.9, 0.95), allowed_misses(n, 0.9, 0.95, math.inf)
        deviation = stats.norm.ppf(0.95) * math.sqrt(0.09 * n)
        assert of_population == pytest.approx(0.1 * n - deviation, abs=0.02 * deviation)
        assert missed == pytest.approx(0.1 * n - math.sqrt(2) * deviation, abs=0.03 * deviation)


@pytest.mark.parametrize(('n', 'm'), [(10, 10), (50, 50), (100, 30), (100, 400), (37, 91)])
@pytest.mark.parametrize('recall', [0.5, 0.9, 0.95])
def test_bound_of_the_mean_is_that_of_a_search(n, m, recall):
    for delta in (0.2, 0.05, 0.01):
        expected = reference.smallest_mean(n, m, recall, delta)
        if expected == math.inf:
            assert not _is_mean_kept(1.0, n, m, recall, delta)
        else:
            assert _is_mean_kept(min(1.0, expected + 1e-6), n, m, recall, delta)
            assert not _is_mean_kept(expected - 1e-6, n, m, recall, delta)


@each_promise
def test_bound_of_the_mean_holds_for_all_larger_sets(recall, confidence):
    for n in (10, 40, 100, 333):
        for n_new in (max(1, n // 3), n, 3 * n):
            mean = required_mean(n, recall, confidence, n_new)
            if mean == math.inf:
                continue
            for m in reference.sizes_from(n_new, recall)[::3]:
                assert _is_mean_kept(mean, n, m, recall, 1 - confidence), (n, n_new, m)
            assert mean >= required_mean(n, recall, confidence, math.inf)


@each_promise
def test_images_that_are_found_as_a_whole_keep_the_promise(recall, confidence):
    """The exact error of the worst distribution, which also tells how much the bound gives away."""
    worst = 0.0
    for n in (50, 100, 200, 500, 2000):
        for n_new in (n, 4 * n):
            mean = required_mean(n, recall, confidence, n_new)
            if mean <= 1:
                for m in reference.sizes_from(n_new, recall)[:40]:
                    worst = max(worst, reference.population_error(n, m, mean, recall))
    print(f'\nlargest error for recall {recall}: {worst:.4f} of {1 - confidence:.2f}')
    assert worst <= 1 - confidence


def test_bound_of_the_mean_moves_towards_the_recall():
    means = [required_mean(n, 0.9, 0.95) for n in (50, 100, 200, 500, 1000, 5000)]
    assert means == sorted(means, reverse=True)
    assert [round(mean, 3) for mean in means] == [0.988, 0.971, 0.954, 0.936, 0.926, 0.912]
    assert required_mean(5000, 0.9, 0.95, math.inf) == pytest.approx(0.9 + 2.063 * 0.3 / math.sqrt(5000), abs=2e-4)


@each_promise
def test_number_of_units_that_are_needed_is_the_smallest(recall, confidence):
    for n_new in (None, math.inf):
        for is_possible in (
            lambda n, n_new=n_new: allowed_misses(n, recall, confidence, n_new) >= 0,
            lambda n, n_new=n_new: required_mean(n, recall, confidence, n_new) <= 1,
        ):
            needed = units_needed(is_possible)
            assert needed == 1 or not is_possible(needed - 1)
            assert all(is_possible(n) for n in range(needed, needed + 25))


def test_a_small_new_set_cannot_be_promised_anything():
    assert units_needed(lambda n: allowed_misses(n, 0.9, 0.95, n_new=3) >= 0) < math.inf
    assert allowed_misses(100, 0.9, 0.95, n_new=3) == -1 < allowed_misses(1000, 0.9, 0.95, n_new=3)
    assert required_mean(100, 0.9, 0.95, n_new=3) == math.inf
    assert allowed_misses(0, 0.9, 0.95) == -1
    assert required_mean(0, 0.9, 0.95) == math.inf


def test_precision_passes_an_exact_binomial_test():
    for n in (20, 50, 100, 1000):
        hits = [h for h in range(n + 1) if smallest_precise([h], [n], 0.9, 0.95, starts=[0]) == 0]
        assert hits == [h for h in range(n + 1) if h > 0.9 * n and stats.binom.sf(h - 1, n, 0.9) <= 0.05]
    assert predictions_needed(0.9, 0.95, 1) == 29
    assert smallest_precise([29], [29], 0.9, 0.95, starts=[0]) == 0
    assert smallest_precise([28], [28], 0.9, 0.95, starts=[0]) is None


def test_a_sequence_stops_at_its_first_failure_and_another_one_starts_below():
    hits, predicted = [500, 400, 80, 300], [500, 400, 100, 300]
    assert smallest_precise(hits, predicted, 0.9, 0.95, starts=[3]) == 3
    assert smallest_precise(hits, predicted, 0.9, 0.95, starts=[3, 1]) == 0
    assert smallest_precise(hits, predicted, 0.9, 0.95, starts=[2]) is None


def test_error_of_fixed_sequences_is_the_promised_one():
    """Thresholds whose precision falls below the promise at a known place: no more of them pass than is allowed."""
    generator = torch.Generator().manual_seed(0)
    precision = torch.linspace(0.85, 0.95, 21)  # of disjoint slices of 60 items, ascending
    hits = torch.binomial(torch.full((1500, 21), 60.0), precision.expand(1500, 21), generator=generator)
    right = hits.flip(1).cumsum(1).flip(1).long().tolist()
    n = (60 * torch.arange(21, 0, -1)).tolist()
    true = precision.flip(0).cumsum(0).flip(0) / torch.arange(21, 0, -1)
    found = [smallest_precise(row, n, 0.92, 0.9, starts=[18, 12]) for row in right]
    error = sum(place is not None and true[place] < 0.92 for place in found) / 1500
    print(f'\nerror {error:.4f} of 0.1; {sum(place is not None for place in found)} of 1500 found')
    assert error <= 0.1
    assert any(place is not None for place in found)

"""The oracles of the top-k losses agree, take known values and have the properties that define them."""

import math
from fractions import Fraction

import numpy as np
import pytest

from reference import smooth_topk as reference

FAMILIES = {
    'normal': lambda rng, n: rng.normal(size=n),
    'tied': lambda rng, n: rng.integers(0, 3, n).astype(float),
    'constant': lambda rng, n: np.full(n, 0.7),
    'wide': lambda rng, n: 30 * rng.normal(size=n),
}
each_family = pytest.mark.parametrize('family', FAMILIES)


def sizes():
    return ((n, k) for n in (2, 3, 5, 8) for k in range(1, n))


def fractions(rng, n):
    return [Fraction(int(number), 8) for number in rng.integers(0, 40, n)]


def differences(f, s, h=1e-6):
    """Return central differences of a function of the scores."""
    steps = h * np.eye(s.size, dtype=np.longdouble)
    return np.array([(f(s + step) - f(s - step)) / (2 * h) for step in steps])


def test_the_algorithms_of_the_paper_are_exact_on_fractions_and_the_logarithm_is_that_of_the_sum():
    assert [reference.elementary_symmetric([1, 2, 3], k) for k in range(5)] == [1, 6, 11, 6, 0]
    assert reference.summation_algorithm([1, 2, 3], 4) == [1, 6, 11, 6, 0]
    assert reference.backward_algorithm([1, 2, 3], [1, 6, 11, 6], 3) == [6, 3, 2]
    rng = np.random.default_rng(0)
    for n, k in sizes():
        e = fractions(rng, n)
        sigma = reference.summation_algorithm(e, k)
        assert sigma == [reference.elementary_symmetric(e, j) for j in range(k + 1)]
        without = [reference.elementary_symmetric(e[:i] + e[i + 1 :], k - 1) for i in range(n)]
        assert reference.backward_algorithm(e, sigma, k) == without
    rng = np.random.default_rng(1)
    for n, k in sizes():
        e = fractions(rng, n)
        with np.errstate(divide='ignore'):
            x = np.log(np.array(e, np.longdouble))
            expected = np.log(np.longdouble(float(reference.elementary_symmetric(e, k))))
        np.testing.assert_allclose(reference.log_elementary_symmetric(x, k).value, expected, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize(
    ('s', 'y', 'k', 'margin', 'expected'),
    [
        pytest.param([0, 0], 0, 1, 0, math.log(2), id='one of two'),
        pytest.param([0, 0, 0, 0], 2, 2, 0, math.log(6 / 3), id='6 sets, 3 with y'),
        pytest.param([0, 0, 0, 0, 0], 0, 3, 1, math.log((6 + 4 * math.e) / 6), id='10 sets, 6 with y, a margin'),
        pytest.param([0, 0, -np.inf], 0, 2, 1, 0, id='only one set'),
        pytest.param([0, -np.inf, -np.inf], 0, 2, 1, 0, id='no set'),
        pytest.param([-np.inf, 0, 0], 0, 2, 1, np.inf, id='no set with y'),
    ],
)
def test_known_loss(s, y, k, margin, expected):
    assert float(reference.smooth_topk_loss(s, y, k, 1, margin).value) == pytest.approx(expected, rel=1e-14)
    if np.isfinite(s).all():
        found = float(reference.smooth_topk_loss_of_polynomials(s, y, k, 1, margin))
        assert found == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize('tau', [0.1, 1, 7])
@pytest.mark.parametrize('margin', [0, 1])
@each_family
def test_equation_9_is_equation_10(family, tau, margin):
    rng = np.random.default_rng(2)
    for n, k in sizes():
        s = FAMILIES[family](rng, n)
        for y in range(n):
            value = reference.smooth_topk_loss(s, y, k, tau, margin).value
            expected = reference.smooth_topk_loss_of_polynomials(s, y, k, tau, margin)
            np.testing.assert_allclose(value, expected, rtol=1e-15, atol=1e-16)


@each_family
def test_gradients_are_those_of_differences(family):
    rng = np.random.default_rng(3)
    for n, k in sizes():
        s = FAMILIES[family](rng, n).astype(np.longdouble)
        y = int(rng.integers(n))
        for f in (
            lambda s, y=y, k=k: reference.smooth_topk_loss(s, y, k, 0.5),
            lambda s, k=k: reference.log_elementary_symmetric(s, k),
        ):
            np.testing.assert_allclose(f(s).gradient, differences(lambda s, f=f: f(s).value, s), atol=1e-10)
    s = rng.normal(size=8).astype(np.longdouble)
    for k in range(1, 8):
        hard = reference.hard_topk_loss(s, 3, k)
        expected = differences(lambda s, k=k: reference.hard_topk_loss(s, 3, k).value, s)
        np.testing.assert_allclose(hard.gradient, expected, atol=1e-10)


@pytest.mark.parametrize('margin', [0, 1, 20])
@each_family
def test_the_best_sets_leave_a_hinge_on_the_kth_score(family, margin):
    """Proposition 1 of the paper."""
    rng = np.random.default_rng(4)
    for n, k in sizes():
        s = FAMILIES[family](rng, n)
        for y in range(n):
            expected = reference.hard_topk_loss_of_ranks(s, y, k, margin)
            np.testing.assert_allclose(reference.hard_topk_loss(s, y, k, margin).value, expected, atol=1e-15)


@each_family
def test_marginals_are_the_derivative_that_algorithm_2_gives(family):
    rng = np.random.default_rng(5)
    for n, k in sizes():
        s = FAMILIES[family](rng, n)
        e = [Fraction(float(number)) for number in np.exp(s)]
        sigma = reference.summation_algorithm(e, k)
        derivatives = reference.backward_algorithm(e, sigma, k)
        expected = [float(number * d / sigma[k]) for number, d in zip(e, derivatives, strict=True)]
        found = reference.topk_marginals(s, k)
        np.testing.assert_allclose(found.astype(float), expected, rtol=1e-14 * max(1, np.abs(s).max()))
        assert float(found.sum()) == pytest.approx(k, rel=1e-15)

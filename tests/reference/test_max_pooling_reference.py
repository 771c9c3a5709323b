"""The oracles of loss max-pooling agree, and their checker rejects wrong weights."""

from collections.abc import Callable

import numpy as np
import pytest

from .max_pooling import convex_weights, dual_bound, feasibility, optimality_gap, radii, sorted_weights

FAMILIES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    'uniform': lambda rng, n: rng.random(n),
    'cross_entropy': lambda rng, n: rng.exponential(size=n),
    'tied': lambda rng, n: rng.choice([0.1, 0.5, 2.0], size=n),
    'half_zeros': lambda rng, n: rng.exponential(size=n) * (rng.permutation(n) % 2 == 0),
    'all_equal': lambda rng, n: np.full(n, 0.7),
    'one_positive': lambda rng, n: 3.0 * (np.arange(n) == n // 2),
    'thirty_decades': lambda rng, n: 10 ** rng.uniform(-15, 15, size=n),
    'float16': lambda rng, n: rng.exponential(size=n).astype(np.float16),
    'geometric': lambda rng, n: rng.permutation(0.5 ** np.arange(n)),
    'all_zero': lambda rng, n: np.zeros(n),
}
EXPONENTS = [1, 1.00002, 1.01, 1.1, 1.3, 1.7, 2, 4, 20, np.inf]

each_family = pytest.mark.parametrize('family', FAMILIES)
each_exponent = pytest.mark.parametrize('p', EXPONENTS)


def make_losses(family: str, n: int) -> np.ndarray:
    return FAMILIES[family](np.random.default_rng(n), n)


def pixel_counts(n: int) -> list[float]:
    """Return values of `m`: both ends, a fractional one, and for small images two more."""
    counts = {1.0, max(1.0, 0.31 * n), float(n)}
    if n <= 20:
        counts |= {min(1.5, n), max(1.0, n - 0.25)}
    return sorted(counts)


def assert_feasible(w: np.ndarray, p: float, m: float) -> None:
    p_norm_excess, largest_excess, smallest = feasibility(w, p, m)
    assert p_norm_excess <= 1e-14
    assert largest_excess <= 1e-14
    assert smallest >= 0


@each_family
@each_exponent
@pytest.mark.parametrize('n', [1, 2, 3, 20, 1000])
def test_oracles_agree_and_are_optimal(family: str, p: float, n: int) -> None:
    losses = make_losses(family, n)
    for m in pixel_counts(n):
        w, value = sorted_weights(losses, p, m)
        assert_feasible(w, p, m)
        assert abs(optimality_gap(losses, w, p, m)) <= 1e-12
        np.testing.assert_allclose(w @ losses, value, rtol=1e-15)
        assert losses.mean(dtype=np.longdouble) * (1 - 1e-14) <= value <= losses.max() * (1 + 1e-14)

        solution = convex_weights(losses, p, m)
        assert_feasible(solution.w, p, m)
        assert abs(solution.gap) <= 1e-10
        np.testing.assert_allclose(solution.value, value, rtol=1e-10)
        if 1 < p < np.inf:
            np.testing.assert_allclose(solution.w, w, rtol=1e-9, atol=1e-10 * w.max())


@pytest.mark.parametrize(
    ('losses', 'p', 'm', 'expected'),
    [
        pytest.param([1, 4, 2, 3], 1, 2, [0, 1 / 2, 0, 1 / 2], id='top-2 mean'),
        pytest.param([1, 4, 2, 3], 1, 2.5, [0, 0.4, 0.2, 0.4], id='fractional top-m mean'),
        pytest.param([2, 4, 2, 2], 1, 2.5, [0.2, 0.4, 0.2, 0.2], id='ties share the rest'),
        pytest.param([2, 4, 4, 1], 1, 1, [0, 0.5, 0.5, 0], id='ties share everything'),
        pytest.param([0, 0, 0], 1, 2, [1 / 3, 1 / 3, 1 / 3], id='p = 1 without loss'),
        pytest.param([3, 4], 2, 1, [0.6 / 2**0.5, 0.8 / 2**0.5], id='2-norm'),
        pytest.param([1, 4], 2, 1.5, [6**-0.5, 3**-0.5], id='2-norm, one weight at tau'),
        pytest.param([0, 7, 5], 2, 2.5, [0, 7.5**-0.5, 7.5**-0.5], id='2-norm slack'),
        pytest.param([0, 0, 0], 2, 2, [0, 0, 0], id='p = 2 without loss'),
        pytest.param([0, 7, 5], np.inf, 2, [1 / 3, 1 / 3, 1 / 3], id='mean'),
        pytest.param([9, 7, 5], 1.3, 3, [1 / 3, 1 / 3, 1 / 3], id='m = n'),
        pytest.param([9], 1.3, 1, [1], id='one pixel'),
    ],
)
def test_known_weights(losses: list[float], p: float, m: float, expected: list[float]) -> None:
    w, value = sorted_weights(losses, p, m)
    np.testing.assert_allclose(w, expected, rtol=1e-14)
    np.testing.assert_allclose(value, np.dot(expected, losses), rtol=1e-14)


@each_family
@each_exponent
def test_any_multipliers_bound_the_value(family: str, p: float) -> None:
    n, m, rng = 20, 6.2, np.random.default_rng(0)
    losses = make_losses(family, n)
    _, value = sorted_weights(losses, p, m)
    for scale in (0, 1e-3, 1, 2):
        lam = scale * losses * rng.random(n)
        assert dual_bound(losses, lam, p, m) >= value * (1 - 1e-14)
    with pytest.raises(ValueError, match='non-negative'):
        dual_bound(losses, np.full(n, -0.1), p, m)


@pytest.mark.parametrize('p', [1, 1.00002, 1.1, 1.7, 2, 4, 20])
@pytest.mark.parametrize('family', ['uniform', 'cross_entropy', 'half_zeros', 'float16'])
def test_feasible_but_suboptimal_weights_are_rejected(family: str, p: float) -> None:
    n, m = 20, 6.2
    losses = make_losses(family, n)
    w, value = sorted_weights(losses, p, m)
    uniform = np.full(n, 1 / n)
    assert_feasible(uniform, p, m)
    assert optimality_gap(losses, uniform, p, m) > 1e-3
    if family != 'cross_entropy':  # Others have gaps below the limit.
        return

    swapped = w.copy()
    swapped[[losses.argmax(), losses.argmin()]] = w[[losses.argmin(), losses.argmax()]]
    for wrong in (np.zeros(n), 0.999 * w, swapped, sorted_weights(losses, p, m + 1)[0]):
        assert_feasible(wrong, p, m)
        gap = optimality_gap(losses, wrong, p, m)
        assert gap > 1e-5
        np.testing.assert_allclose(gap, 1 - wrong @ losses / value, rtol=1e-9)


@pytest.mark.parametrize('p', [1, 1.00002, 1.1, 1.7, 2, 4, 20])
def test_infeasible_weights_are_rejected(p: float) -> None:
    n, m = 20, 6.2
    losses = make_losses('cross_entropy', n)
    w, _ = sorted_weights(losses, p, m)
    assert feasibility(1.001 * w, p, m)[0] == pytest.approx(1e-3)
    assert optimality_gap(losses, 1.001 * w, p, m) == pytest.approx(-1e-3)
    assert feasibility(-w, p, m)[2] < 0

    gamma, tau = radii(n, p, m)
    one_pixel = gamma * (losses == losses.max())  # the optimum without the bound tau
    p_norm_excess, largest_excess, _ = feasibility(one_pixel, p, m)
    assert p_norm_excess == pytest.approx(0, abs=1e-14)
    assert largest_excess == pytest.approx(float(gamma / tau) - 1)


@pytest.mark.parametrize('p', [1, 1 + 1e-12, 1.5, 50, 1e6, np.inf])
@pytest.mark.parametrize('n', [1, 7, 100_000])
def test_feasibility_is_exact_for_extreme_exponents(p: float, n: int) -> None:
    p_norm_excess, largest_excess, smallest = feasibility(np.full(n, 1 / n), p, n)
    assert p_norm_excess == pytest.approx(0, abs=1e-14)
    assert largest_excess == pytest.approx(0, abs=1e-14)
    assert smallest == 1 / n


@pytest.mark.parametrize('m', [1.0, 2.5, 6.2, 19.75])
def test_limit_of_small_exponents_is_theorem_2(m: float) -> None:
    losses = make_losses('cross_entropy', 20)
    w, value = sorted_weights(losses, 1 + 1e-9, m)
    limit, limit_value = sorted_weights(losses, 1, m)
    np.testing.assert_allclose(value, limit_value, rtol=1e-8)
    np.testing.assert_allclose(w, limit, atol=1e-8)


@pytest.mark.parametrize('scale', [1e-300, 1e300])
@pytest.mark.parametrize('p', [1, 1.3, 20])
def test_weights_do_not_depend_on_the_scale(p: float, scale: float) -> None:
    losses = make_losses('cross_entropy', 20)
    w, value = sorted_weights(losses, p, 6.2)
    scaled_w, scaled_value = sorted_weights(losses * scale, p, 6.2)
    np.testing.assert_allclose(scaled_w, w, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(scaled_value / np.longdouble(scale), value, rtol=1e-12)

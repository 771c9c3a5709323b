import math

import numpy as np
import pytest
import torch
from reference import max_pooling as reference

from mmseg_nondecomp.functional import loss_max_pooling, max_pooling_weights
from mmseg_nondecomp.functional.max_pooling import pooled_items, pooling_weights

SIZES = (1, 2, 3, 20, 1000)
NORMS = (1, 1.01, 1.1, 1.3, 1.7, 2, 4, 20, math.inf)
FAMILIES = {
    'uniform': lambda rng, n: rng.random(n),
    'cross-entropy of a poor model': lambda rng, n: rng.exponential(size=n),
    'ties': lambda rng, n: rng.integers(0, 4, n) + 0.5,
    'half exact zeros': lambda rng, n: rng.exponential(size=n) * (np.arange(n) % 2),
    'all equal': lambda rng, n: np.full(n, 0.3),
    'all zero': lambda rng, n: np.zeros(n),
    'one positive': lambda rng, n: np.eye(1, n)[0] * 2.0,
    '30 orders of magnitude': lambda rng, n: 10 ** (rng.random(n) * 30 - 15),
    'geometric': lambda rng, n: 2.0 ** -(np.arange(n) % 90),
    'one giant': lambda rng, n: np.where(np.arange(n) == n // 2, 1e30, rng.random(n)),
}


def supports(n):
    """Return integer and fractional m, next to integers and at both ends."""
    choices = (1.0, n / 4, n / 3, n / 2 + 0.3, max(1.0, n // 2), max(1.0, n // 2) + 1e-6, n - 0.5, float(n))
    return sorted({m for m in choices if 1 <= m <= n})


def assert_optimal(losses, weights, p, m, tolerance=1e-6):
    """Check that weights are feasible and that none are better by more than the tolerance (certified by duality)."""
    losses, weights = losses.double().numpy(), weights.double().numpy()
    p_norm_excess, largest_excess, least = reference.feasibility(weights, p, m)
    assert p_norm_excess <= tolerance
    assert largest_excess <= tolerance
    assert least >= 0
    if losses.max() > 0:
        assert reference.optimality_gap(losses, weights, p, m) <= tolerance


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize('p', NORMS)
@pytest.mark.parametrize('family', FAMILIES)
def test_feasible_and_optimal(family, p, dtype):
    if dtype in (torch.float16, torch.bfloat16) and family in ('30 orders of magnitude', 'one giant'):
        pytest.skip('out of range')
    rng = np.random.default_rng(0)
    for n in SIZES:
        losses = torch.tensor(FAMILIES[family](rng, n)).to(dtype)
        for m in supports(n):
            weights = max_pooling_weights(losses, p, m)
            assert weights.dtype == torch.promote_types(dtype, torch.float32)
            assert_optimal(losses, weights, p, m)


@pytest.mark.parametrize('p', [1.0001, 1 + 1e-7, 1 + 1e-12, 1e4, 1e9])
@pytest.mark.parametrize('dtype', [torch.float64, torch.float32], ids=str)
def test_extreme_norms(p, dtype):
    rng = np.random.default_rng(1)
    for family in ('uniform', 'half exact zeros', 'ties', '30 orders of magnitude'):
        losses = torch.tensor(FAMILIES[family](rng, 500)).to(dtype)
        for m in (1.0, 33.3, 125.0, 500.0):
            assert_optimal(losses, max_pooling_weights(losses, p, m), p, m)


def test_equals_the_sorted_algorithm_1_where_the_maximiser_is_well_conditioned():
    rng = np.random.default_rng(2)
    for p in (1, 1.01, 1.3, 2):
        for m in (1, 3.5, 50, 125.25):
            losses = rng.exponential(size=200)
            expected, value = reference.sorted_weights(losses, p, m)
            weights = max_pooling_weights(torch.tensor(losses), p, m).numpy()
            np.testing.assert_allclose(weights, expected.astype(float), rtol=1e-10, atol=1e-15)
            np.testing.assert_allclose(weights @ losses, float(value), rtol=1e-12)


def test_a_million_losses_spread_like_a_trained_network():
    generator = torch.Generator().manual_seed(0)
    losses = (torch.randn(1_000_000, generator=generator) * 3 - 4).exp()
    n = losses.numel()
    for p in (1, 1.3, 4):
        weights = max_pooling_weights(losses, p, n / 4).double()
        value, tau = weights @ losses.double(), (n / 4 if p == 1 else n * 0.25 ** (1 / p)) ** -1
        assert weights.max() <= tau * (1 + 1e-6)
        assert weights.pow(p).sum() ** (1 / p) <= n ** (1 / p - 1) * (1 + 1e-6)
        expected = max_pooling_weights(losses.double(), p, n / 4) @ losses.double()
        assert value.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize('p', NORMS)
def test_upper_bounds_the_mean(p):
    for seed in range(20):
        losses = torch.rand(100, generator=torch.Generator().manual_seed(seed)).double() ** 3
        assert loss_max_pooling(losses, p, ratio=0.25) >= losses.mean() - 1e-12


def test_is_the_mean_at_p_infinite_or_m_equal_n_and_the_top_m_mean_at_p_1():
    losses = torch.rand(1000).double()
    assert loss_max_pooling(losses, math.inf, 0.1).item() == pytest.approx(losses.mean().item(), rel=1e-12)
    for p in NORMS:
        assert loss_max_pooling(losses, p, 1.0).item() == pytest.approx(losses.mean().item(), rel=1e-12)
    assert loss_max_pooling(losses, 1e6, 0.25).item() == pytest.approx(losses.mean().item(), rel=1e-5)
    for m in (1, 10, 250, 1000):
        expected = losses.topk(m).values.mean().item()
        assert loss_max_pooling(losses, 1, m / 1000).item() == pytest.approx(expected, rel=1e-12)
    weights = max_pooling_weights(torch.tensor([2.0, 1.0, 1.0, 3.0, 1.0, 0.5]), 1, 3.5)
    torch.testing.assert_close(weights * 3.5, torch.tensor([1, 0.5, 0.5, 1, 0.5, 0]))  # ties share uniformly


def test_decreases_in_p_and_in_m_and_weights_do_not_depend_on_the_scale():
    losses = torch.rand(300).double() ** 4
    by_p = [loss_max_pooling(losses, p, 0.2).item() for p in NORMS]
    by_ratio = [loss_max_pooling(losses, 1.3, r).item() for r in (0.01, 0.1, 0.25, 0.5, 0.99, 1)]
    assert by_p == sorted(by_p, reverse=True)
    assert by_ratio == sorted(by_ratio, reverse=True)
    assert by_p[0] > by_p[-1] * 1.1
    for p in (1.1, 1.3, 4):
        scaled, expected = (max_pooling_weights(each, p, 100.0) for each in (losses * 1e25, losses))
        torch.testing.assert_close(scaled, expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize('p', NORMS)
def test_gradient_is_the_maximiser(p):
    losses = torch.rand(30, dtype=torch.float64).add(0.1).requires_grad_()
    mask = torch.arange(30) % 3 != 0
    gradient = torch.autograd.grad(loss_max_pooling(losses, p, 0.25, mask), losses)[0]
    torch.testing.assert_close(gradient[mask], max_pooling_weights(losses.detach()[mask], p, 5.0))
    assert (gradient[~mask] == 0).all()
    assert torch.autograd.gradcheck(lambda x: loss_max_pooling(x, p, 0.25, mask), losses, eps=1e-7, atol=1e-6)


def test_rows_are_independent_sets_and_the_empty_set_is_a_zero_attached_to_the_graph():
    for losses, mask in ((torch.rand(5), torch.zeros(5, dtype=torch.bool)), (torch.rand(0, 3), None)):
        losses.requires_grad_()
        for p in (1, 1.3, math.inf):
            loss = loss_max_pooling(losses, p, mask=mask)
            loss.backward()
            assert loss.item() == 0
            assert losses.grad.eq(0).all()
    losses = torch.rand(3, 40).double() ** 4 * torch.tensor([[1.0], [1e9], [1e-9]]).double()
    valid = torch.rand(3, 40) > 0.2
    weights, support = pooling_weights(losses, valid, 1.3, pooled_items(valid, 0.25))
    for row, ok, w, share in zip(losses, valid, weights, support, strict=True):
        n = ok.sum().item()
        torch.testing.assert_close(w[ok], max_pooling_weights(row[ok], 1.3, n / 4))
        tau = float(reference.radii(n, 1.3, n / 4)[1])
        assert share.item() == pytest.approx((w > tau * (1 - 1e-9)).sum().item() / n, abs=1e-12)
    assert (support > 0).any()


@pytest.mark.parametrize('p', NORMS)
def test_an_infinite_loss_has_finite_weights_and_nan_is_not_hidden_where_values_are_not_checked(p):
    losses = torch.rand(50)
    losses[7] = math.inf
    assert loss_max_pooling(losses, p).item() == math.inf
    weights = max_pooling_weights(losses, p, 12.5)
    assert weights.isfinite().all()
    assert weights[7] == weights.max()
    losses[7] = math.nan
    valid = torch.ones(1, 50, dtype=torch.bool)
    assert (pooling_weights(losses[None], valid, p, pooled_items(valid, 0.25)).weights * losses).sum().isnan()


X = torch.tensor([0.5, 0.25, 0.75])


@pytest.mark.parametrize(
    ('losses', 'p', 'm', 'error', 'message'),
    [
        (X, 0.9, 2, ValueError, r'`p` should be in \[1, inf\]. Found 0.9'),
        (X, 1.3, 0.5, ValueError, '`m`.*0.5'),
        (X, 1.3, 3.1, ValueError, '`m`.*3.1'),
        (X[None], 1.3, 2, ValueError, '`losses`.*shape'),
        (X[:0], 1.3, 1, ValueError, '`losses`.*shape'),
        (torch.arange(3), 1.3, 2, TypeError, '`losses`.*int64'),
        (torch.tensor([1.0, -2.0]), 1.3, 2, ValueError, '`losses`.*-2.0'),
    ],
)
def test_arguments_of_weights_that_do_not_fit_are_named(losses, p, m, error, message):
    with pytest.raises(error, match=message):
        max_pooling_weights(losses, p, m)


@pytest.mark.parametrize(
    ('losses', 'arguments', 'message'),
    [
        (X, dict(ratio=0), r'`ratio` should be in \(0, 1\]. Found 0'),
        (-X, dict(), '`losses`.*-0.5'),
        (X, dict(mask=torch.ones(3)), '`mask`.*float32'),
        (X, dict(mask=torch.ones(2).bool()), r'`mask`.*\(2,\)'),
    ],
)
def test_arguments_of_the_loss_that_do_not_fit_are_named(losses, arguments, message):
    with pytest.raises(ValueError, match=message):
        loss_max_pooling(losses, **arguments)

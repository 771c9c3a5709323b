"""The soft projection solves its equation, keeps the constraints, and becomes the projection as it gets cold."""

import importlib
import math

import numpy as np
import pytest
import torch

from mmseg_nondecomp.functional.project_tau import project_tau
from mmseg_nondecomp.functional.soft_project_tau import _SoftBound, soft_project_tau

POINTS = {
    'around zero': lambda rng, n: (rng.normal(size=n), rng.normal()),
    'all negative': lambda rng, n: (-rng.exponential(size=n), rng.normal()),
    'negative bound': lambda rng, n: (rng.normal(size=n), -rng.exponential()),
    'far negative bound': lambda rng, n: (rng.exponential(size=n), -n * rng.exponential()),
    'already feasible': lambda rng, n: (1 - rng.exponential(size=n), 1.0),
    'ties': lambda rng, n: (rng.integers(-2, 3, n) / 2, rng.integers(-2, 3) / 2),
    'equal to the bound': lambda rng, n: (np.full(n, 0.1), 0.1),
    'zeros': lambda rng, n: (np.zeros(n), 0.0),
    'root at zero': lambda rng, n: (np.ones(n), -float(n)),
    'root near zero': lambda rng, n: (rng.exponential(size=n), -0.317 * n),
    'twenty temperatures apart': lambda rng, n: (rng.choice([-2.1, 0.0, 2.1, 4.3], n), 0.0),
    'large': lambda rng, n: (1e8 * rng.normal(size=n), 1e8 * rng.normal()),
    '12 orders of magnitude': lambda rng, n: (10 ** rng.uniform(-6, 6, n) * rng.choice([-1, 1], n), rng.normal()),
    'one giant': lambda rng, n: (np.where(np.arange(n) == n // 2, 1e6, rng.normal(size=n)), -1.0),
    'geometric': lambda rng, n: (2.0 ** -(np.arange(n) % 90), -0.5),
}
each_family = pytest.mark.parametrize('family', POINTS)
each_temperature = pytest.mark.parametrize('temperature', [1e-6, 1e-3, 0.1, 1.0, 30.0])
SIZES = (0, 1, 2, 12, 300)


def point(family, n, seed=0):
    tau, eps = POINTS[family](np.random.default_rng([n, seed]), n)
    return torch.tensor(tau, dtype=torch.float64), torch.tensor(float(eps), dtype=torch.float64)


def joined(tau, eps):
    return torch.cat([tau, eps.unsqueeze(-1)], -1)


def scale(tau, eps, temperature):
    return joined(tau, eps).abs().max().item() + temperature


def soft_maximum(x, temperature):
    """Of x and 0, in more than double precision."""
    temperature = np.longdouble(temperature)
    return temperature * np.logaddexp(np.asarray(x, np.longdouble) / temperature, np.longdouble(0))


def excess(bound, tau, eps, temperature):
    """By how much the two sides of the equation differ at a bound."""
    tau, bound, eps = tau.numpy().astype(np.longdouble), np.longdouble(bound), np.longdouble(eps.item())
    return bound - eps - soft_maximum(tau - bound, temperature).sum()


def assert_root(bound, tau, eps, temperature):
    sides = abs(bound - eps.item()) + scale(tau, eps, temperature)
    assert abs(excess(bound, tau, eps, temperature)) <= 1e-12 * sides


def by_bisection(tau, eps, temperature):
    """Both outputs, from a root that is bracketed and halved."""
    low = np.longdouble(eps.item())
    high = low + 1
    while excess(high, tau, eps, temperature) < 0:
        high = low + 2 * (high - low)
    while low < (middle := (low + high) / 2) < high:
        if excess(middle, tau, eps, temperature) < 0:
            low = middle
        else:
            high = middle
    bound = soft_maximum(low, temperature)
    projected = bound - soft_maximum(bound - tau.numpy().astype(np.longdouble), temperature)
    return torch.tensor(projected.astype(float)), torch.tensor(float(bound), dtype=torch.float64)


@each_family
@each_temperature
def test_the_equation_holds(family, temperature):
    for n in SIZES:
        tau, eps = point(family, n)
        assert_root(_SoftBound.apply(tau, eps, temperature).item(), tau, eps, temperature)


@each_family
@each_temperature
def test_equals_the_bracketed_root(family, temperature):
    for n in SIZES[:-1]:
        tau, eps = point(family, n)
        expected = joined(*by_bisection(tau, eps, temperature))
        found = joined(*soft_project_tau(tau, eps, temperature))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * scale(tau, eps, temperature))


@each_family
@pytest.mark.parametrize('n', SIZES)
def test_at_most_that_far_from_the_projection(family, n):
    for seed in range(3):
        tau, eps = point(family, n, seed)
        expected = joined(*project_tau(tau, eps))
        for temperature in 10.0 ** np.arange(-9, 3):
            found = joined(*soft_project_tau(tau, eps, float(temperature)))
            rounding = 1e-14 * scale(tau, eps, temperature)
            far = temperature * math.log(2)
            assert (found - expected).max() <= far * (n + 1) + rounding
            assert (expected - found).max() <= far + rounding


@each_family
def test_becomes_the_projection(family):
    for seed in range(3):
        tau, eps = point(family, 12, seed)
        expected = joined(*project_tau(tau, eps))
        found = joined(*soft_project_tau(tau, eps, 1e-12))
        torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-11 + 1e-14 * scale(tau, eps, 0))


@each_family
@each_temperature
def test_the_constraints_hold(family, temperature):
    for n in SIZES:
        tau, eps = point(family, n)
        found, bound = soft_project_tau(tau, eps, temperature)
        assert bound >= 0
        assert (found <= bound).all()
        assert (found <= tau + 1e-14 * scale(tau, eps, temperature)).all()
        if scale(tau, eps, 0) <= 15 * temperature:  # else the distance may be less than the rounding
            assert bound > 0
            assert (found < bound).all()


@each_family
@each_temperature
def test_increases_in_all_inputs(family, temperature):
    generator = torch.Generator().manual_seed(0)
    for size in (1e-9, 1e-3, 1.0):
        tau, eps = point(family, 12)
        unit = scale(tau, eps, temperature)
        step = size * temperature * torch.rand(13, generator=generator, dtype=torch.float64)
        step *= torch.rand(13, generator=generator) < 0.5
        lower = joined(*soft_project_tau(tau, eps, temperature))
        upper = joined(*soft_project_tau(tau + step[:-1], eps + step[-1], temperature))
        assert (upper >= lower - 1e-14 * unit).all()


def test_increases_across_twenty_temperatures():
    """Where PyTorch's softplus becomes linear, by default, with a step of 2e-9 down."""
    one, zero = torch.ones(1, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
    bound = soft_project_tau(one, zero, 1.0)[1]
    far_below = bound - 20 + torch.linspace(-1e-7, 1e-7, 2001, dtype=torch.float64)
    tau = torch.stack([far_below, one.expand(2001)], -1)
    found, bounds = soft_project_tau(tau, zero.expand(2001), 1.0)
    assert found[:, 0].diff().min() >= -1e-14
    assert bounds.diff().min() >= -1e-14


@each_family
@each_temperature
def test_gradients_are_shares(family, temperature):
    """Of the bound's gradient, between 0 and 1; what one input moves is of its sign."""
    tau, eps = (x.requires_grad_() for x in point(family, 12))
    found, bound = soft_project_tau(tau, eps, temperature)
    of_tau, of_eps = torch.autograd.grad(bound, (tau, eps), retain_graph=True)
    assert (of_tau >= 0).all()
    assert of_eps >= 0
    assert of_tau.sum() + of_eps <= 1 + 1e-12
    for gradient in torch.autograd.grad(found.sum(), (tau, eps)):
        assert gradient.isfinite().all()
        assert (gradient >= 0).all()


@each_family
def test_the_order_does_not_matter(family):
    tau, eps = point(family, 40)
    order = torch.tensor(np.random.default_rng(1).permutation(40))
    found, bound = soft_project_tau(tau, eps, 0.1)
    shuffled, same_bound = soft_project_tau(tau[order], eps, 0.1)
    torch.testing.assert_close(shuffled, found[order], rtol=1e-13, atol=1e-14 * scale(tau, eps, 0.1))
    torch.testing.assert_close(same_bound, bound, rtol=1e-13, atol=1e-14 * scale(tau, eps, 0.1))


@each_family
def test_the_temperature_is_in_the_unit_of_tau(family):
    tau, eps = point(family, 12)
    expected = joined(*soft_project_tau(tau, eps, 0.1)) * 1e3
    found = joined(*soft_project_tau(tau * 1e3, eps * 1e3, 0.1 * 1e3))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-11 * scale(tau, eps, 0.1))


@pytest.mark.parametrize('temperature', [0.05, 0.3, 2.0])
@pytest.mark.parametrize('n', [0, 1, 2, 5])
def test_gradcheck(n, temperature):
    """Of first and second order, on the projection's edges too."""
    for family in ('around zero', 'all negative', 'negative bound', 'ties', 'equal to the bound', 'root at zero'):
        inputs = tuple(x.requires_grad_() for x in point(family, n))
        call = lambda tau, eps: soft_project_tau(tau, eps, temperature)  # noqa: E731
        assert torch.autograd.gradcheck(call, inputs)
        assert torch.autograd.gradgradcheck(call, inputs)


def test_gradcheck_of_rows():
    points = [point('around zero', 4, seed) for seed in range(3)]
    tau, eps = (torch.stack(parts).requires_grad_() for parts in zip(*points, strict=True))
    call = lambda tau, eps: soft_project_tau(tau, eps, 0.2)  # noqa: E731
    assert torch.autograd.gradcheck(call, (tau, eps))
    assert torch.autograd.gradgradcheck(call, (tau, eps))


def test_rows_in_any_layout():
    points = [point(family, 9) for family in POINTS if family not in ('large', '12 orders of magnitude', 'one giant')]
    tau, eps = (torch.stack(parts) for parts in zip(*points, strict=True))
    expected = [soft_project_tau(t, e, 0.1) for t, e in points]
    rows, bounds = (torch.stack(parts) for parts in zip(*expected, strict=True))
    for arranged in (
        lambda x: x,
        lambda x: x[::3],
        lambda x: x.unflatten(0, (3, 4)).transpose(0, 1),
        lambda x: x[:1].expand(5, *x.shape[1:]),
    ):
        found, bound = soft_project_tau(arranged(tau), arranged(eps), 0.1)
        torch.testing.assert_close(found, arranged(rows), rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(bound, arranged(bounds), rtol=1e-13, atol=1e-14)


@each_family
@each_temperature
def test_a_handful_of_passes(family, temperature, monkeypatch):
    module = importlib.import_module('mmseg_nondecomp.functional.soft_project_tau')
    soft, passes = module._soft, []
    monkeypatch.setattr(module, '_soft', lambda *arguments: passes.append(1) or soft(*arguments))
    for n in (*SIZES, 3000):
        for seed in range(3):
            passes.clear()
            soft_project_tau(*point(family, n, seed), temperature)
            assert len(passes) <= 40


@pytest.mark.parametrize('temperature', [1e-3, 0.1, 10.0])
@pytest.mark.parametrize('family', ['around zero', 'all negative', 'far negative bound', 'zeros'])
def test_many_numbers(family, temperature):
    tau, eps = point(family, 100_000)
    assert_root(_SoftBound.apply(tau, eps, temperature).item(), tau, eps, temperature)
    found, bound = soft_project_tau(tau.requires_grad_(), eps.requires_grad_(), temperature)
    assert (found <= bound).all()
    for gradient in torch.autograd.grad(found.mean() + bound, (tau, eps)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize('bound_scale', [-40.0, -1.0, 1.0])
@pytest.mark.parametrize('magnitude', [1e8, 1e15, 1e30])
def test_large_numbers_in_the_cold(magnitude, bound_scale):
    """Where a temperature is less than the rounding, it is the projection."""
    tau, eps = point('around zero', 100)
    tau, eps = (magnitude * tau).requires_grad_(), (magnitude * bound_scale * eps.abs()).requires_grad_()
    found, bound = soft_project_tau(tau, eps, 1e-3)
    expected = project_tau(tau, eps)
    torch.testing.assert_close((found, bound), expected, rtol=1e-12, atol=max(1e-12 * magnitude, 0.1))
    for gradient in torch.autograd.grad(found.sum() + bound, (tau, eps)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize('dtype', [torch.float32, torch.float16, torch.bfloat16], ids=str)
@each_temperature
def test_computed_in_float64_and_returned_as_given(dtype, temperature):
    for n in (1, 12, 300):
        tau, eps = (x.to(dtype).requires_grad_() for x in point('around zero', n))
        found, bound = soft_project_tau(tau, eps, temperature)
        assert found.dtype == bound.dtype == dtype
        assert (found <= bound).all()
        expected, expected_bound = soft_project_tau(tau.double(), eps.double(), temperature)
        assert torch.equal(found, expected.to(dtype))
        assert torch.equal(bound, expected_bound.to(dtype))
        (found.sum() + bound).backward()
        assert tau.grad.dtype == eps.grad.dtype == dtype
        assert tau.grad.isfinite().all()


def test_no_numbers():
    found, bound = soft_project_tau(torch.zeros(2, 0), torch.tensor([50.0, -50.0]), 1.0)
    assert found.shape == (2, 0)
    torch.testing.assert_close(bound, torch.tensor([50.0, math.exp(-50)]))
    found, bound = soft_project_tau(torch.zeros(0, 3), torch.zeros(0), 1.0)
    assert (found.shape, bound.shape) == ((0, 3), (0,))


@pytest.mark.parametrize('wrong', [math.nan, math.inf])
def test_what_is_not_finite_is_not_hidden(wrong):
    for tau, eps in (([wrong, 1.0, 3.0], 1.0), ([1.0, 3.0], wrong)):
        found, bound = soft_project_tau(torch.tensor(tau), torch.tensor(eps), 0.1)
        assert not bound.isfinite()
    tau, eps = torch.tensor([[wrong, 1.0], [3.0, 1.0]]), torch.ones(2)
    found, bound = soft_project_tau(tau, eps, 0.1)
    expected = soft_project_tau(tau[1], eps[1], 0.1)
    torch.testing.assert_close((found[1], bound[1]), expected)


def test_minus_infinity_is_no_number_at_all():
    found, bound = soft_project_tau(torch.tensor([-math.inf, 1.0, 3.0]), torch.tensor(1.0), 0.1)
    expected, expected_bound = soft_project_tau(torch.tensor([1.0, 3.0]), torch.tensor(1.0), 0.1)
    assert found[0] == -math.inf
    torch.testing.assert_close((found[1:], bound), (expected, expected_bound))


def test_inputs_are_not_changed():
    tau, eps = torch.tensor([1.0, 3.0]).double(), torch.tensor(-1.0).double()
    soft_project_tau(tau, eps, 0.1)
    assert tau.tolist() == [1.0, 3.0]
    assert eps == -1


T, E = torch.zeros(2, 3), torch.zeros(2)


@pytest.mark.parametrize(
    ('call', 'error', 'message'),
    [
        (lambda: soft_project_tau(T.long(), E, 1.0), TypeError, '`tau`.*int64'),
        (lambda: soft_project_tau(T, E.long(), 1.0), TypeError, '`eps`.*int64'),
        (lambda: soft_project_tau(T, torch.zeros(3), 1.0), ValueError, r'`eps`.*`tau`.*\(3,\) for \(2, 3\)'),
        (lambda: soft_project_tau(T[0, 0], E[0], 1.0), ValueError, r'`eps`.*\(\) for \(\)'),
        (lambda: soft_project_tau(T, E, 0), ValueError, '`temperature`.*0'),
        (lambda: soft_project_tau(T, E, 0.0), ValueError, '`temperature`.*0.0'),
        (lambda: soft_project_tau(T, E, -0.1), ValueError, '`temperature`.*-0.1'),
        (lambda: soft_project_tau(T, E, math.nan), ValueError, '`temperature`.*nan'),
        (lambda: soft_project_tau(T, E, math.inf), ValueError, '`temperature`.*inf'),
        (lambda: soft_project_tau(T, E, '1'), TypeError, "`temperature`.*'1'"),
        (lambda: soft_project_tau(T, E, None), TypeError, '`temperature`.*None'),
        (lambda: soft_project_tau(T, E, True), TypeError, '`temperature`.*True'),
        (lambda: soft_project_tau(T, E, torch.tensor(0.1)), TypeError, '`temperature`.*tensor'),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()

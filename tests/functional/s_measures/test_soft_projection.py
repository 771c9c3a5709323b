"""Solves its equation, keeps the constraints, and tends to the projection as the temperature falls."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from projection_points import (
    BAD_ROWS,
    SOFT,
    E,
    T,
    assert_rows_do_not_depend_on_the_layout,
    each_soft,
    joined,
    point,
    scale,
)

from mmseg_nondecomp.functional.s_measures import project_tau, soft_projection
from mmseg_nondecomp.functional.s_measures.soft_projection import _SoftBound, soft_project_tau

each_temperature = pytest.mark.parametrize('temperature', [1e-6, 1e-3, 0.1, 1.0, 30.0])
SIZES = (0, 1, 2, 12, 300)


def soft_maximum(x, temperature):
    """The soft maximum of x and 0, in more than double precision."""
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


@each_soft
@each_temperature
def test_equals_the_bracketed_root_and_keeps_the_constraints(family, temperature):
    for n in SIZES:
        tau, eps = point(family, n)
        unit = scale(tau, eps, temperature)
        found, bound = soft_project_tau(tau, eps, temperature)
        expected = joined(*by_bisection(tau, eps, temperature))
        torch.testing.assert_close(joined(found, bound), expected, rtol=0, atol=1e-12 * unit)
        assert bound >= 0
        assert (found <= bound).all()
        assert (found <= tau + 1e-14 * unit).all()
        if scale(tau, eps, 0) <= 15 * temperature:  # else the distance may be less than the rounding
            assert bound > 0
            assert (found < bound).all()


@each_soft
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


@each_soft
@each_temperature
def test_increases_in_all_inputs_and_has_gradients_that_are_not_negative(family, temperature):
    """Gradients of the bound add up to at most 1."""
    generator = torch.Generator().manual_seed(0)
    tau, eps = point(family, 12)
    lower = joined(*soft_project_tau(tau, eps, temperature))
    for size in (1e-9, 1e-3, 1.0):
        step = size * temperature * torch.rand(13, generator=generator, dtype=torch.float64)
        step *= torch.rand(13, generator=generator) < 0.5
        upper = joined(*soft_project_tau(tau + step[:-1], eps + step[-1], temperature))
        assert (upper >= lower - 1e-14 * scale(tau, eps, temperature)).all()
    inputs = tau.requires_grad_(), eps.requires_grad_()
    found, bound = soft_project_tau(*inputs, temperature)
    of_bound = joined(*torch.autograd.grad(bound, inputs, retain_graph=True))
    assert of_bound.min() >= 0
    assert of_bound.sum() <= 1 + 1e-12
    of_found = joined(*torch.autograd.grad(found.sum(), inputs))
    assert of_found.isfinite().all()
    assert of_found.min() >= 0


def test_increases_across_twenty_temperatures():
    """Where PyTorch's softplus becomes linear, by default, with a step of 2e-9 down."""
    one, zero = torch.ones(1, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
    bound = soft_project_tau(one, zero, 1.0)[1]
    far_below = bound - 20 + torch.linspace(-1e-7, 1e-7, 2001, dtype=torch.float64)
    tau = torch.stack([far_below, one.expand(2001)], -1)
    found, bounds = soft_project_tau(tau, zero.expand(2001), 1.0)
    assert found[:, 0].diff().min() >= -1e-14
    assert bounds.diff().min() >= -1e-14


@each_soft
def test_the_order_does_not_matter_and_the_temperature_is_in_the_unit_of_tau(family):
    tau, eps = point(family, 40)
    unit = scale(tau, eps, 0.1)
    order = torch.tensor(np.random.default_rng(1).permutation(40))
    found, bound = soft_project_tau(tau, eps, 0.1)
    shuffled = soft_project_tau(tau[order], eps, 0.1)
    torch.testing.assert_close(shuffled, (found[order], bound), rtol=1e-13, atol=1e-14 * unit)
    scaled = soft_project_tau(tau * 1e3, eps * 1e3, 0.1 * 1e3)
    torch.testing.assert_close(scaled, (found * 1e3, bound * 1e3), rtol=1e-12, atol=1e-11 * unit)


@pytest.mark.parametrize('temperature', [0.05, 0.3, 2.0])
@pytest.mark.parametrize('n', [0, 1, 2, 5])
def test_gradcheck(n, temperature):
    """First and second order, also on the projection's edges."""
    for family in ('around zero', 'all negative', 'negative bound', 'ties', 'equal to the bound', 'mean of zero'):
        inputs = tuple(x.requires_grad_() for x in point(family, n))
        call = lambda tau, eps: soft_project_tau(tau, eps, temperature)  # noqa: E731
        assert torch.autograd.gradcheck(call, inputs)
        assert torch.autograd.gradgradcheck(call, inputs)


def test_rows_in_any_layout():
    points = [point(family, 9) for family in SOFT if family not in ('large', '12 orders of magnitude', 'one large')]
    project = partial(soft_project_tau, temperature=0.1)
    assert_rows_do_not_depend_on_the_layout(project, points, rtol=1e-13, atol=1e-14)


@each_soft
@each_temperature
def test_few_passes(family, temperature, monkeypatch):
    soft, passes = soft_projection._soft_maximum, []
    monkeypatch.setattr(soft_projection, '_soft_maximum', lambda *args: passes.append(1) or soft(*args))
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
def test_large_numbers_at_a_low_temperature(magnitude, bound_scale):
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


def test_no_numbers_and_inputs_that_stay_as_they_are():
    found, bound = soft_project_tau(torch.zeros(2, 0), torch.tensor([50.0, -50.0]), 1.0)
    assert found.shape == (2, 0)
    torch.testing.assert_close(bound, torch.tensor([50.0, math.exp(-50)]))
    found, bound = soft_project_tau(torch.zeros(0, 3), torch.zeros(0), 1.0)
    assert (found.shape, bound.shape) == ((0, 3), (0,))
    tau, eps = torch.tensor([1.0, 3.0]).double(), torch.tensor(-1.0).double()
    soft_project_tau(tau, eps, 0.1)
    assert (tau.tolist(), eps) == ([1.0, 3.0], -1)


@pytest.mark.parametrize('wrong', [math.nan, math.inf])
def test_what_is_not_finite_is_not_hidden_and_minus_infinity_has_no_effect(wrong):
    for tau, eps in (([wrong, 1.0, 3.0], 1.0), ([1.0, 3.0], wrong)):
        assert not soft_project_tau(torch.tensor(tau), torch.tensor(eps), 0.1)[1].isfinite()
    tau, eps = torch.tensor([[wrong, 1.0], [3.0, 1.0]]), torch.ones(2)
    found, bound = soft_project_tau(tau, eps, 0.1)
    expected = soft_project_tau(tau[1], eps[1], 0.1)
    torch.testing.assert_close((found[1], bound[1]), expected)
    found, bound = soft_project_tau(torch.tensor([-math.inf, 3.0, 1.0]), eps[1], 0.1)
    assert found[0] == -math.inf
    torch.testing.assert_close((found[1:], bound), expected)


@pytest.mark.parametrize(('rows', 'error', 'message'), BAD_ROWS)
def test_bad_rows(rows, error, message):
    with pytest.raises(error, match=message):
        soft_project_tau(*rows, 1.0)


@pytest.mark.parametrize('temperature', [0, 0.0, -0.1, math.nan, math.inf, '1', None, True, torch.tensor(0.1)])
def test_bad_temperature(temperature):
    error = ValueError if type(temperature) in (int, float) else TypeError
    with pytest.raises(error, match=f'`temperature`.*{temperature!r}'.replace('(', r'\(').replace(')', r'\)')):
        soft_project_tau(T, E, temperature)

"""Both functions bound the step function that they stand for, scale with it, and are what their slope says."""

import math

import numpy as np
import pytest
import torch

from mmseg_nondecomp.functional.margin_penalty import SURROGATES, margin_penalty, margin_slope

each_surrogate = pytest.mark.parametrize('surrogate', SURROGATES)
each_margin = pytest.mark.parametrize('epsilon', [0.3, 1.0, 7.0])


def number(value):
    return torch.tensor(value, dtype=torch.float64)


def scores(n=2001, largest=20.0):
    """From -20 to 20, with 0 among them."""
    return torch.linspace(-largest, largest, n, dtype=torch.float64)


@each_margin
def test_equals_the_definition(epsilon):
    z = scores()
    hinge = np.maximum(0, epsilon + z.numpy())
    np.testing.assert_allclose(margin_penalty(z, number(epsilon), 'hinge'), hinge, rtol=0, atol=1e-14)
    logistic = epsilon * np.logaddexp2(0, z.numpy() / epsilon / math.log(2))
    np.testing.assert_allclose(margin_penalty(z, number(epsilon), 'logistic'), logistic, rtol=1e-14, atol=1e-100)


@each_surrogate
@each_margin
def test_bounds_the_step_function(surrogate, epsilon):
    """It is above ε where a score is above 0, and nowhere below 0; it is ε at 0, where it could not be less."""
    z = scores()
    penalty = margin_penalty(z, number(epsilon), surrogate)
    assert (penalty >= epsilon * (z > 0)).all()
    assert margin_penalty(number(0.0), number(epsilon), surrogate).item() == pytest.approx(epsilon, rel=1e-15)


@each_surrogate
@each_margin
def test_bounds_the_rates(surrogate, epsilon):
    """A = ε - mean penalty(-z) is at most ε times the share found, B = mean penalty(z) at least ε times it."""
    for seed in range(20):
        z = torch.randn(30, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + seed / 10 - 1
        found = (z > 0).double().mean()
        assert number(epsilon) - margin_penalty(-z, number(epsilon), surrogate).mean() <= epsilon * found + 1e-15
        assert margin_penalty(z, number(epsilon), surrogate).mean() >= epsilon * found - 1e-15


@each_surrogate
@each_margin
@pytest.mark.parametrize('factor', [0.125, 3.0, 1e6])
def test_positively_homogeneous(surrogate, epsilon, factor):
    z, margin = scores(2000), number(epsilon)  # none at the kink of the hinge
    expected = factor * margin_penalty(z, margin, surrogate)
    found = margin_penalty(factor * z, factor * margin, surrogate)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14 * factor)
    torch.testing.assert_close(margin_slope(factor * z, factor * margin, surrogate), margin_slope(z, margin, surrogate))


@each_surrogate
@each_margin
def test_the_slope_is_the_derivative(surrogate, epsilon):
    z = scores(2000)  # none at the kink of the hinge
    assert (z + epsilon).abs().min() > 1e-4
    z.requires_grad_()
    margin = number(epsilon).requires_grad_()
    penalty = margin_penalty(z, margin, surrogate)
    by_score, by_margin = torch.autograd.grad(penalty.sum(), (z, margin))
    torch.testing.assert_close(margin_slope(z.detach(), margin.detach(), surrogate), by_score)
    # Euler's theorem on homogeneous functions, by which the derivative in ε is found without a sum of its own.
    torch.testing.assert_close(epsilon * by_margin + (z * by_score).sum(), penalty.sum())


@each_surrogate
def test_gradcheck(surrogate):
    z, margin = scores(12).requires_grad_(), number(1.3).requires_grad_()
    assert torch.autograd.gradcheck(lambda z, margin: margin_penalty(z, margin, surrogate), (z, margin))


@each_surrogate
def test_convex_and_never_falling(surrogate):
    penalty = margin_penalty(scores(), number(1.0), surrogate)
    assert (penalty.diff() >= 0).all()
    assert (penalty.diff().diff() >= -1e-13).all()


@each_surrogate
def test_at_the_kink_of_the_hinge_the_slope_is_between_those_beside_it(surrogate):
    before, at, after = margin_slope(number([-1 - 1e-9, -1.0, -1 + 1e-9]), number(1.0), surrogate).tolist()
    assert before <= at <= after


@each_surrogate
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
def test_large_scores_are_finite(surrogate, dtype):
    z = torch.tensor([-1e30, -1e4, 1e4, 1e30], dtype=dtype, requires_grad=True)
    penalty = margin_penalty(z, torch.ones(1, dtype=dtype), surrogate)
    penalty.sum().backward()
    assert penalty.dtype == dtype
    assert penalty[:2].tolist() == [0, 0]
    assert penalty.isfinite().all()
    torch.testing.assert_close(z.grad, margin_slope(z.detach(), torch.ones(1, dtype=dtype), surrogate))
    assert z.grad[:2].tolist() == [0, 0]


@each_surrogate
def test_margins_of_rows(surrogate):
    z, margins = scores(40).view(2, 20), number([[0.5], [2.0]])
    for function in (margin_penalty, margin_slope):
        rows = torch.stack([function(z[k], margins[k], surrogate) for k in range(2)])
        assert torch.equal(function(z, margins, surrogate), rows)


@each_surrogate
def test_nan_is_not_hidden(surrogate):
    assert margin_penalty(number(math.nan), number(1.0), surrogate).isnan()

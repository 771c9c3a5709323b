import itertools
import math

import numpy as np
import pytest
import torch
from reference import lovasz as reference

from mmseg_nondecomp.functional import lovasz_extension, prox_lovasz_hinge
from mmseg_nondecomp.functional.lovasz.prox import MoreauEnvelope

MARGINS = {
    'around zero': lambda rng, n: rng.normal(size=n),
    'positive': lambda rng, n: rng.exponential(size=n),
    'negative': lambda rng, n: -rng.exponential(size=n),
    'ties': lambda rng, n: rng.integers(-1, 4, n) / 2,
    'equal': lambda rng, n: np.full(n, 0.6),
    'close': lambda rng, n: 1 + 1e-6 * rng.normal(size=n),
    'large': lambda rng, n: 100 * rng.normal(size=n),
    'zeros': lambda rng, n: np.maximum(rng.normal(size=n), 0),
}
FOREGROUNDS = {
    'none': lambda rng, n: np.zeros(n, bool),
    'one': lambda rng, n: rng.permutation(n) == 0,
    'half': lambda rng, n: rng.permutation(n) < (n + 1) // 2,
    'most': lambda rng, n: rng.permutation(n) > 0,
    'all': lambda rng, n: np.ones(n, bool),
}
each_family = pytest.mark.parametrize('family', MARGINS)
each_scene = pytest.mark.parametrize(('family', 'foreground'), list(itertools.product(MARGINS, FOREGROUNDS)))
each_foreground = pytest.mark.parametrize('foreground', FOREGROUNDS)


def pixels(family, foreground, n, seed=0):
    rng = np.random.default_rng(seed)
    return torch.tensor(MARGINS[family](rng, n)), torch.tensor(FOREGROUNDS[foreground](rng, n))


def solution(margins, foreground, lam):
    """Solve the quadratic program beside ties, where its active sets may cycle; the operator is non-expansive."""
    beside = margins + 1e-8 * torch.randn(margins.shape, generator=torch.Generator().manual_seed(0)).double()
    return reference.prox_by_quadratic_program(beside, foreground, lam).astype(float)


@each_scene
def test_equals_the_quadratic_program(family, foreground):
    for n, lam in itertools.product((1, 2, 3, 4), (0.03, 0.3, 1, 3, 30)):
        margins, is_foreground = pixels(family, foreground, n, seed=n)
        found, expected = prox_lovasz_hinge(margins, is_foreground, lam), solution(margins, is_foreground, lam)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * (1 + margins.abs().max().item()))


@pytest.mark.parametrize('family', ['around zero', 'positive', 'ties'])
@pytest.mark.parametrize('foreground', ['one', 'half', 'most'])
def test_equals_the_quadratic_program_of_six_pixels(family, foreground):
    for seed, lam in enumerate((0.1, 0.5, 1, 2, 10)):
        margins, is_foreground = pixels(family, foreground, 6, seed)
        expected = solution(margins, is_foreground, lam)
        np.testing.assert_allclose(prox_lovasz_hinge(margins, is_foreground, lam), expected, rtol=0, atol=1e-6)


@each_scene
def test_certified_to_be_the_minimum(family, foreground):
    for n, lam in itertools.product((12, 60), (1e-3, 1e-2, 0.1, 1, 10, 100)):
        margins, is_foreground = pixels(family, foreground, n, seed=n)
        u = prox_lovasz_hinge(margins, is_foreground, lam)
        gap = reference.prox_optimality_gap(u, margins, is_foreground, lam)
        assert math.sqrt(2 * gap / lam) <= 1e-5 * (1 + margins.abs().max().item())


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
def test_a_foreground_pixel_may_pass_a_background_pixel(dtype):
    """In Algorithm C.1, pixels that have become equal stay so, and none can pass another."""
    margins, foreground = torch.tensor([0.8, 0.7, 2.0], dtype=dtype), torch.tensor([True, False, True])
    found = prox_lovasz_hinge(margins, foreground, lam=0.5)
    torch.testing.assert_close(found.double(), torch.tensor([2 / 15, 11 / 30, 1.0]).double(), rtol=0, atol=1e-7)
    expected = reference.prox_by_quadratic_program(margins, foreground, 0.5).astype(float)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@each_family
@pytest.mark.parametrize('lam', [0.1, 1, 10])
def test_without_background_margins_shrink_alike_and_without_foreground_the_largest_are_cut_at_one_level(family, lam):
    margins, foreground = pixels(family, 'all', 9)
    expected = torch.where(margins > 0, (margins - 1 / (9 * lam)).clamp(min=0), margins)
    torch.testing.assert_close(prox_lovasz_hinge(margins, foreground, lam), expected, rtol=1e-12, atol=1e-12)
    margins, foreground = pixels(family, 'none', 9)
    u = prox_lovasz_hinge(margins, foreground, lam)
    if margins.max() <= 0:
        assert torch.equal(u, margins)
        return
    torch.testing.assert_close(u, margins.minimum(u.max()), rtol=1e-12, atol=1e-12)
    taken = (margins - u)[margins > u].sum().item()
    assert taken == pytest.approx(min(1 / lam, margins.clamp(min=0).sum().item()), rel=1e-9)


@each_scene
def test_margins_shrink_towards_zero_and_by_at_most_one_over_lam_in_all(family, foreground):
    for seed, lam in enumerate((1e-3, 1e-2, 0.1, 1, 10, 100)):
        margins, is_foreground = pixels(family, foreground, 30, seed)
        u = prox_lovasz_hinge(margins, is_foreground, lam)
        rounding = 1e-12 * (1 + margins.abs().max())
        assert torch.equal(u[margins <= 0], margins[margins <= 0])
        assert (u <= margins + rounding).all()
        assert (u >= margins.clamp(max=0)).all()
        assert (margins - u).sum() <= 1 / lam + 30 * rounding
        torch.testing.assert_close(prox_lovasz_hinge(margins, is_foreground, 1e12), margins, rtol=1e-11, atol=2e-12)
        torch.testing.assert_close(prox_lovasz_hinge(margins, is_foreground, 1e-9), margins.clamp(max=0))


@each_foreground
@pytest.mark.parametrize('lam', [0.01, 0.3, 10])
def test_firmly_non_expansive(foreground, lam):
    for seed, family in enumerate(MARGINS):
        x, is_foreground = pixels(family, foreground, 25, seed)
        for step in (1e-3, 1):
            y = x + step * pixels('around zero', foreground, 25, seed + 100)[0]
            moved = prox_lovasz_hinge(x, is_foreground, lam) - prox_lovasz_hinge(y, is_foreground, lam)
            assert moved.square().sum() <= moved @ (x - y) + 1e-10 * (1 + x.abs().max())


def subgradient_excess(g, foreground):
    """Return the largest excess of the sum of g over a set of pixels beyond the Jaccard loss of the set."""
    n = foreground.sum()
    fg, bg = (np.sort(g[part])[::-1] for part in (foreground, ~foreground))
    b = np.arange(bg.size + 1)
    union = np.maximum(n + b, 1)
    a = np.searchsorted(-fg, -1 / union)  # one more foreground pixel adds 1 / (n + b)
    fg_sum, bg_sum = (np.append(0, np.cumsum(part)) for part in (fg, bg))
    return (fg_sum[a] + bg_sum[b] - (a + b) / union).max()


@pytest.mark.parametrize('foreground', ['one', 'half', 'most'])
@pytest.mark.parametrize('family', ['around zero', 'ties', 'large'])
@pytest.mark.parametrize('lam', [1e-3, 1e-1])
def test_twenty_thousand_pixels(family, foreground, lam):
    margins, is_foreground = pixels(family, foreground, 20_000)
    u = prox_lovasz_hinge(margins, is_foreground, lam)
    g = lam * (margins - u)  # the minimum is where this is a subgradient
    rounding = 1e-12 * (1 + lam * margins.abs().sum().item())
    assert g.min() >= -rounding
    assert subgradient_excess(g.numpy(), is_foreground.numpy()) <= rounding
    assert (g @ u).item() == pytest.approx(lovasz_extension(u.clamp(min=0), is_foreground).item(), rel=1e-6, abs=1e-9)


@each_scene
def test_the_envelope_is_the_least_objective_with_the_step_for_gradient_and_rises_to_the_hinge(family, foreground):
    margins, is_foreground = pixels(family, foreground, 20)
    hinge = lovasz_extension(margins.clamp(min=0), is_foreground).item()
    values = [MoreauEnvelope.apply(margins, is_foreground, lam).item() for lam in (1e-6, 1e-2, 0.1, 1, 10, 1e9)]
    assert all(low <= high + 1e-10 * (1 + hinge) for low, high in zip(values, [*values[1:], hinge], strict=True))
    assert values[0] == pytest.approx(0, abs=1e-6 * margins.square().sum().item())
    assert values[-1] == pytest.approx(hinge, rel=1e-6, abs=1e-6)
    margins.requires_grad_()
    for lam in (0.1, 3):
        value = MoreauEnvelope.apply(margins, is_foreground, lam)
        u = prox_lovasz_hinge(margins, is_foreground, lam)
        expected = reference.hinge_objective(u, margins.detach(), is_foreground, lam)
        assert value.item() == pytest.approx(float(expected), rel=1e-10, abs=1e-12)
        gradient = torch.autograd.grad(2 * value, margins)[0]
        torch.testing.assert_close(gradient, 2 * lam * (margins - u).detach(), rtol=1e-12, atol=0)


@each_foreground
@pytest.mark.parametrize('lam', [0.1, 3])
def test_gradcheck_of_the_envelope(foreground, lam):
    """Pixels may be tied, or made equal by the operator."""
    for family in ('around zero', 'ties', 'large'):
        margins, is_foreground = pixels(family, foreground, 6)
        margins = margins + 1e-3 * (margins == 0)
        call = lambda m, is_foreground=is_foreground: MoreauEnvelope.apply(m, is_foreground, lam)  # noqa: E731
        assert torch.autograd.gradcheck(call, margins.requires_grad_(), eps=1e-5, atol=1e-4)


def test_a_margin_that_is_not_finite_makes_the_envelope_not_finite_and_no_pixels_make_it_0():
    for wrong in (math.nan, math.inf):
        margins = torch.tensor([1.0, wrong, 0.5])
        assert not MoreauEnvelope.apply(margins, torch.tensor([True, False, False]), 1.0).isfinite()
    nothing = torch.zeros(0)
    assert prox_lovasz_hinge(nothing, nothing.bool(), 1.0).shape == (0,)
    assert MoreauEnvelope.apply(nothing, nothing.bool(), 1.0).item() == 0


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_computed_in_float64_and_returned_in_float32_or_better(dtype):
    margins, foreground = pixels('around zero', 'half', 50)
    margins = margins.to(dtype).requires_grad_()
    found = prox_lovasz_hinge(margins, foreground.int(), 0.3)
    assert not found.requires_grad
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(found, prox_lovasz_hinge(margins.double(), foreground, 0.3).to(found.dtype))
    MoreauEnvelope.apply(margins, foreground, 0.3).backward()
    assert margins.grad.dtype == dtype


M, Y = torch.tensor([0.5, -0.5, 1.5]), torch.tensor([True, False, True])


@pytest.mark.parametrize(
    ('margins', 'foreground', 'lam', 'error', 'message'),
    [
        (M.long(), Y, 1.0, TypeError, '`margins`.*int64'),
        (M[None], Y[None], 1.0, ValueError, r'`margins` and `foreground`.*\(1, 3\)'),
        (M, Y[:2], 1.0, ValueError, r'`margins` and `foreground`.*\(3,\) and \(2,\)'),
        (M / 0, Y, 1.0, ValueError, '`margins`.*finite'),
        (M, Y * 255, 1.0, ValueError, '`foreground` should be 0 or 1. Found 255'),
        (M, Y, 0, ValueError, r'`lam` should be in \(0, inf\). Found 0'),
    ],
)
def test_arguments_that_do_not_fit_are_named(margins, foreground, lam, error, message):
    with pytest.raises(error, match=message):
        prox_lovasz_hinge(margins, foreground, lam)

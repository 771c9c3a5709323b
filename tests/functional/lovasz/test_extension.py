import itertools
import math

import numpy as np
import pytest
import torch
from reference import lovasz as reference

from mmseg_nondecomp.functional import lovasz_extension
from mmseg_nondecomp.functional.lovasz.extension import (
    descending_order,
    shares_by_sorting,
    shares_in_order,
    shares_of_bins,
)

FAMILIES = {
    'uniform': lambda rng, n: rng.random(n),
    'ties': lambda rng, n: rng.integers(0, 3, n) / 4,
    'all equal': lambda rng, n: np.full(n, 0.7),
    'half zeros': lambda rng, n: rng.random(n) * (rng.permutation(n) % 2),
    'margins': lambda rng, n: np.maximum(rng.normal(1, 3, n), 0),
    'twenty decades': lambda rng, n: 10 ** rng.uniform(-10, 10, n),
    'all zero': lambda rng, n: np.zeros(n),
}
FOREGROUNDS = {
    'none': lambda rng, n: np.zeros(n, bool),
    'one': lambda rng, n: rng.permutation(n) == 0,
    'some': lambda rng, n: rng.permutation(n) < (n + 1) // 2,
    'all': lambda rng, n: np.ones(n, bool),
}
each_scene = pytest.mark.parametrize(('family', 'foreground'), list(itertools.product(FAMILIES, FOREGROUNDS)))
each_foreground = pytest.mark.parametrize('foreground', FOREGROUNDS)


def pixels(family, foreground, n, seed=0):
    rng = np.random.default_rng(seed)
    return torch.tensor(FAMILIES[family](rng, n)), torch.tensor(FOREGROUNDS[foreground](rng, n))


def gradient(errors, foreground):
    errors = errors.clone().requires_grad_()
    return torch.autograd.grad(lovasz_extension(errors, foreground).sum(), errors)[0]


@each_scene
def test_equals_the_maximum_over_all_orderings(family, foreground):
    for n in (1, 2, 3, 5, 7):
        errors, is_foreground = pixels(family, foreground, n, seed=n)
        value, slope = reference.lovasz_extension_by_orderings(errors, is_foreground)
        assert lovasz_extension(errors, is_foreground).item() == pytest.approx(float(value), rel=1e-13)
        found = gradient(errors, is_foreground)
        assert (found @ errors).item() == pytest.approx(float(value), rel=1e-13)
        if slope is not None:
            np.testing.assert_allclose(found, slope.astype(float), rtol=1e-13, atol=1e-15)


@each_scene
@pytest.mark.parametrize(('dtype', 'precision'), [(torch.float32, 1e-6), (torch.float64, 1e-13)], ids=str)
def test_equals_the_integral_over_levels(family, foreground, dtype, precision):
    errors, is_foreground = pixels(family, foreground, 300)
    errors = errors.to(dtype)
    found = lovasz_extension(errors, is_foreground)
    assert found.dtype == dtype
    expected = reference.lovasz_extension_by_levels(errors, is_foreground)
    assert found.item() == pytest.approx(float(expected), rel=precision)


@pytest.mark.parametrize('dtype', [torch.float16, torch.float32, torch.float64], ids=str)
def test_foreground_may_be_of_any_dtype_and_a_negative_zero_is_a_zero(dtype):
    errors, foreground = torch.tensor([0.0, 0.5, 0.25], dtype=dtype), torch.tensor([True, False, True])
    for of_foreground in (torch.bool, torch.uint8, torch.long, dtype):
        signed = errors.copysign(torch.tensor([-1.0, 1, 1]))
        assert lovasz_extension(signed, foreground.to(of_foreground)) == lovasz_extension(errors, foreground)


def test_rows_are_sets_and_without_foreground_the_largest_error_and_without_background_the_mean():
    rng = np.random.default_rng(0)
    errors, foreground = torch.tensor(rng.random((2, 3, 20))), torch.tensor(rng.random((2, 3, 20)) < 0.3)
    foreground[0, 0], foreground[1, 2] = False, True
    found = lovasz_extension(errors, foreground)
    assert found.shape == (2, 3)
    for place in np.ndindex(2, 3):
        torch.testing.assert_close(found[place], lovasz_extension(errors[place], foreground[place]))
        torch.testing.assert_close(
            gradient(errors, foreground)[place], gradient(errors[place], foreground[place]), rtol=1e-13, atol=0
        )
    errors, none = pixels('uniform', 'none', 50)
    assert lovasz_extension(errors, none).item() == errors.max()
    assert torch.equal(gradient(errors, none), (errors == errors.max()).double())
    assert lovasz_extension(errors, ~none).item() == pytest.approx(errors.mean().item(), rel=1e-13)


@each_foreground
def test_equals_the_jaccard_loss_on_sets(foreground):
    rng = np.random.default_rng(0)
    _, is_foreground = pixels('uniform', foreground, 12)
    for share in (0, 1, *rng.random(30)):
        wrong = rng.random(12) < share
        found = lovasz_extension(torch.tensor(wrong).double(), is_foreground).item()
        assert found == pytest.approx(float(reference.jaccard_loss(wrong, is_foreground)), rel=1e-13)


@each_scene
def test_convex_homogeneous_and_monotone_and_the_gradient_is_a_subgradient(family, foreground):
    rng = np.random.default_rng(1)
    for seed in range(5):
        x, is_foreground = pixels(family, foreground, 15, seed)
        y, _ = pixels(family, foreground, 15, seed + 100)
        t, scale = rng.random(), rng.exponential()
        points = torch.stack([x, y, t * x + (1 - t) * y, scale * x, x + y])
        at_x, at_y, between, scaled, larger = lovasz_extension(points, is_foreground.expand_as(points)).tolist()
        slack = 1e-12 * (at_x + at_y)
        assert between <= t * at_x + (1 - t) * at_y + slack
        assert scaled == pytest.approx(scale * at_x, rel=1e-12)
        assert larger >= max(at_x, at_y) - slack
        slope = gradient(x, is_foreground)
        assert (slope >= 0).all()
        for other in FAMILIES:
            y = pixels(other, foreground, 15, seed + 100)[0]
            bound = at_x + slope @ (y - x)
            assert lovasz_extension(y, is_foreground) >= bound - 1e-12 * (bound.abs() + at_x + slope @ y)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_float32(dtype):
    errors, foreground = pixels('uniform', 'some', 100_000)
    errors = errors.to(dtype).requires_grad_()
    found = lovasz_extension(errors, foreground)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(lovasz_extension(errors.double(), foreground).item(), rel=1e-6)
    found.backward()
    assert errors.grad.dtype == dtype
    halves, foreground = torch.full((70_000,), 0.5, dtype=dtype), torch.ones(70_000, dtype=dtype)
    assert lovasz_extension(halves, foreground).item() == pytest.approx(0.5, rel=1e-6)


def test_slopes_of_two_million_pixels_do_not_cancel():
    n, rng = 2**21, np.random.default_rng(0)
    place = rng.permutation(n)
    errors, foreground = (place + 0.5) / n, rng.random(n) < 0.1
    found = gradient(torch.tensor(errors).float(), torch.tensor(foreground)).numpy()[np.argsort(-place)]

    def steps(dtype):
        is_foreground = foreground[np.argsort(-place)].astype(dtype)
        total = is_foreground.sum()
        union = total + np.cumsum(1 - is_foreground)
        return np.diff(1 - (total - np.cumsum(is_foreground)) / union, prepend=dtype(0))

    expected = steps(np.longdouble)
    large = expected > 1e-12
    assert np.abs(found / np.where(large, expected, 1) - 1)[large].max() < 1e-6
    assert np.abs(found - expected)[~large].max() < 1e-15
    as_differences = steps(np.float32)  # as other implementations compute them
    assert np.linalg.norm(as_differences - expected) > 1e-3 * np.linalg.norm(expected)


@each_scene
@pytest.mark.parametrize('integers', [True, False])
def test_the_mass_of_a_pixel_is_the_number_of_times_it_counts(family, foreground, integers):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        errors, is_foreground = pixels(family, foreground, 12, seed)
        mass = torch.tensor(rng.integers(0, 3, 12).astype(np.int32) if integers else rng.exponential(size=12))
        shares = shares_by_sorting(errors, mass * is_foreground, mass * ~is_foreground)
        expected = reference.lovasz_extension_by_levels(errors, is_foreground, mass)
        assert shares.dtype == torch.float64
        assert (errors @ shares).item() == pytest.approx(float(expected), rel=1e-12)
        assert shares.sum().item() == pytest.approx(float((mass > 0).any()), rel=1e-12)


def test_pixels_of_hardly_any_mass_and_of_none_leave_the_shares_of_the_others():
    errors, mass = torch.tensor([[0.9, 0.5], [1e-20, 1]], dtype=torch.float64)
    torch.testing.assert_close(shares_by_sorting(errors, 0 * mass, mass), torch.tensor([1.0, 0.0]).double())
    errors, foreground = pixels('uniform', 'some', 12)
    mass = torch.arange(12, dtype=torch.int32) % 3
    shares = shares_by_sorting(errors, mass * foreground, mass * ~foreground)
    poisoned = errors.masked_fill(mass == 0, math.nan)
    assert torch.equal(shares_by_sorting(poisoned, mass * foreground, mass * ~foreground), shares)
    assert shares[mass == 0].eq(0).all()


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
def test_rows_and_single_rows_are_sorted_alike(dtype):
    generator = torch.Generator().manual_seed(0)
    tiny = torch.finfo(dtype).smallest_normal
    ends = torch.tensor([0.0, -0.0, tiny, tiny / 4, 1.0, 1 + torch.finfo(dtype).eps, 1e30, math.inf], dtype=dtype)
    values = torch.cat([ends, torch.rand(1000, dtype=dtype, generator=generator), torch.ones(5, dtype=dtype)])
    values = values[torch.randperm(len(values), generator=generator)]
    expected = values.sort(descending=True).values
    strided = torch.stack([values, values], 1)[:, 0]
    for found in (values[descending_order(values)], values[descending_order(values[None])[0]]):
        assert torch.equal(found, expected)
    assert torch.equal(strided[descending_order(strided)], expected)


def test_a_nan_is_not_hidden_and_a_set_of_no_pixels_is_a_zero_attached_to_the_graph():
    errors = torch.tensor([0.5, math.nan, 0.1])
    for foreground in ([True, True, False], [True, False, False], [False, False, False]):
        assert lovasz_extension(errors, torch.tensor(foreground)).isnan()
    errors = torch.zeros(3, 0, requires_grad=True)
    loss = lovasz_extension(errors, torch.zeros(3, 0).bool())
    loss.sum().backward()
    assert loss.tolist() == [0, 0, 0]
    assert errors.grad.shape == (3, 0)


@pytest.mark.parametrize(
    ('errors', 'foreground', 'error', 'message'),
    [
        (torch.ones(3).long(), torch.ones(3).bool(), TypeError, '`errors`.*int64'),
        (torch.ones(3), torch.ones(4).bool(), ValueError, r'`errors` and `foreground`.*\(3,\) and \(4,\)'),
        (torch.tensor(1.0), torch.tensor(True), ValueError, r'`errors` and `foreground`.*\(\) and \(\)'),
        (torch.tensor([0.5, -0.25]), torch.ones(2).bool(), ValueError, '`errors`.*negative.*-0.25'),
        (torch.ones(2), torch.tensor([1, 2]), ValueError, '`foreground` should be 0 or 1. Found'),
    ],
)
def test_errors_and_foregrounds_that_do_not_fit_are_named(errors, foreground, error, message):
    with pytest.raises(error, match=message):
        lovasz_extension(errors, foreground)


MASSES = {
    'counts': lambda rng, n: rng.integers(0, 5, (2, n)).astype(float),
    'sparse counts': lambda rng, n: rng.integers(1, 9, (2, n)) * (rng.random((2, n)) < 0.3),
    'fractions': lambda rng, n: rng.exponential(size=(2, n)),
    'rare class': lambda rng, n: rng.exponential(size=(2, n)) * [[1e-6], [1]],
    'rare background': lambda rng, n: rng.exponential(size=(2, n)) * [[1], [1e-6]],
    'no foreground': lambda rng, n: rng.exponential(size=(2, n)) * [[0], [1]],
    'no background': lambda rng, n: rng.exponential(size=(2, n)) * [[1], [0]],
    'thirty decades': lambda rng, n: 10 ** rng.uniform(-30, 0, (2, n)),
    'thirty decades without foreground': lambda rng, n: 10 ** rng.uniform(-30, 0, (2, n)) * [[0], [1]],
    'nothing': lambda rng, n: np.zeros((2, n)),
}
each_mass = pytest.mark.parametrize('kind', MASSES)


def masses(kind, n, seed=0):
    return MASSES[kind](np.random.default_rng(seed), n).astype(float)


def delta(a, b, n):
    """Return the Jaccard loss of a set with these masses, of a class with the foreground mass n."""
    union = n + b
    return np.divide(a + b, union, out=np.zeros_like(union), where=union > 0)


def losses_on_the_way(foreground, background):
    """Return the Jaccard loss before the first bin enters, and after each, in longdouble."""
    a, b = (np.append(0, np.cumsum(part.astype(np.longdouble))) for part in (foreground, background))
    return delta(a, b, a[-1])


def cell_shares(foreground, background):
    """Return the shares of bins that are given from the largest error down."""
    of_background, of_foreground = shares_of_bins(torch.tensor(np.stack([background, foreground])[:, ::-1].copy()))
    return of_foreground.numpy()[::-1], of_background.numpy()[::-1]


@each_mass
def test_shares_in_order_are_the_steps_of_the_jaccard_loss(kind):
    for seed in range(20):
        foreground, background = masses(kind, 12, seed)
        is_foreground = np.arange(12) % 3 == seed % 3
        mass = np.where(is_foreground, foreground, background)
        found = shares_in_order(*(torch.tensor(mass * part) for part in (is_foreground, ~is_foreground)))
        losses = [reference.jaccard_loss(np.arange(12) < k, is_foreground, mass) for k in range(13)]
        np.testing.assert_allclose(found, np.diff(losses).astype(float), rtol=1e-12, atol=1e-15)


def test_integer_masses_are_counted_exactly():
    foreground = torch.tensor([[0, 2, 0, 1, 0], [1, 0, 1, 0, 1]], dtype=torch.int32)
    background = torch.tensor([[3, 0, 1, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.int32)
    expected = shares_in_order(foreground.double(), background.double())
    torch.testing.assert_close(shares_in_order(foreground, background).double(), expected, rtol=2e-7, atol=0)
    torch.testing.assert_close(expected.sum(1), torch.ones(2).double())


@each_mass
@pytest.mark.parametrize('n', [1, 2, 30])
def test_the_shares_of_a_cell_add_up_to_its_step(kind, n):
    for seed in range(10):
        foreground, background = masses(kind, n, seed)
        of_foreground, of_background = cell_shares(foreground, background)
        steps = foreground * of_foreground + background * of_background
        expected = np.diff(losses_on_the_way(foreground, background)).astype(float)
        np.testing.assert_allclose(steps, expected, rtol=1e-8, atol=1e-15)
        assert steps.sum() == pytest.approx(1 if (foreground + background).any() else 0, rel=1e-8)


def integrated_shares(foreground, background):
    """Integrate the price along the path (I - a t, U + b t), by Gauss-Legendre quadrature in log(U + b t)."""
    a, b = (part.astype(np.longdouble) for part in (foreground, background))
    a_before, b_before = np.cumsum(a) - a, np.cumsum(b) - b
    intersection, union = a.sum() - a_before, a.sum() + b_before
    nodes, weights = np.polynomial.legendre.leggauss(60)
    s, weights = (nodes[:, None].astype(np.longdouble) + 1) / 2, weights[:, None].astype(np.longdouble) / 2
    log = np.log1p(b / union)
    growth = np.expm1(s * log)  # b t / U
    t = np.where(b > 0, growth * union / np.where(b > 0, b, 1), s)
    speed = np.where(b > 0, log * (1 + growth) * union / np.where(b > 0, b, 1), 1)  # dt / ds
    at = union + b * t
    return (weights * speed / at).sum(0), (weights * speed * (intersection - a * t) / at**2).sum(0)


@pytest.mark.parametrize('kind', ['counts', 'fractions', 'rare class', 'rare background', 'no background'])
def test_shares_are_the_integral_along_the_straight_path(kind):
    for seed in range(10):
        foreground, background = masses(kind, 20, seed)
        foreground[3] += 1e-3
        expected = np.array(integrated_shares(foreground, background), float)
        np.testing.assert_allclose(cell_shares(foreground, background), expected, rtol=1e-8, atol=1e-15)


@pytest.mark.parametrize('ratio', [0, 1e-300, 1e-20, 1e-12, 1e-8, 0.99e-4, 1.01e-4, 1e-2, 1, 1e3, 1e6])
def test_shares_are_accurate_for_any_ratio_of_background_and_union(ratio):
    foreground, background = np.array([3.0, 2.0, 5.0]), np.array([0.0, 10.0 * ratio, 0.0])
    found, expected = cell_shares(foreground, background), integrated_shares(foreground, background)
    np.testing.assert_allclose(found, np.array(expected, float), rtol=3e-8)
    if ratio < 1e-12:
        np.testing.assert_allclose(found[0], 1 / 10, rtol=1e-11)
        np.testing.assert_allclose(found[1][1], (7 - 2 / 2) / 10**2, rtol=1e-11)


@each_mass
def test_no_part_of_a_cell_is_charged_more_than_it_costs_alone(kind):
    for seed in range(10):
        foreground, background = masses(kind, 6, seed)
        n = foreground.sum()
        shares = np.array(cell_shares(foreground, background))
        for k in range(6):
            a0, b0 = foreground[:k].sum(), background[:k].sum()
            a, b = np.meshgrid(*(np.linspace(0, part[k], 9) for part in (foreground, background)))
            charged = a * shares[0, k] + b * shares[1, k]
            assert (charged <= delta(a0 + a, b0 + b, n) - delta(a0, b0, n) + 1e-8 * charged + 1e-12).all()

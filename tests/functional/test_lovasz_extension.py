import math

import numpy as np
import pytest
import torch
from reference import lovasz as reference

from mmseg_nondecomp.functional import lovasz_extension
from mmseg_nondecomp.functional.lovasz_extension import descending_order, shares_by_sorting

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
each_family = pytest.mark.parametrize('family', FAMILIES)
each_foreground = pytest.mark.parametrize('foreground', FOREGROUNDS)


def pixels(family, foreground, n, seed=0):
    rng = np.random.default_rng(seed)
    return torch.tensor(FAMILIES[family](rng, n)), torch.tensor(FOREGROUNDS[foreground](rng, n))


def gradient(errors, foreground):
    errors = errors.clone().requires_grad_()
    return torch.autograd.grad(lovasz_extension(errors, foreground).sum(), errors)[0]


@each_family
@each_foreground
def test_equals_the_maximum_over_all_orderings(family, foreground):
    for n in (1, 2, 3, 5, 7):
        errors, is_foreground = pixels(family, foreground, n, seed=n)
        value, slope = reference.lovasz_extension_by_orderings(errors, is_foreground)
        assert lovasz_extension(errors, is_foreground).item() == pytest.approx(float(value), rel=1e-13)
        found = gradient(errors, is_foreground)
        assert (found @ errors).item() == pytest.approx(float(value), rel=1e-13)
        if slope is not None:
            np.testing.assert_allclose(found, slope.astype(float), rtol=1e-13, atol=1e-15)


@each_family
@each_foreground
@pytest.mark.parametrize(('dtype', 'precision'), [(torch.float32, 1e-6), (torch.float64, 1e-13)], ids=str)
def test_equals_the_integral_over_levels(family, foreground, dtype, precision):
    errors, is_foreground = pixels(family, foreground, 300)
    errors = errors.to(dtype)
    found = lovasz_extension(errors, is_foreground)
    assert found.dtype == dtype
    expected = reference.lovasz_extension_by_levels(errors, is_foreground)
    assert found.item() == pytest.approx(float(expected), rel=precision)


@pytest.mark.parametrize('dtype', [torch.bool, torch.uint8, torch.long, torch.float32], ids=str)
def test_foreground_may_be_of_any_dtype(dtype):
    errors, foreground = pixels('uniform', 'some', 9)
    assert lovasz_extension(errors, foreground.to(dtype)) == lovasz_extension(errors, foreground)


def test_rows_are_sets_of_their_own():
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


def test_an_absent_class_has_the_largest_error():
    errors, foreground = pixels('uniform', 'none', 50)
    assert lovasz_extension(errors, foreground).item() == errors.max()
    assert torch.equal(gradient(errors, foreground), (errors == errors.max()).double())


def test_a_class_without_background_has_the_mean_error():
    errors, foreground = pixels('uniform', 'all', 50)
    assert lovasz_extension(errors, foreground).item() == pytest.approx(errors.mean().item(), rel=1e-13)


@each_foreground
@pytest.mark.parametrize('n', [1, 10, 1000])
def test_wholly_wrong_is_one(foreground, n):
    _, is_foreground = pixels('uniform', foreground, n)
    assert lovasz_extension(torch.ones(n), is_foreground).item() == pytest.approx(1, rel=1e-6)


@each_foreground
def test_equals_the_jaccard_loss_on_sets(foreground):
    rng = np.random.default_rng(0)
    _, is_foreground = pixels('uniform', foreground, 12)
    for _ in range(30):
        wrong = rng.random(12) < rng.random()
        found = lovasz_extension(torch.tensor(wrong).double(), is_foreground).item()
        assert found == pytest.approx(float(reference.jaccard_loss(wrong, is_foreground)), rel=1e-13)


@each_family
@each_foreground
def test_convex_homogeneous_and_monotone(family, foreground):
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


def test_the_order_of_the_pixels_is_no_matter():
    errors, foreground = pixels('uniform', 'some', 100)
    order = torch.tensor(np.random.default_rng(1).permutation(100))
    value, moved = lovasz_extension(errors, foreground), lovasz_extension(errors[order], foreground[order])
    torch.testing.assert_close(moved, value, rtol=1e-14, atol=0)
    torch.testing.assert_close(gradient(errors[order], foreground[order]), gradient(errors, foreground)[order])


@each_foreground
def test_gradcheck(foreground):
    errors, is_foreground = pixels('uniform', foreground, 20)
    assert errors.sort().values.diff().min() > 1e-4
    assert torch.autograd.gradcheck(lambda x: lovasz_extension(x, is_foreground), errors.requires_grad_())


@each_family
@each_foreground
def test_the_gradient_is_a_subgradient(family, foreground):
    for seed in range(5):
        x, is_foreground = pixels(family, foreground, 15, seed)
        slope, value = gradient(x, is_foreground), lovasz_extension(x, is_foreground)
        assert (slope >= 0).all()
        for other in FAMILIES:
            y = pixels(other, foreground, 15, seed + 100)[0]
            bound = value + slope @ (y - x)
            assert lovasz_extension(y, is_foreground) >= bound - 1e-12 * (bound.abs() + value + slope @ y)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_float32(dtype):
    errors, foreground = pixels('uniform', 'some', 100_000)
    errors = errors.to(dtype).requires_grad_()
    found = lovasz_extension(errors, foreground)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(lovasz_extension(errors.double(), foreground).item(), rel=1e-6)
    found.backward()
    assert errors.grad.dtype == dtype


def test_a_foreground_beyond_the_range_of_half_precision():
    errors = torch.full((70_000,), 0.5, dtype=torch.float16)
    assert lovasz_extension(errors, torch.ones(70_000).half()).item() == pytest.approx(0.5, rel=1e-6)


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
    assert np.linalg.norm(steps(np.float32) - expected) > 1e-3 * np.linalg.norm(expected)  # what peers do


@each_family
@each_foreground
@pytest.mark.parametrize('integers', [True, False])
def test_pixels_count_as_often_as_their_mass_says(family, foreground, integers):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        errors, is_foreground = pixels(family, foreground, 12, seed)
        mass = torch.tensor(rng.integers(0, 3, 12).astype(np.int32) if integers else rng.exponential(size=12))
        shares = shares_by_sorting(errors, mass * is_foreground, mass * ~is_foreground)
        expected = reference.lovasz_extension_by_levels(errors, is_foreground, mass)
        assert shares.dtype == torch.float64
        assert (errors @ shares).item() == pytest.approx(float(expected), rel=1e-12)
        assert shares.sum().item() == pytest.approx(float((mass > 0).any()), rel=1e-12)


def test_a_mass_too_small_to_change_the_sum_is_no_second_beginning():
    errors, mass = torch.tensor([[0.9, 0.5], [1e-20, 1]], dtype=torch.float64)
    torch.testing.assert_close(shares_by_sorting(errors, 0 * mass, mass), torch.tensor([1.0, 0.0]).double())


def test_what_has_no_mass_has_no_share_though_it_is_nan():
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


@pytest.mark.parametrize('dtype', [torch.float16, torch.float32, torch.float64], ids=str)
def test_a_negative_zero_is_no_error(dtype):
    errors, foreground = torch.tensor([0.0, 0.5, 0.25], dtype=dtype), torch.tensor([True, False, True])
    assert lovasz_extension(errors.copysign(torch.tensor([-1.0, 1, 1])), foreground) == lovasz_extension(
        errors, foreground
    )


def test_a_nan_is_not_hidden():
    errors = torch.tensor([0.5, math.nan, 0.1])
    for foreground in ([True, True, False], [True, False, False], [False, False, False]):
        assert lovasz_extension(errors, torch.tensor(foreground)).isnan()


def test_no_pixels_are_an_attached_zero():
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
        (torch.ones(2, 3), torch.ones(3).bool(), ValueError, r'`errors` and `foreground`.*\(2, 3\) and \(3,\)'),
        (torch.tensor(1.0), torch.tensor(True), ValueError, r'`errors` and `foreground`.*\(\) and \(\)'),
        (torch.tensor([0.5, -0.25]), torch.ones(2).bool(), ValueError, '`errors`.*negative.*-0.25'),
        (torch.ones(2), torch.tensor([1, 2]), ValueError, '`foreground`.*0 and 1'),
        (torch.ones(2), torch.tensor([1, 0.5]), ValueError, '`foreground`.*0 and 1'),
        (torch.ones(2), torch.tensor([1, 255], dtype=torch.uint8), ValueError, '`foreground`.*0 and 1'),
    ],
)
def test_bad_input(errors, foreground, error, message):
    with pytest.raises(error, match=message):
        lovasz_extension(errors, foreground)

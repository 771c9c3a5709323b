import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from reference import smooth_topk as reference
from topk_scenes import FAMILIES, each_dtype, normal
from torch.autograd import gradcheck, gradgradcheck

from mmseg_nondecomp.functional import log_elementary_symmetric

pytestmark = pytest.mark.usefixtures('each_arithmetic')

SIZES = (1, 2, 3, 5, 8, 12)
FAMILIES = FAMILIES | {'nothing': lambda rng, n: np.full(n, -np.inf)}


def assert_close(actual, expected, rtol, atol=0.0):
    np.testing.assert_allclose(actual.detach().double().numpy(), np.asarray(expected, float), rtol=rtol, atol=atol)


@pytest.mark.parametrize('family', FAMILIES)
@each_dtype
def test_equals_the_enumeration(family, dtype):
    rng, rounding = np.random.default_rng(0), 1e-12 if dtype == torch.float64 else 1e-5
    for n in SIZES:
        x = torch.tensor(FAMILIES[family](rng, n)).to(dtype).requires_grad_()
        actual = log_elementary_symmetric(x, n + 1)
        expected = [reference.log_elementary_symmetric(x.detach(), k) for k in range(n + 2)]
        assert actual.dtype == dtype
        assert_close(actual, [e.value for e in expected], rounding, rounding)
        for k in range(1, n + 1):
            if actual[k] == -math.inf:
                continue
            gradient = torch.autograd.grad(actual[k], x, retain_graph=True)[0]
            assert_close(gradient, expected[k].gradient, rounding, rounding)


@each_dtype
def test_many_numbers_equal_the_summation_algorithm(dtype):
    for n in (100, 1000, 1023):
        x = normal(n, dtype=dtype).requires_grad_()
        sigma = reference.summation_algorithm(np.exp(x.detach().numpy().astype(np.longdouble)), 7)
        rounding = 1e-14 if dtype == torch.float64 else 1e-6
        assert_close(log_elementary_symmetric(x, 7), np.log(sigma), rounding)


def gradient_by_recursion(e, k):
    sigma = reference.summation_algorithm(e, k)
    derivatives = reference.backward_algorithm(e, sigma, k)
    return np.array([float(number * d / sigma[k]) for number, d in zip(e, derivatives, strict=True)])


@pytest.mark.parametrize(('tau', 'lost'), [(0.05, 1e-4), (0.01, 1e10)])
def test_keeps_in_float32_the_digits_that_the_recursion_of_the_paper_loses(tau, lost):
    k = 5
    x = normal(200, dtype=torch.float32) / (k * tau)
    x = (x - x.max()).requires_grad_()
    e = np.exp(x.detach().double().numpy())
    expected = gradient_by_recursion([Fraction(number) for number in e], k)
    assert np.abs(gradient_by_recursion(e.astype(np.float32), k) - expected).max() > lost
    assert_close(torch.autograd.grad(log_elementary_symmetric(x, k)[k], x)[0], expected, 0, 1e-6)


@pytest.mark.parametrize('scale', [0.0, 1.0, 1e3, 1e10, 1e30])
@each_dtype
def test_the_gradient_adds_up_to_the_degree(scale, dtype):
    x = (scale * normal(1000, dtype=dtype)).requires_grad_()
    logarithms = log_elementary_symmetric(x, 6)
    for k in range(1, 7):
        gradient = torch.autograd.grad(logarithms[k], x, retain_graph=True)[0]
        assert gradient.min() >= 0
        assert gradient.max() <= 1 + 1e-5
        assert gradient.double().sum().item() == pytest.approx(k, rel=1e-13 if dtype == torch.float64 else 1e-5)


@each_dtype
@pytest.mark.parametrize('gap', [1, 5, 10, 20, 30, 40, 60, 100, 150, 200, 230, 240, 250, 300, 350, 400, 1000])
def test_nothing_is_lost_while_the_gap_grows(dtype, gap):
    """One number is e^gap times as large as the others, which the sums of the higher degrees need."""
    x = torch.tensor([0.0] + [-gap + i / 8 for i in range(9)], dtype=dtype).requires_grad_()
    actual = log_elementary_symmetric(x, 4)
    rounding = 1e-13 if dtype == torch.float64 else 1e-6
    for k in range(1, 5):
        expected = reference.log_elementary_symmetric(x.detach(), k)
        assert actual[k].item() == pytest.approx(float(expected.value), rel=rounding, abs=rounding)
        gradient = torch.autograd.grad(actual[k], x, retain_graph=True)[0].double()
        np.testing.assert_allclose(gradient, expected.gradient.astype(float), rtol=0, atol=rounding)


@pytest.mark.parametrize(('n', 'k'), [(2000, 300), (20, 20), (1100, 1000), (4000, 1000)])
def test_many_products_do_not_overflow(n, k):
    """C(2000, 300) is far above the largest number."""
    x = torch.zeros(n).double().requires_grad_()
    actual = log_elementary_symmetric(x, k)[-1]
    expected = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    assert actual.item() == pytest.approx(expected, rel=1e-13, abs=1e-12)
    gradient = torch.autograd.grad(actual, x)[0]
    np.testing.assert_allclose(gradient, k / n, rtol=1e-11)


def test_symmetric_and_homogeneous_and_log_concave_and_a_zero_does_not_matter():
    """A factor of all numbers leaves a sum of products of k of them to the k-th power."""
    x, order = normal(4, 37), torch.randperm(37, generator=torch.Generator().manual_seed(1))
    expected = log_elementary_symmetric(x, 5)
    with_zeros = torch.cat([x, torch.full((4, 5), -math.inf)], -1)
    for changed, added in ((x[:, order], 0), (with_zeros, 0), (x + 3.0, 3.0 * torch.arange(6))):
        torch.testing.assert_close(log_elementary_symmetric(changed, 5), expected + added, rtol=1e-13, atol=1e-13)
    # The means of the products are log-concave in their degree.
    n = 40
    means = log_elementary_symmetric(2 * normal(9, n), 10) - torch.tensor([math.comb(n, j) for j in range(11)]).log()
    assert (2 * means[:, 1:-1] >= means[:, 2:] + means[:, :-2] - 1e-12).all()


@pytest.mark.parametrize('n', [1, 2, 3, 5])
def test_gradcheck_and_gradgradcheck(n):
    for x in (normal(2, n), torch.zeros(2, n).double(), torch.tensor([[0.5] + [-math.inf] * (n - 1)]).double()):
        finite = x.isfinite()
        y = x[finite].requires_grad_()
        for k in range(1, n + 1):

            def logarithms(y, x=x, finite=finite, k=k):
                actual = log_elementary_symmetric(x.masked_scatter(finite, y), k)
                return actual[actual.isfinite()]

            assert gradcheck(logarithms, y)
            assert gradgradcheck(logarithms, y, fast_mode=True)


def test_gradients_through_zeros_are_finite_and_nan_is_not_hidden():
    x = torch.tensor([[0.5, -math.inf, 1.0, -math.inf], [-math.inf] * 4]).double().requires_grad_()
    logarithms = log_elementary_symmetric(x, 4)
    first = torch.autograd.grad(logarithms[:, 1:], x, torch.ones(2, 4).double(), create_graph=True)[0]
    assert first.isfinite().all()
    assert first[~x.isfinite()].eq(0).all()
    assert torch.autograd.grad(first.square().sum(), x)[0].isfinite().all()
    x = normal(7)
    x[3] = math.nan
    assert log_elementary_symmetric(x, 3)[1:].isnan().all()


@pytest.mark.parametrize('shape', [(0,), (2, 0), (0, 5), (0, 3, 5), (1,), (2, 3, 1)], ids=str)
@pytest.mark.parametrize('k', [0, 1, 3])
def test_sizes_at_the_edge(shape, k):
    x = torch.ones(shape).double()
    actual = log_elementary_symmetric(x, k)
    assert actual.shape == (*shape[:-1], k + 1)
    expected = [reference.log_elementary_symmetric(np.ones(shape[-1]), j).value for j in range(k + 1)]
    assert_close(actual, np.broadcast_to(np.array(expected), actual.shape), 1e-15)


def test_rows_are_independent_in_any_layout():
    x = normal(3, 4, 7)
    expected = torch.stack([log_elementary_symmetric(row, 3) for row in x.reshape(12, 7)]).reshape(3, 4, 4)
    for layout in (x, x.movedim(0, -1).contiguous().movedim(-1, 0), torch.stack([x, x], -1)[..., 0], x.flip(0).flip(0)):
        torch.testing.assert_close(log_elementary_symmetric(layout, 3), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_float32(dtype):
    x = (5 * normal(300)).to(dtype).requires_grad_()
    actual = log_elementary_symmetric(x, 5)
    assert actual.dtype == torch.float32
    assert_close(actual, log_elementary_symmetric(x.detach().double(), 5), 1e-6)
    actual[5].backward()
    assert x.grad.dtype == dtype


@pytest.mark.parametrize('k', [1, 3])
def test_functional_gradients(k):
    x = normal(2, 5)

    def logarithm(x):
        return log_elementary_symmetric(x, k)[:, k].sum()

    expected = torch.autograd.functional.jacobian(logarithm, x)
    torch.testing.assert_close(torch.func.grad(logarithm)(x), expected, rtol=1e-12, atol=1e-15)
    second = torch.func.grad(lambda x: torch.func.grad(logarithm)(x).square().sum())(x)
    expected = torch.autograd.functional.vjp(
        lambda x: torch.autograd.functional.jacobian(logarithm, x, create_graph=True).square().sum(), x
    )[1]
    torch.testing.assert_close(second, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ('call', 'error', 'message'),
    [
        (lambda: log_elementary_symmetric(torch.ones(3), -1), ValueError, '`k`.*-1'),
        (lambda: log_elementary_symmetric(torch.arange(3), 2), TypeError, '`x`.*int64'),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()

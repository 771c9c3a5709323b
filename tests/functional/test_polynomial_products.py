"""Products of polynomials are convolutions of their coefficients, in both arithmetics."""

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
import torch

from mmseg_nondecomp.functional.polynomial_products import logarithms, numbers, product_tree

K = 5
NUMBERS, LOGARITHMS = numbers(), logarithms(torch.float64, K)
each_arithmetic = pytest.mark.parametrize('arithmetic', [NUMBERS, LOGARITHMS], ids=['numbers', 'logarithms'])


def polynomials(*shape, seed=0):
    """Coefficients from degree 1 on, in the first dimension."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)).double() + 0.1


def kept(coefficients, arithmetic):
    """As the arithmetic keeps them."""
    return coefficients if arithmetic is NUMBERS else coefficients.log()


def read(coefficients, arithmetic):
    return coefficients if arithmetic is NUMBERS else coefficients.exp()


def convolved(polynomials, k):
    """The product of polynomials, each of which is an array of its coefficients from degree 1 on; so is the product."""
    return reduce(np.convolve, [np.append(1, coefficients) for coefficients in polynomials])[1 : k + 1]


@each_arithmetic
@pytest.mark.parametrize(('p', 'q', 'k'), [(1, 1, 1), (1, 1, 2), (1, 3, 3), (2, 2, 3), (3, 3, 4), (4, 4, 4)])
def test_products_are_those_of_polynomials(arithmetic, p, q, k):
    a, b = polynomials(p, 2, 3), polynomials(q, 2, 3, seed=1)
    found = read(arithmetic.product(kept(a, arithmetic), kept(b, arithmetic), k), arithmetic)
    expected = np.zeros_like(found)
    for index in np.ndindex(2, 3):
        expected[(slice(None), *index)] = convolved([factor[(slice(None), *index)] for factor in (a, b)], k)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    inputs = [kept(factor, arithmetic).requires_grad_() for factor in (a, b)]
    assert torch.autograd.gradcheck(lambda a, b: arithmetic.product(a, b, k), inputs)
    assert torch.autograd.gradgradcheck(lambda a, b: arithmetic.product(a, b, k), inputs)


@each_arithmetic
@pytest.mark.parametrize('p', [1, 3])
@pytest.mark.parametrize('n', [1, 2, 3, 5, 8, 13])
def test_the_root_of_a_tree_is_the_product_of_the_leaves(arithmetic, p, n):
    leaves = polynomials(p, n, 2)
    root = read(product_tree(kept(leaves, arithmetic), K, arithmetic)[-1], arithmetic)
    assert root.shape[1] == 1
    expected = np.zeros((K, 2))
    for column in range(2):
        coefficients = convolved(leaves[..., column].t(), K)
        expected[: len(coefficients), column] = coefficients
    assert min(n * p, K) <= len(root) <= K
    np.testing.assert_allclose(root.squeeze(1), expected[: len(root)], rtol=1e-14)


@each_arithmetic
def test_a_level_multiplies_its_first_half_with_its_second(arithmetic):
    levels = product_tree(kept(polynomials(2, 11, 3), arithmetic), K, arithmetic)
    assert [len(level[0]) for level in levels] == [12, 6, 4, 2, 1]
    assert (levels[0][:, 11:] == arithmetic.zero).all()
    for level, above in pairwise(levels):
        product = arithmetic.product(*level.chunk(2, 1), K)
        assert torch.equal(above[:, : product.shape[1]], product)
        assert (above[:, product.shape[1] :] == arithmetic.zero).all()


@each_arithmetic
def test_memory_grows_with_n_k(arithmetic):
    sizes = [level.shape for level in product_tree(kept(polynomials(1, 1000, 1), arithmetic), K, arithmetic)]
    assert max(degree for degree, _, _ in sizes) == K
    assert sum(degree * n for degree, n, _ in sizes) < 2 * K * 1000


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
def test_the_logarithm_of_0_is_a_number_that_adds_nothing(dtype):
    k = 9
    arithmetic = logarithms(dtype, k)
    nothing = torch.full((1, 16, 1), arithmetic.zero, dtype=dtype)
    for level in product_tree(nothing, k, arithmetic):
        assert level.isfinite().all()
        assert (level <= arithmetic.zero / 2).all()
    a = polynomials(3, 1, 2).log().to(dtype)
    found = arithmetic.product(a, torch.full((2, 1, 2), arithmetic.zero, dtype=dtype), k)
    assert torch.equal(found[:3], a)
    assert (found[3:] <= arithmetic.zero / 2).all()


@pytest.mark.parametrize('size', [-1e6, 800.0, 1e6])
def test_logarithms_have_room_for_any_size(size):
    """With a factor for each degree, e^size for z, the product has it too."""
    a, b = (coefficients.log() for coefficients in (polynomials(2, 1, 1), polynomials(3, 1, 1)))
    factors = size * torch.arange(1, K + 1).view(-1, 1, 1)
    found = LOGARITHMS.product(a + factors[:2], b + factors[:3], K)
    torch.testing.assert_close(found, LOGARITHMS.product(a, b, K) + factors, rtol=1e-14, atol=0)

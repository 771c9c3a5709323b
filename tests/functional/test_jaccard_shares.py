import numpy as np
import pytest
import torch
from reference import lovasz as reference

from mmseg_nondecomp.functional.jaccard_shares import shares_in_order, shares_of_cells

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
each_kind = pytest.mark.parametrize('kind', MASSES)


def masses(kind, n, seed=0):
    """Foreground and background, float64 of shape [n]."""
    return MASSES[kind](np.random.default_rng(seed), n).astype(float)


def delta(a, b, n):
    """The Jaccard loss of a set with these masses, of a class with the foreground mass n."""
    union = n + b
    return np.divide(a + b, union, out=np.zeros_like(union), where=union > 0)


def losses_on_the_way(foreground, background):
    """The Jaccard loss before the first cell enters, and after each, in longdouble."""
    a, b = (np.append(0, np.cumsum(part.astype(np.longdouble))) for part in (foreground, background))
    return delta(a, b, a[-1])


def cell_shares(foreground, background):
    """The shares of cells that are given from the largest error down."""
    of_background, of_foreground = shares_of_cells(torch.tensor(np.stack([background, foreground])[:, ::-1].copy()))
    return of_foreground.numpy()[::-1], of_background.numpy()[::-1]


@each_kind
def test_shares_in_order_are_the_steps_of_the_jaccard_loss(kind):
    for seed in range(20):
        foreground, background = masses(kind, 12, seed)
        is_foreground = np.arange(12) % 3 == seed % 3
        mass = np.where(is_foreground, foreground, background)
        found = shares_in_order(*(torch.tensor(mass * part) for part in (is_foreground, ~is_foreground)))
        losses = [reference.jaccard_loss(np.arange(12) < k, is_foreground, mass) for k in range(13)]
        np.testing.assert_allclose(found, np.diff(losses).astype(float), rtol=1e-12, atol=1e-15)


def test_integers_are_counted_as_they_are():
    foreground = torch.tensor([[0, 2, 0, 1, 0], [1, 0, 1, 0, 1]], dtype=torch.int32)
    background = torch.tensor([[3, 0, 1, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.int32)
    expected = shares_in_order(foreground.double(), background.double())
    torch.testing.assert_close(shares_in_order(foreground, background).double(), expected, rtol=2e-7, atol=0)
    torch.testing.assert_close(expected.sum(1), torch.ones(2).double())


@each_kind
@pytest.mark.parametrize('n', [1, 2, 30])
def test_the_shares_of_a_cell_add_up_to_its_step(kind, n):
    for seed in range(10):
        foreground, background = masses(kind, n, seed)
        of_foreground, of_background = cell_shares(foreground, background)
        steps = foreground * of_foreground + background * of_background
        expected = np.diff(losses_on_the_way(foreground, background)).astype(float)
        np.testing.assert_allclose(steps, expected, rtol=1e-8, atol=1e-15)
        assert steps.sum() == pytest.approx(1 if (foreground + background).any() else 0, rel=1e-8)


def test_cells_of_one_pixel_have_the_steps_of_pixels_in_order():
    rng = np.random.default_rng(0)
    for _ in range(20):
        mass, is_foreground = rng.exponential(size=15), rng.random(15) < 0.4
        foreground, background = mass * is_foreground, mass * ~is_foreground
        of_foreground, of_background = cell_shares(foreground, background)
        expected = shares_in_order(torch.tensor(foreground), torch.tensor(background))
        np.testing.assert_allclose(
            foreground * of_foreground + background * of_background, expected, rtol=1e-8, atol=1e-15
        )


def integrated_shares(foreground, background):
    """The price along the path (I - a t, U + b t), by Gauss-Legendre quadrature at equal steps of log(U + b t)."""
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
        for found, expected in zip(
            cell_shares(foreground, background), integrated_shares(foreground, background), strict=True
        ):
            np.testing.assert_allclose(found, expected.astype(float), rtol=1e-8, atol=1e-15)


@pytest.mark.parametrize('ratio', [0, 1e-300, 1e-20, 1e-12, 1e-8, 0.99e-4, 1.01e-4, 1e-2, 1, 1e3, 1e6])
def test_shares_are_accurate_for_any_ratio_of_background_and_union(ratio):
    foreground, background = np.array([3.0, 2.0, 5.0]), np.array([0.0, 10.0 * ratio, 0.0])
    found, expected = cell_shares(foreground, background), integrated_shares(foreground, background)
    np.testing.assert_allclose(found, np.array(expected, float), rtol=3e-8)
    if ratio < 1e-12:
        np.testing.assert_allclose(found[0], 1 / 10, rtol=1e-11)
        np.testing.assert_allclose(found[1][1], (7 - 2 / 2) / 10**2, rtol=1e-11)


@each_kind
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


def test_rows_are_classes_of_their_own():
    rng = np.random.default_rng(0)
    foreground, background = torch.tensor(rng.exponential(size=(2, 2, 3, 7)))
    foreground[0, 1] = 0
    of_pixels = shares_in_order(foreground, background)
    of_cells = shares_of_cells(torch.stack([background, foreground], 2))
    for place in np.ndindex(2, 3):
        row = foreground[place], background[place]
        torch.testing.assert_close(of_pixels[place], shares_in_order(*row), rtol=1e-14, atol=0)
        torch.testing.assert_close(of_cells[place], shares_of_cells(torch.stack(row[::-1])), rtol=1e-14, atol=0)

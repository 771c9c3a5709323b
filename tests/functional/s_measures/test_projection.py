"""The projection equals what a solver of quadratic programs finds, and has the properties that define it."""

import math

import numpy as np
import pytest
import torch
from projection_points import BAD_ROWS, assert_rows_do_not_depend_on_the_layout, each_exact, joined, point, scale
from reference import s_measures as reference

from mmseg_nondecomp.functional.s_measures.projection import project_tau

SIZES = (0, 1, 2, 3, 5, 12, 40)


LEAST = 5e-324  # above 0; half of it rounds to 0


@each_exact
@pytest.mark.parametrize('n', SIZES)
def test_equals_the_quadratic_program_feasible_and_idempotent_and_nothing_rises_but_the_bound(family, n):
    for seed in range(8):
        tau, eps = point(family, n, seed)
        largest = scale(tau, eps)
        found, bound = project_tau(tau, eps)
        unit = min(largest, 1e200) or 1.0
        expected = np.append(*reference.project_onto_generators(tau / unit, (eps / unit).item()))
        tolerance = (1e-9 * largest + LEAST) / unit
        np.testing.assert_allclose(joined(found, bound) / unit, expected, rtol=0, atol=tolerance)
        assert bound >= 0
        assert (found <= bound).all()
        assert (found <= tau).all()
        assert bound >= eps - 1e-15 * largest - LEAST
        assert torch.equal(found[found < bound], tau[found < bound])
        torch.testing.assert_close(project_tau(found, bound), (found, bound), rtol=1e-15, atol=LEAST)


@each_exact
@pytest.mark.parametrize('n', [0, 1, 2, 3, 4])
def test_equals_the_best_of_all_faces(family, n):
    for seed in range(4):
        tau, eps = point(family, n, seed)
        expected, bound = reference.project(tau.tolist(), eps.item())
        exact = torch.tensor([float(t) for t in (*expected, bound)], dtype=torch.float64)
        torch.testing.assert_close(joined(*project_tau(tau, eps)), exact, rtol=0, atol=1e-15 * scale(tau, eps) + LEAST)


@each_exact
@pytest.mark.parametrize('n', [1, 7, 300, 3000])
def test_certified_to_be_the_nearest_point(family, n):
    tau, eps = point(family, n)
    found, bound = project_tau(tau, eps)
    distance = reference.distance_bound(tau.tolist(), eps.item(), found.tolist(), bound.item())
    assert distance <= 1e-9 * scale(tau, eps) + n * LEAST


@each_exact
def test_feasible_points_stay_and_distances_do_not_grow_and_the_set_is_a_cone_in_any_order(family):
    for seed in range(4):
        tau, _ = point(family, 12, seed)
        eps = tau.max().clamp(min=0)
        torch.testing.assert_close(project_tau(tau, eps), (tau, eps), rtol=1e-15, atol=0)
        assert torch.equal(joined(*project_tau(tau, eps + 1)), joined(tau, eps + 1))
    tau, eps = point(family, 20)
    largest = scale(tau, eps)
    for seed in range(20):
        noise = torch.randn(21, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        other_tau, other_eps = tau + largest * 0.1 * noise[:-1], eps + largest * 0.1 * noise[-1]
        before = (joined(tau, eps) - joined(other_tau, other_eps)) / (largest or 1.0)
        after = (joined(*project_tau(tau, eps)) - joined(*project_tau(other_tau, other_eps))) / (largest or 1.0)
        assert after.norm() <= before.norm() + 1e-14 + 21 * LEAST / (largest or 1.0)
    tau, eps = point(family, 40)
    found, bound = project_tau(tau, eps)
    order = torch.tensor(np.random.default_rng(1).permutation(40))
    assert torch.equal(joined(*project_tau(tau[order], eps)), joined(found[order], bound))
    for factor in (2.0**7,) if family == 'denormal' else (2.0**-8, 2.0**7):
        scaled = project_tau(tau * factor, eps * factor)
        torch.testing.assert_close(scaled, (found * factor, bound * factor), rtol=1e-15, atol=factor * LEAST)


@pytest.mark.parametrize(
    ('tau', 'eps', 'expected'),
    [
        pytest.param(0.5, 1.0, (0.5, 1.0), id='nothing to do'),
        pytest.param(1.0, 1.0, (1.0, 1.0), id='at the bound'),
        pytest.param(3.0, 1.0, (2.0, 2.0), id='mean of the two'),
        pytest.param(3.0, 0.0, (1.5, 1.5), id='mean with 0'),
        pytest.param(-1.0, -2.0, (-1.0, 0.0), id='negative bound, τ stays'),
        pytest.param(1.0, -3.0, (0.0, 0.0), id='negative mean'),
        pytest.param(3.0, -1.0, (1.0, 1.0), id='mean with a negative bound'),
    ],
)
def test_rule_of_one_number(tau, eps, expected):
    """The paper's for batches of 2, but that a negative bound does not leave a greater τ as it is."""
    found, bound = project_tau(torch.tensor([tau]), torch.tensor(eps))
    assert (found.item(), bound.item()) == expected


def test_no_numbers_and_inputs_that_stay_as_they_are():
    found, bound = project_tau(torch.zeros(2, 0), torch.tensor([1.5, -1.5]))
    assert found.shape == (2, 0)
    assert bound.tolist() == [1.5, 0.0]
    found, bound = project_tau(torch.zeros(0, 3), torch.zeros(0))
    assert (found.shape, bound.shape) == ((0, 3), (0,))
    tau, eps = torch.tensor([1.0, 3.0]), torch.tensor(-1.0)
    project_tau(tau, eps)
    assert (tau.tolist(), eps) == ([1.0, 3.0], -1)


def test_the_printed_algorithm_is_another():
    """It leaves a number above the bound, where the mean of three is right."""
    tau, eps = [3.0, 2.0, 0.5, -1.0], 1.0
    printed, printed_bound = reference.algorithm_4_as_printed(tau, eps)
    assert max(printed) > printed_bound
    found, bound = project_tau(torch.tensor(tau), torch.tensor(eps))
    assert reference.is_projection(tau, eps, found.tolist(), bound.item())
    assert bound.item() == 2.0
    assert printed_bound == pytest.approx(5 / 3)


def test_rows_in_any_layout():
    points = [point('around zero', 9, seed) for seed in range(12)]
    assert_rows_do_not_depend_on_the_layout(project_tau, points, rtol=0, atol=0)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize('family', ['around zero', 'negative bound', 'ties', 'equal to the bound', 'close'])
def test_lower_precision(family, dtype):
    """Rounded from float64, and still below the bound."""
    for n in (1, 12, 3000):
        tau, eps = (x.to(dtype) for x in point(family, n))
        found, bound = project_tau(tau, eps)
        assert found.dtype == bound.dtype == dtype
        assert (found <= bound).all()
        expected, expected_bound = project_tau(tau.double(), eps.double())
        assert torch.equal(found, expected.to(dtype))
        assert torch.equal(bound, expected_bound.to(dtype))


def test_many_of_half_precision_do_not_overflow_and_each_output_has_the_type_of_its_input():
    found, bound = project_tau(torch.full((100_000,), 6e4).half(), torch.tensor(0.0).half())
    assert bound == 6e4
    assert (found == bound).all()
    found, bound = project_tau(torch.tensor([3.0, 1.0]).half(), torch.tensor(1.0).double())
    assert (found.dtype, bound.dtype) == (torch.float16, torch.float64)
    assert (found.tolist(), bound.item()) == ([2.0, 1.0], 2.0)


@pytest.mark.parametrize(
    ('tau', 'eps'),
    [
        ([3.0, 2.5, 0.5, -1.0], 1.0),
        ([0.5, -1.0], 1.0),
        ([1.0, 2.0, -0.4], -9.0),
        ([2.0, 1.9, 0.3], -1.0),
        ([-1.0, -2.0], -3.0),
        ([0.7], 0.2),
        ([], 0.3),
    ],
    ids=str,
)
def test_gradcheck(tau, eps):
    inputs = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (tau, eps))
    assert torch.autograd.gradcheck(project_tau, tuple(inputs))


def test_gradient_is_shared_by_those_at_the_bound():
    tau, eps = torch.tensor([3.0, 2.5, 0.5, -1.0], requires_grad=True), torch.tensor(1.0, requires_grad=True)
    bound = project_tau(tau, eps)[1]
    bound.backward()
    torch.testing.assert_close(tau.grad, torch.tensor([1 / 3, 1 / 3, 0, 0]))
    torch.testing.assert_close(eps.grad, torch.tensor(1 / 3))


@each_exact
def test_the_gradient_is_finite_on_an_edge(family):
    tau, eps = (x.requires_grad_() for x in point(family, 40))
    for output in project_tau(tau, eps):
        for gradient in torch.autograd.grad(output.sum(), (tau, eps), retain_graph=True):
            assert gradient.isfinite().all()


def test_what_is_not_finite_is_not_hidden():
    nan, inf = math.nan, math.inf

    def project(tau, eps):
        found, bound = project_tau(torch.tensor(tau), torch.tensor(eps))
        return [*found.tolist(), bound.item()]

    assert math.isnan(project([nan, 1.0, 3.0], 1.0)[0])
    assert all(math.isnan(x) for x in project([1.0, 3.0], nan))
    # The limits.
    assert project([inf, 1.0, 3.0], 1.0) == [inf, 1.0, 3.0, inf]
    assert project([-inf, 1.0, 3.0], 1.0) == [-inf, 1.0, 2.0, 2.0]
    assert project([1.0, 3.0], inf) == [1.0, 3.0, inf]
    assert project([1.0, -3.0], -inf) == [0.0, -3.0, 0.0]
    # A row leaves the others as they are.
    found, bound = project_tau(torch.tensor([[nan, 1.0], [3.0, 1.0], [inf, 0.0]]), torch.ones(3))
    assert (found[1].tolist(), bound[1]) == ([2.0, 1.0], 2)


@pytest.mark.parametrize(('rows', 'error', 'message'), BAD_ROWS)
def test_bad_input(rows, error, message):
    with pytest.raises(error, match=message):
        project_tau(*rows)

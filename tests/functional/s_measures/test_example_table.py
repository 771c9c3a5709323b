"""Each example has its τ and λ, found by its id; only those of examples in a step move, and to the optimum."""

import math

import pytest
import torch

from mmseg_nondecomp.functional.s_measures.projection import ExampleTable, finite_examples, project_tau
from mmseg_nondecomp.functional.s_measures.rates import RatedItems

EPSILON, W = torch.tensor([1.0]).double(), torch.tensor([2.0]).double()
ETA_TAU, ETA_LAMBDA, ETA_EPSILON, DAMPING = 0.05, 0.4, 0.1, 1.0
SCORES = [-1.5, 0.4, 1.0, 2.5]
"""Below, between, at and above the margin of 1."""


def column(values):
    return torch.tensor(values, dtype=torch.float64).view(-1, 1)


def add(table, ids, scores, positive=True):
    scores = scores if isinstance(scores, torch.Tensor) else column(scores)
    positive = torch.full(scores.shape, positive) if isinstance(positive, bool) else positive
    items = RatedItems(scores.T[None], positive.T[None], ~positive.T[None])
    table.add(*finite_examples(torch.as_tensor(ids), items))


def descend(table, epsilon=EPSILON, w=W, eta_tau=ETA_TAU):
    table.descend(epsilon, w, eta_tau, DAMPING)


def project(table, epsilon=EPSILON, slope=0.0, free=False):
    return table.project(epsilon, torch.full_like(epsilon, slope), ETA_LAMBDA, ETA_EPSILON if free else None)


def step(table, epsilon=EPSILON, w=W, eta_tau=ETA_TAU, **how):
    descend(table, epsilon, w, eta_tau)
    return project(table, epsilon, **how)


def values(table, *ids):
    rows = [table.rows[key] for key in ids]
    return table.values[rows, 0, 0].tolist(), table.values[rows, 0, 1].tolist()


def penalties(table, ids, scores, damping=1.0):
    """Terms that a call adds to the Lagrangian, and their gradient."""
    scores = column(scores).T.requires_grad_()
    value = table.penalties(torch.tensor(ids), scores, EPSILON.unsqueeze(1), W.unsqueeze(1), damping)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    return value[0].tolist(), gradient[0].tolist()


def rows_of(table):
    """Values of the examples; the table may have allocated more."""
    return table.values[: len(table)].clone()


def started(ids=(7, 3, 11, 5), scores=SCORES):
    table = ExampleTable()
    add(table, ids, scores)
    step(table)
    return table


class TestStart:
    def test_where_the_lagrangian_is_least_which_is_a_fixed_point(self):
        """τ = min(ε, z), the greatest that holds; λ_i = μ where z_i < ε, and 0 where z_i > ε."""
        table = started()
        others = torch.linspace(-3, 1, 401).double()  # all that are not above the margin
        for _ in range(5):
            tau, lam = values(table, 7, 3, 11, 5)
            assert tau == [-1.5, 0.4, 1.0, 1.0]
            assert lam == [2.0, 2.0, 0.0, 0.0]
            for at, price, score in zip(tau, lam, SCORES, strict=True):
                assert -2 * at + price * (at - score) <= (-2 * others + price * (others - score)).min() + 1e-12
            add(table, [7, 3, 11, 5], SCORES)
            bound, mean = step(table)
            assert bound == 1
            assert mean.item() == sum(tau) / 4

    def test_the_penalty_of_an_example_without_a_step_is_the_hinge(self):
        value, gradient = penalties(ExampleTable(), [1, 2, 3, 4], SCORES)
        assert value == pytest.approx([2 * max(0, 1 - z) for z in SCORES])
        assert gradient == [-2.0, -2.0, 0.0, 0.0]
        table = ExampleTable()
        add(table, [1, 2, 3, 4], [0.4] * 4)
        assert penalties(table, [1, 2, 3, 4], SCORES) == (value, gradient)
        assert len(table) == 0


class TestConvergence:
    @pytest.mark.parametrize('score', [-1.5, 0.4, 0.99, 1.01, 2.5])
    @pytest.mark.parametrize('start', [(-3.0, 0.0), (1.0, 0.0), (0.0, 9.0)])
    @pytest.mark.parametrize('interval', [1, 4])
    def test_comes_to_the_fixed_point_from_elsewhere(self, score, start, interval):
        table = started((7,), [score])
        table.values[0, 0, :2] = torch.tensor(start)
        for k in range(1000):
            add(table, [7], [score])
            descend(table)
            if k % interval == 0:
                project(table)
        project(table)
        (tau,), (lam,) = values(table, 7)
        # Between projections τ may rise by three steps of eta_tau w, and the multiplier lives with that.
        slack = 1e-6 if interval == 1 else 3 * 0.05 * 2
        assert tau == pytest.approx(min(1, score), abs=slack)
        assert 0 <= lam <= 2 + ETA_LAMBDA * slack
        if interval == 1:
            assert lam == pytest.approx(2 * (score < 1), abs=1e-6)
        elif abs(score - 1) > 0.1:
            assert lam == pytest.approx(2 * (score < 1), abs=slack)

    def test_follows_a_score_that_changes(self):
        table = started((7,), [0.0])
        for k in range(2000):
            add(table, [7], [k / 1000 - 0.5])
            step(table)
        assert values(table, 7)[0][0] == pytest.approx(1)
        assert values(table, 7)[1][0] == pytest.approx(0, abs=1e-3)


class TestStep:
    def test_tau_goes_against_the_slope_of_the_lagrangian(self):
        """-w τ + λ (τ - z), with the damping in the price."""
        table = started((7,), [0.4])
        table.values[0, 0, :2] = torch.tensor([0.1, 1.2])
        add(table, [7], [0.5])
        descend(table)
        price = 1.2 + (0.1 - 0.5)
        assert values(table, 7)[0][0] == pytest.approx(0.1 - 0.05 * (price - 2))
        assert table.values[0, 0, 2] == 0.5

    def test_multipliers_rise_below_tau_and_fall_to_0_above_it_and_stay_without_ascent(self):
        table = started((7, 3), [0.4, 0.4])
        add(table, [7, 3], [0.1, 0.9])
        step(table, eta_tau=0.0)
        tau, lam = values(table, 7, 3)
        assert tau == [0.4, 0.4]
        assert lam == pytest.approx([2 + 0.4 * 0.3, 2 - 0.4 * 0.5])
        for _ in range(20):
            add(table, [7], [5.0])
            step(table, eta_tau=0.0)
        assert values(table, 7)[1] == [0.0]
        table = started()
        add(table, [7, 3, 11, 5], [-2.0, 0.0, 3.0, 0.0])
        descend(table)
        tau, lam = values(table, 7, 3, 11, 5)
        assert lam == [2.0, 2.0, 0.0, 0.0]
        # The score has gone down by a half, or 0.4, or 1: that is what their prices are above w, or are of w.
        assert tau == pytest.approx([-1.5 - 0.05 * 0.5, 0.4 - 0.05 * 0.4, 1.0 + 0.05 * 2, 1.0 - 0.05 * (1 - 2)])

    @pytest.mark.parametrize('free', [False, True])
    def test_examples_of_other_steps_stay_bit_for_bit(self, free):
        table = started()
        table.values[:4, 0, :2] += 0.3 * torch.rand(4, 2, generator=torch.Generator().manual_seed(0))
        before = rows_of(table)
        add(table, [3], [-0.7])
        step(table, epsilon=EPSILON - 0.9, slope=0.4, free=free)
        unseen = [table.rows[key] for key in (7, 11, 5)]
        assert torch.equal(table.values[unseen], before[unseen])
        assert (before[unseen, 0, 0] > 0.1).any()  # though some are above the margin
        assert not torch.equal(table.values[table.rows[3]], before[table.rows[3]])

    def test_without_examples_nothing_moves(self):
        for table, ids in ((started(), None), (started(), []), (ExampleTable(), [])):
            before = rows_of(table)
            if ids is not None:
                add(table, ids, torch.zeros(0, 1).double())
            bound, mean = step(table, epsilon=EPSILON / 3, slope=5.0, free=True)
            assert torch.equal(rows_of(table), before)
            assert bound == EPSILON / 3
            assert mean.isnan()

    def test_negatives_have_no_part(self):
        table, positive = ExampleTable(), column([1, 0, 1, 0]) > 0
        add(table, [1, 2, 3, 4], SCORES, positive)
        step(table)
        assert list(table.rows) == [1, 3]
        before = values(table, 1, 3)
        for _ in range(3):
            add(table, [2, 4], [9.0, -9.0], positive=False)
            bound, mean = step(table, free=True, slope=0.1)
            assert bound == 1
            assert mean.isnan()
        add(table, [1, 3], [5.0, 5.0], positive=False)  # nor have they while another label is theirs
        step(table, free=True, slope=0.1)
        assert values(table, 1, 3) == before
        add(table, [1, 3], [SCORES[0], SCORES[2]])
        step(table)
        assert values(table, 1, 3) == before

    @pytest.mark.parametrize('free', [False, True])
    def test_no_tau_of_a_step_exceeds_the_margin(self, free):
        generator = torch.Generator().manual_seed(0)
        table, epsilon = ExampleTable(), EPSILON
        for _ in range(50):
            ids = torch.randperm(30, generator=generator)[:8].tolist()
            add(table, ids, 3 * torch.randn(8, 1, generator=generator, dtype=torch.float64))
            slope = 3 * torch.randn((), generator=generator).item()
            epsilon, mean = step(table, epsilon, slope=slope, free=free)
            tau = column(values(table, *ids)[0])
            assert (tau <= epsilon).all()
            assert mean.item() == pytest.approx(tau.mean().item())
            assert free or epsilon == 1
            epsilon = epsilon.clamp(min=1)


class TestProjection:
    def test_of_those_seen_with_a_margin_that_is_free(self):
        table = started()
        add(table, [3, 5, 11], [0.4, 2.5, 1.0])
        descend(table)
        tau = column(values(table, 3, 5, 11)[0]).flatten()
        # A margin's slope is that of a mean, of which each of three τ has a third.
        expected, bound = project_tau(tau, EPSILON[0] - 0.1 * 3 * 0.2)
        found, mean = project(table, slope=0.2, free=True)
        assert found.item() == pytest.approx(bound.item(), rel=1e-7)
        assert bound < tau.max()
        assert values(table, 3, 5, 11)[0] == pytest.approx(expected.tolist(), rel=1e-7)
        assert mean.item() == pytest.approx(expected.mean().item())

    def test_of_those_seen_raises_their_multipliers_and_may_be_rarer_than_steps(self):
        table = started()
        table.values[:4, 0, 0] = torch.tensor([0.5, 1.5, 2.0, -1.0]).double()
        add(table, [7, 3, 11, 5], SCORES)
        found, _ = step(table, eta_tau=0.0)
        assert found == 1
        tau, lam = values(table, 7, 3, 11, 5)
        assert tau == [0.5, 1.0, 1.0, -1.0]
        assert lam[1] == pytest.approx(2 + 0.4 * (1.0 - 0.4))
        # All seen since the last projection are projected, and once.
        table = started((7, 3), [2.0, 2.0])
        for key in (7, 3, 3):
            add(table, [key], [2.0])
            descend(table)
        assert (torch.tensor(values(table, 7, 3)[0]) > 1).all()
        project(table)
        assert values(table, 7, 3)[0] == [1.0, 1.0]
        assert not table.touched

    def test_queries_are_apart(self):
        scores = torch.tensor([[0.4, 2.0], [-1.0, 0.3], [3.0, 0.0]]).double()
        positive = torch.tensor([[True, False], [True, True], [False, False]])
        epsilon, w = torch.tensor([1.0, 2.0]).double(), torch.tensor([2.0, 0.5]).double()
        both = ExampleTable()
        for k in range(2):
            add(both, [1, 2, 3], scores - k, positive)
            bounds, means = step(both, epsilon, w, slope=0.2, free=True)
        for q in range(2):
            alone = ExampleTable()
            for k in range(2):
                add(alone, [1, 2, 3], scores[:, q : q + 1] - k, positive[:, q : q + 1])
                bound, mean = step(alone, epsilon[q : q + 1], w[q : q + 1], slope=0.2, free=True)
            expected = [both.values[both.rows[key], q] for key in alone.rows]
            assert torch.equal(torch.stack(expected), rows_of(alone)[:, 0])
            assert (bounds[q], means[q]) == (bound, mean)


class TestPenalties:
    def test_of_known_examples_are_by_their_own_variables_and_of_others_the_hinge_and_change_nothing(self):
        table = started()
        table.values[table.rows[3], 0, :2] = torch.tensor([0.1, 1.2])
        value, gradient = penalties(table, [99, 3, 98], [0.2, 0.5, 7.0], damping=0.5)
        price = 1.2 + 0.5 * (0.1 - 0.5)
        assert value == pytest.approx([2 * 0.8, 2 * 0.9 + price * (0.1 - 0.5), 0.0])
        assert gradient == pytest.approx([-2.0, -price, 0.0])
        table = started()
        before = {name: value.clone() for name, value in table.as_dict().items()}
        assert penalties(table, [5, 50], [9.0, 9.0])[1] == [0.0, 0.0]
        ones = torch.ones(1, 1)
        assert table.penalties(torch.tensor([3]), 0.5 * ones, ones, ones, 1.0).dtype == torch.float32
        assert all(torch.equal(value, before[name]) for name, value in table.as_dict().items())

    def test_of_several_queries(self):
        table, scores = ExampleTable(), torch.tensor([[0.4, 2.0], [-1.0, 0.3]]).double()
        epsilon, w = torch.tensor([1.0, 2.0]).double(), torch.tensor([2.0, 0.5]).double()
        add(table, [1, 2], scores)
        step(table, epsilon, w)
        found = table.penalties(torch.tensor([2, 1]), scores.flip(0).T, epsilon[:, None], w[:, None], 0.0)
        torch.testing.assert_close(found, (w * (epsilon - scores).clamp(min=0)).flip(0).T)


class TestAdd:
    def test_an_example_added_twice_has_a_copy_of_its_last_score(self):
        table, last = ExampleTable(), column([0.3])
        add(table, [4, 4], [0.1, 0.2])
        add(table, [4], last)
        last += 1
        step(table)
        assert len(table) == 1
        assert table.values[0, 0, 2] == 0.3
        assert values(table, 4)[0] == [pytest.approx(0.2, abs=0.05 * 2 * 2)]

    @pytest.mark.parametrize('poison', [math.nan, math.inf, -math.inf])
    def test_scores_that_are_not_finite_are_left_out(self, poison):
        table = started()
        before = rows_of(table)
        add(table, [3, 42], [poison, poison])
        step(table)
        assert torch.equal(rows_of(table), before)
        assert 42 not in table.rows
        add(table, [3, 42], [0.5, 0.6])
        step(table)
        assert len(table) == 5

    def test_ids_may_be_any_integers(self):
        for ids in ([200, 0], [-(2**62), 2**62], torch.tensor([200, 0], dtype=torch.uint8)):
            table = ExampleTable()
            add(table, ids, [0.5, 0.6])
            step(table)
            assert list(table.rows) == list(map(int, ids))

    def test_several_queries_without_positives_before_any_with(self):
        table = ExampleTable()
        epsilon, w = torch.ones(3).double(), torch.ones(3).double()
        for ids in ([1, 2], []):
            add(table, ids, torch.zeros(len(ids), 3).double(), positive=False)
            bound, mean = step(table, epsilon, w)
            assert torch.equal(bound, epsilon)
            assert mean.isnan().all()
        assert len(table) == 0
        add(table, [2], torch.zeros(1, 3).double())
        step(table, epsilon, w)
        assert rows_of(table).shape == (1, 3, 3)

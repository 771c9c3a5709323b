"""Multipliers rise with what is violated, margins and thresholds go downhill, and what was not seen stays."""

import math
from dataclasses import fields, replace

import pytest
import torch
from s_measure_scenes import each_surrogate, margin_penalty

from mmseg_nondecomp.functional._inputs import Reading, read_inputs
from mmseg_nondecomp.functional.s_measures.multipliers import DualState, StepSizes, negatives_per_positive
from mmseg_nondecomp.functional.s_measures.problem import MAX_MULTIPLIER, rate_problem
from mmseg_nondecomp.functional.s_measures.rates import Sums, rated_items

SIZES = StepSizes(
    eta_epsilon=0.1, eta_threshold=0.2, eta_mu=0.5, eta_tau=0.3, eta_lambda=0.4, damping=1.0, momentum=0.9
)
CPU = torch.device('cpu')
PROBLEM = rate_problem('precision_at_recall', target=0.8)
"""Its multiplier begins at 1."""


def call(n_queries=2, n=400, seed=0):
    """Scores [n, Q] and labels, of which each fifth is a positive of all queries."""
    scores = torch.randn(n, n_queries, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    labels = (torch.arange(n) % 5 == 0).double().unsqueeze(1).expand(n, n_queries)
    return scores + labels, labels


def items(n_queries=2, n=400, seed=0):
    reading = Reading(overlaps=True, has_background=True, is_stated=True)
    return rated_items(read_inputs(*call(n_queries, n, seed), reading=reading))


def with_call(state, data=None, surrogate='hinge'):
    state.pending += (data or items()).sums(state.epsilon, state.threshold, surrogate, True)[1]
    return state


def started(n_queries=2, n_points=1, **changed):
    return replace(DualState.start(n_queries, n_points, CPU), **changed)


def number(value, n_queries=2):
    return torch.full((n_queries, 1), value, dtype=torch.float64)


def everything(state):
    return torch.cat([value.flatten() for value in state.as_dict().values()])


def test_starts_with_margins_and_multipliers_of_one():
    state = started(3, 2)
    for ones in (state.epsilon, state.mu, state.damped_mu):
        assert torch.equal(ones, torch.ones(3, 2, dtype=torch.float64))
    assert not any(part.any() for part in (state.threshold, state.counts, state.recent, state.pending, state.steps))
    assert not state.has_rates().any()
    parts = vars(state).values()
    assert {part.dtype for part in parts} == {torch.float64}
    assert len({part.data_ptr() for part in parts}) == len(parts)  # a change in place of one is one of it alone
    assert {part.device.type for part in state.to(torch.device('meta')).as_dict().values()} == {'meta'}


@pytest.mark.parametrize('back', [True, False])
def test_restores_the_variables_on_a_condition(back):
    state = with_call(started())
    before, after = state.as_dict(), with_call(started())
    for each in (state, after):
        each.count(PROBLEM)
        each.ascend(number(0.5), SIZES)
    state.restore(before, torch.tensor(back))
    expected = before if back else after.as_dict()
    assert all(torch.equal(part, expected[name]) for name, part in state.as_dict().items())
    assert not torch.equal(before['recent'], after.recent)


class TestSums:
    def test_is_counted_once(self):
        state, data = started(), items()
        with_call(with_call(state, data), data).count(PROBLEM)
        assert state.counts.tolist() == [[160, 640]] * 2
        assert not state.pending.any()
        assert state.steps == 1
        expected = 2 * data.sums(state.epsilon, state.threshold, 'hinge', True)[1]
        torch.testing.assert_close(state.recent, expected)
        state.count(PROBLEM)
        torch.testing.assert_close(state.recent, expected)
        assert state.counts.tolist() == [[160, 640]] * 2
        assert state.steps == 2

    @pytest.mark.parametrize('poison', [math.nan, math.inf])
    def test_has_rates_where_there_were_positives_and_negatives_and_sums_were_finite(self, poison):
        state = with_call(started(5), items(5))
        state.pending[0, :, 0] = 0
        state.pending[1, :, 1] = 0
        state.pending[2, :, :2] = 0
        state.pending[3, 0, 5] = poison
        state.count(PROBLEM)
        assert state.counts.tolist() == [[0, 320], [80, 0], [0, 0], [0, 0], [80, 320]]
        assert everything(state).isfinite().all()
        assert state.has_rates().squeeze(1).tolist() == [False, False, False, False, True]

    def test_decay_at_each_ascent_by_the_steps_before_it(self):
        state = with_call(started())
        for _ in range(3):
            state.count(PROBLEM)
        recent, counts = state.recent.clone(), state.counts.clone()
        state.ascend(number(0.0), SIZES)
        torch.testing.assert_close(state.recent, recent * 0.9**3)
        assert state.steps == 0
        state.count(PROBLEM)
        state.ascend(number(0.0), SIZES)
        torch.testing.assert_close(state.recent, recent * 0.9**4)
        assert torch.equal(state.counts, counts)
        state.count(PROBLEM)
        state.ascend(number(0.0), replace(SIZES, momentum=0.0))
        assert not state.recent.any()
        assert not state.has_rates().any()


class TestStart:
    """With the first positives, multipliers start where both classes weigh the same."""

    @pytest.mark.parametrize(
        ('problem', 'start'),
        [
            (rate_problem('f_beta'), 4.0),  # negatives for each positive
            (rate_problem('f_beta', beta=2), 4.0),
            (rate_problem('precision_at_recall', target=0.8), 1.0),
            (rate_problem('recall_at_precision', target=0.6), 1 / (0.6 * 4 - 0.4)),
            (rate_problem('recall_at_precision', target=0.1), 0.0),  # holds of all items as they are
            (rate_problem('recall_at_precision', target=0.2), MAX_MULTIPLIER),
            (rate_problem('auc_roc', anchors=1), 1.0),
        ],
    )
    def test_is_at_the_balance_of_the_counts(self, problem, start):
        state = with_call(started())
        state.count(problem)
        for part in (state.mu, state.damped_mu):
            assert part.flatten().tolist() == pytest.approx([start] * 2)
            w_a, w_b = problem.weights(part, state.rates().r)
            assert start in (0, MAX_MULTIPLIER) or torch.allclose(w_a, w_b)

    def test_is_once_and_waits_for_positives_and_a_call_has_the_multiplier_of_the_step_after_it(self):
        state, problem = with_call(started()), rate_problem('f_beta')
        counts = torch.tensor([[80.0, 320.0]]).double().expand(2, 2)
        mu = state.started(state.damped_mu, state.counts, negatives_per_positive(counts), problem)
        state.count(problem)
        assert torch.equal(mu, state.damped_mu)
        state.mu[:], state.damped_mu[:] = 0.3, 0.4
        with_call(state, items(n=7)).count(problem)
        assert torch.equal(state.mu, number(0.3))
        assert torch.equal(state.damped_mu, number(0.4))
        state, problem = with_call(started()), rate_problem('f_beta')
        state.pending[1, :, 0] = 0
        state.count(problem)
        with_call(state, items(n=40)).count(problem)
        # Of the second query, 320 + 32 negatives and 8 positives.
        assert state.mu.flatten().tolist() == [4.0, 44.0]


class TestRates:
    @each_surrogate
    def test_equal_those_of_a_loop(self, surrogate):
        state = started(1, epsilon=number(1.5, 1), threshold=number(0.2, 1))
        rates = with_call(state, items(1, 40), surrogate).rates_of(Sums(*state.pending.unbind(-1)))
        scores, labels = call(1, 40)
        positives, negatives = scores[labels == 1] - 0.2, scores[labels == 0] - 0.2
        expected = dict(
            tp=(positives > 0).double().mean(),
            fp=(negatives > 0).double().mean(),
            a=1.5 - margin_penalty(-positives, state.epsilon, surrogate).mean(),
            b=margin_penalty(negatives, state.epsilon, surrogate).mean(),
        )
        for name, value in expected.items():
            assert getattr(rates, name).item() == pytest.approx(value.item(), rel=1e-12), name

    def test_negatives_for_each_positive_are_of_all_steps(self):
        state = started(2)
        state.counts = torch.tensor([[10.0, 35.0], [0.0, 0.0]], dtype=torch.float64)
        assert state.rates().r.tolist() == [[3.5], [0.0]]

    @each_surrogate
    def test_derivatives_are_those_of_the_bounds(self, surrogate):
        """By central differences, in a place where no item is at a kink."""
        data, h = items(), 1e-6

        def bounds(epsilon, threshold):
            state = started(epsilon=number(1.3 + epsilon), threshold=number(0.2 + threshold))
            return with_call(state, data, surrogate).rates_of(Sums(*state.pending.unbind(-1)))

        rates = bounds(0, 0)
        for name, (up, down) in {
            'epsilon': (bounds(h, 0), bounds(-h, 0)),
            'threshold': (bounds(0, h), bounds(0, -h)),
        }.items():
            for bound in ('a', 'b'):
                slope = (getattr(up, bound) - getattr(down, bound)) / (2 * h)
                # The second derivative of the hinge is 0, of the logistic function about 1: the error is h squared.
                torch.testing.assert_close(getattr(rates, f'{bound}_by_{name}'), slope, rtol=1e-7, atol=1e-8)

    def test_violations_are_of_the_true_rates_or_of_their_bounds_which_are_on_their_side(self):
        for epsilon in (1.0, 3.0):
            state = started(epsilon=number(epsilon))
            rates = with_call(state).rates_of(Sums(*state.pending.unbind(-1)))
            assert (rates.a <= epsilon * rates.tp).all()
            assert (rates.b >= epsilon * rates.fp).all()
        state = with_call(started())
        state.count(PROBLEM)
        rates = state.rates()
        problem = rate_problem('precision_at_recall', target=0.8)
        torch.testing.assert_close(state.violation(problem, rates, True), 0.8 - rates.tp)
        torch.testing.assert_close(state.violation(problem, rates, False), 0.8 - rates.a)
        precision = rates.tp / (rates.tp + rates.r * rates.fp)
        problem = rate_problem('recall_at_precision', target=0.8)
        torch.testing.assert_close(state.violation(problem, rates, True), 0.8 - precision)
        assert (state.violation(problem, rates, False) > state.violation(problem, rates, True)).all()


class TestAscent:
    def learnt(self):
        state = with_call(started(3), items(3))
        state.count(PROBLEM)
        return state

    def test_a_violated_constraint_raises_its_multiplier_and_a_slack_one_lowers_it_to_0_at_the_least(self):
        state = self.learnt()
        state.ascend(torch.tensor([[0.4], [0.0], [-0.4]]).double(), SIZES)
        torch.testing.assert_close(state.mu, torch.tensor([[1.2], [1.0], [0.8]]).double())
        for _ in range(10):
            state.ascend(number(-0.7, 3), replace(SIZES, momentum=0.99))
        assert not torch.cat([state.mu, state.damped_mu]).any()
        state.ascend(number(0.5, 3), SIZES)  # and has nothing to catch up
        torch.testing.assert_close(state.mu, number(0.25, 3))

    @pytest.mark.parametrize('damping', [0.0, 1.0, 3.0])
    def test_damping_adds_the_present_violation(self, damping):
        state = self.learnt()
        state.ascend(number(0.4, 3), replace(SIZES, damping=damping))
        torch.testing.assert_close(state.damped_mu, number(1.2 + 0.4 * damping, 3))
        state.mu[:] = 0.9
        state.ascend(number(-0.1, 3), replace(SIZES, damping=damping))
        torch.testing.assert_close(state.mu, number(0.85, 3))
        torch.testing.assert_close(state.damped_mu, number(0.85 - 0.1 * damping, 3))

    def test_above_one_steps_are_in_proportion_to_the_multiplier_up_to_its_upper_bound(self):
        """A batch of diverged scores must not set it for good."""
        state = self.learnt()
        state.mu = torch.tensor([[0.5], [1.0], [30.0]]).double()
        state.ascend(number(0.1, 3), SIZES)
        torch.testing.assert_close(state.mu, torch.tensor([[0.55], [1.05], [30 * 1.05]], dtype=torch.float64))
        torch.testing.assert_close(state.damped_mu, state.mu + torch.tensor([[0.1], [0.1], [3.0]], dtype=torch.float64))
        state.ascend(number(1e30, 3), SIZES)
        assert torch.equal(state.mu, number(MAX_MULTIPLIER, 3))
        assert torch.equal(state.damped_mu, number(MAX_MULTIPLIER, 3))


class TestDescent:
    @pytest.mark.parametrize('beta', [0.5, 1.0, 2.0])
    def test_the_margin_goes_against_the_slope_of_the_lagrangian(self, beta):
        problem, (scores, labels) = rate_problem('f_beta', beta), call()
        state = with_call(started(epsilon=number(2.0)))
        state.count(PROBLEM)
        state.damped_mu[:] = 1.7

        def lagrangian(epsilon):
            a = scores[::5].clamp(max=epsilon).mean(0)
            b = (epsilon + scores[labels[:, 0] == 0]).clamp(min=0).mean(0)
            return beta**2 * epsilon + 4 * b + 1.7 * (1 - a)

        slope = (lagrangian(2 + 1e-6) - lagrangian(2 - 1e-6)) / 2e-6
        state.move_epsilon(problem, state.rates(), SIZES, proxy=False)
        # Of the loss, which is divided by what it pays for a true positive.
        expected = (2 - 0.1 * slope / 1.7).clamp(min=1)
        torch.testing.assert_close(state.epsilon[:, 0], expected, rtol=1e-8, atol=1e-8)

    def test_the_margin_follows_true_rates_as_a_proxy_and_is_not_below_1(self):
        """Recall is not above 1, and the margin is one over it."""
        state = with_call(started(epsilon=number(2.0)))
        state.count(PROBLEM)
        state.damped_mu[:] = 1.7
        rates = state.rates()
        state.move_epsilon(rate_problem('f_beta'), rates, SIZES, proxy=True)
        expected = 2 - 0.1 * (1 - 1.7 * rates.tp + 4 * rates.fp) / 1.7
        torch.testing.assert_close(state.epsilon, expected.clamp(min=1))
        state.damped_mu[:], state.epsilon[:] = 0.0, 1.0
        state.move_epsilon(rate_problem('f_beta'), state.rates(), SIZES, proxy=True)
        assert torch.equal(state.epsilon, number(1.0))

    @each_surrogate
    def test_thresholds_go_against_the_slope_of_the_lagrangian(self, surrogate):
        problem, (scores, labels) = rate_problem('auc_roc', anchors=3), call()
        one, positive = torch.ones(1).double(), labels[:, 0] == 1
        start = torch.tensor([[0.5, 0.0, -0.5]]).double().expand(2, 3).clone()
        state = with_call(started(2, 3, threshold=start), None, surrogate)
        state.count(PROBLEM)
        state.damped_mu[:] = 1.7

        def lagrangian(threshold):
            above = scores.unsqueeze(-1) - threshold  # [n, Q, K]
            a = 1 - margin_penalty(-above[positive], one, surrogate).mean(0)
            b = margin_penalty(above[~positive], one, surrogate).mean(0)
            return 1 - a + 1.7 * b

        slope = (lagrangian(start + 1e-6) - lagrangian(start - 1e-6)) / 2e-6
        state.move_threshold(problem, state.rates(), SIZES)
        torch.testing.assert_close(state.threshold, start - 0.2 * slope, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize('name', [each.name for each in fields(StepSizes)])
@pytest.mark.parametrize(('value', 'error'), [(-1e-3, ValueError), (math.inf, ValueError), ('0.1', TypeError)])
def test_step_sizes_out_of_range_are_named(name, value, error):
    StepSizes(0, 0, 0, 0, 0, 0, 0)
    replace(SIZES, momentum=0.999)
    with pytest.raises(error, match=f'`{name}`.*{value}'):
        replace(SIZES, **{name: value})
    with pytest.raises(ValueError, match=r'`momentum`.*\[0, 1\).*1\.0'):  # it would forget nothing
        replace(SIZES, momentum=1.0)

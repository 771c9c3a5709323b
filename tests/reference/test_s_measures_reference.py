"""The oracles of S-measures agree, certify what they return, and their bounds on the counted measures hold."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from reference import s_measures as reference

POINTS = {
    'around zero': lambda rng, n: rng.normal(size=n),
    'positive': lambda rng, n: rng.exponential(size=n),
    'negative': lambda rng, n: -rng.exponential(size=n),
    'ties': lambda rng, n: rng.integers(-2, 3, n) / 2,
    'equal': lambda rng, n: np.full(n, 0.3),
    'close': lambda rng, n: 1 + 1e-9 * rng.normal(size=n),
    'zeros': lambda rng, n: np.maximum(rng.normal(size=n), 0),
}
each_family = pytest.mark.parametrize('family', POINTS)

PROBLEMS = [
    ('f_beta', dict(beta=0.5)),
    ('f_beta', dict(beta=1.0)),
    ('f_beta', dict(beta=2.0)),
    ('precision_at_recall', dict(target=0.5)),
    ('precision_at_recall', dict(target=0.9)),
    ('recall_at_precision', dict(target=0.2)),
    ('recall_at_precision', dict(target=0.7)),
]
each_problem = pytest.mark.parametrize(('measure', 'kwargs'), PROBLEMS, ids=str)
each_seed = pytest.mark.parametrize('seed', range(4))
TOLERANCE = 1e-8


def point(family, n, seed=0):
    """Draw numbers and their bound at once."""
    x = POINTS[family](np.random.default_rng([n, seed]), n + 1)
    return x[:-1].tolist(), float(x[-1])


def data(seed, n_pos=12, n_neg=40, d=3):
    """Return two overlapping classes, the rarer one positive. The last feature is the bias."""
    rng = np.random.default_rng(seed)
    pos, neg = rng.normal(1.2, 1, (n_pos, d)), rng.normal(-0.6, 1, (n_neg, d))
    return np.column_stack([pos, np.ones(n_pos)]), np.column_stack([neg, np.ones(n_neg)])


def decisions(pos, neg, program):
    scores = [*(pos @ program.w), *(neg @ program.w)]
    # What is 0 in the program is a number of either sign when it is multiplied out.
    return [0.0 if abs(score) < 1e-9 else score for score in scores], [1] * len(pos) + [0] * len(neg)


def quadratic_program(tau, eps):
    """Compute the projection with a general solver."""
    x = np.append(tau, eps)
    below = np.column_stack([-np.eye(len(tau)), np.ones(len(tau))])
    constraints = np.vstack([below, np.eye(x.size)[-1:]])
    result = minimize(
        lambda t: 0.5 * ((t - x) ** 2).sum(),
        np.zeros_like(x),
        jac=lambda t: t - x,
        constraints={'type': 'ineq', 'fun': lambda t: constraints @ t, 'jac': lambda t: constraints},
        method='SLSQP',
        options={'ftol': 1e-22, 'maxiter': 500},
    )
    return result.x


@each_family
@pytest.mark.parametrize('n', [0, 1, 2, 3, 5, 7])
def test_projections_agree(family, n):
    for seed in range(3):
        tau, eps = point(family, n, seed)
        expected, bound = reference.project(tau, eps)
        assert reference.is_projection(tau, eps, expected, bound)
        exact = np.array([*expected, bound], float)
        found, found_bound = reference.project_onto_generators(tau, eps)
        np.testing.assert_allclose([*found, found_bound], exact, rtol=0, atol=1e-14)
        np.testing.assert_allclose(quadratic_program(tau, eps), exact, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ('tau', 'eps', 'expected', 'bound'),
    [
        pytest.param([], 2, [], 2, id='no numbers'),
        pytest.param([], -2, [], 0, id='no numbers, negative bound'),
        pytest.param([3], 1, [2], 2, id='B = 2: the mean of the two'),
        pytest.param([0.5], 1, [0.5], 1, id='B = 2: nothing to do'),
        pytest.param([-3], -1, [-3], 0, id='B = 2: the bound alone is lifted'),
        pytest.param([1], -3, [0], 0, id='both meet at 0'),
        pytest.param([3], -1, [1], 1, id='above 0 by a mean with a negative bound'),
        pytest.param([3, 2, 0.5, -1], 1, [2, 2, 0.5, -1], 2, id='two come down'),
        pytest.param([4, 4, 4], 0, [3, 3, 3], 3, id='equal'),
        pytest.param([1, 1, 1], 1, [1, 1, 1], 1, id='at the bound'),
    ],
)
def test_known_projections(tau, eps, expected, bound):
    assert reference.project(tau, eps) == (expected, bound)


@each_family
@pytest.mark.parametrize('n', [1, 3, 6])
def test_the_bound_on_the_distance_is_one(family, n):
    """Of any feasible point; others are refused."""
    rng = np.random.default_rng(n)
    tau, eps = point(family, n)
    expected, bound = reference.project(tau, eps)
    for size in (1e-9, 1e-3, 1.0):
        for _ in range(20):
            e = max(0.0, float(bound) + size * rng.normal())
            t = np.minimum(np.array(expected, float) + size * rng.normal(size=n) * (rng.random(n) < 0.5), e).tolist()
            squared = (Fraction(e) - bound) ** 2 + sum((Fraction(a) - b) ** 2 for a, b in zip(t, expected, strict=True))
            found = reference.distance_bound(tau, eps, t, e)
            assert squared <= Fraction(found) ** 2
            assert reference.is_projection(tau, eps, t, e) == (squared == 0)
    assert reference.distance_bound(tau, eps, [float(bound) + 1e-3] * n, bound) == math.inf
    assert reference.distance_bound(tau, eps, [-1.0] * n, -1e-300) == math.inf


def test_many_numbers_are_certified():
    tau = np.random.default_rng(0).normal(size=20_000).tolist()
    bound = max(tau)
    assert reference.is_projection(tau, bound, tau, bound)
    assert not reference.is_projection(tau, bound, [*tau[:-1], tau[-1] - 1e-12], bound)
    assert reference.is_projection(tau, bound, [*tau[:-1], tau[-1] - 1e-12], bound, tolerance=2e-12)


def test_algorithm_4_is_wrong_as_printed():
    tau, eps = [Fraction(3), Fraction(2), Fraction(1, 2), Fraction(-1)], Fraction(1)
    found, bound = reference.algorithm_4_as_printed(tau, eps)
    assert (found, bound) == ([Fraction(5, 3), 2, Fraction(1, 2), -1], Fraction(5, 3))  # 2 is above the bound
    assert reference.distance_bound(tau, eps, found, bound) == math.inf

    assert reference.algorithm_4_as_printed([1], -3) == ([1], 0)  # should be 0 and 0
    assert reference.algorithm_4_as_printed([Fraction(-1)], Fraction(-3)) == ([-1], -3)  # the bound stays negative

    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(200):
        x = [Fraction(int(k), 4) for k in rng.integers(-8, 9, 5)]
        wrong += not reference.is_projection(x[1:], x[0], *reference.algorithm_4_as_printed(x[1:], x[0]))
    assert wrong > 100


@each_seed
@pytest.mark.parametrize('beta', [0.5, 1.0, 2.0])
def test_the_program_with_sums_has_the_same_value(beta, seed):
    """Equation (2), whose objective has Σ τ, which is 1, too: a scale of (w, ε, τ, φ) makes sums of means."""
    pos, neg = data(seed)
    n, m, d = len(pos), len(neg), pos.shape[1]
    cost = np.concatenate([np.zeros(d), np.ones(n + m), [n * beta**2]])
    zero = np.zeros
    rows = np.block(
        [
            [zero((n, d)), np.eye(n), zero((n, m)), -np.ones((n, 1))],
            [-pos, np.eye(n), zero((n, m)), zero((n, 1))],
            [neg, zero((m, n)), -np.eye(m), np.ones((m, 1))],
        ]
    )
    total = np.concatenate([zero(d), np.ones(n), zero(m + 1)])
    bounds = [(None, None)] * (d + n) + [(0, None)] * (m + 1)
    result = linprog(cost, rows, zero(2 * n + m), total[None], [1.0], bounds=bounds)
    program = reference.solve_lp(pos, neg, 'f_beta', beta)
    assert result.fun - 1 == pytest.approx(program.objective, rel=1e-8)
    assert n * result.x[-1] == pytest.approx(program.epsilon, rel=1e-6)


@each_problem
@each_seed
def test_strong_duality_and_feasibility(measure, kwargs, seed):
    pos, neg = data(seed)
    program = reference.solve_lp(pos, neg, measure, **kwargs)
    assert reference.rate_violation(program.tau, program.phi, measure, kwargs.get('target')) <= TOLERANCE
    assert (program.tau <= np.minimum(program.epsilon, pos @ program.w) + TOLERANCE).all()
    assert (program.phi >= np.maximum(0, program.epsilon + neg @ program.w) - TOLERANCE).all()
    value, missed = reference.dual_value(pos, neg, program, measure, **kwargs)
    assert missed <= TOLERANCE
    assert value == pytest.approx(program.objective, abs=TOLERANCE)
    if measure == 'f_beta':
        assert program.mu == pytest.approx(program.objective, abs=TOLERANCE)


@each_problem
@each_seed
def test_bounds_of_the_counted_measures(measure, kwargs, seed):
    pos, neg = data(seed)
    program = reference.solve_lp(pos, neg, measure, **kwargs)
    scores, labels = decisions(pos, neg, program)
    precision, recall = reference.precision_recall(scores, labels)
    if measure == 'f_beta':
        beta = kwargs['beta']
        bound = (1 + beta**2) / (1 + program.objective)
        assert bound <= reference.f_beta(scores, labels, beta) + TOLERANCE
        assert bound <= reference.best_f_beta(scores, labels, beta) + TOLERANCE
    elif measure == 'precision_at_recall':
        R = kwargs['target']
        assert recall >= R - TOLERANCE
        assert R / (R + program.objective) <= precision + TOLERANCE
        assert precision <= reference.best_precision_at_recall(scores, labels, R) + TOLERANCE
    else:
        assert precision >= kwargs['target'] - TOLERANCE
        assert 1 - program.objective <= recall + TOLERANCE
        assert recall <= reference.best_recall_at_precision(scores, labels, kwargs['target']) + TOLERANCE


def test_separable_classes_have_no_loss_and_a_precision_out_of_reach_no_optimum():
    pos, neg = np.array([[2.0, 1], [3, 1]]), np.array([[-2.0, 1], [-1, 1], [-5, 1]])
    for measure, kwargs in PROBLEMS:
        program = reference.solve_lp(pos, neg, measure, **kwargs)
        assert program.objective == pytest.approx(kwargs.get('beta', 0.0) ** 2, abs=TOLERANCE)
        scores, labels = decisions(pos, neg, program)
        if measure != 'precision_at_recall':  # where half the recall is enough
            assert reference.f_beta(scores, labels) == 1
    # Items that are all alike are no positives to any precision above their share.
    pos, neg = np.ones((1, 1)), np.ones((3, 1))
    with pytest.raises(RuntimeError, match='infeasible'):
        reference.solve_lp(pos, neg, 'recall_at_precision', target=0.5)


def test_measures_of_known_decisions():
    scores, labels = [2.0, 1.0, 0.0, -1.0, 3.0], [1, 0, 1, 0, 1]  # TP 2, FP 1, FN 1
    assert reference.precision_recall(scores, labels) == pytest.approx((2 / 3, 2 / 3))
    assert reference.f_beta(scores, labels) == pytest.approx(2 / 3)
    assert reference.f_beta([1.0, 1.0, 1.0, 1.0], [1, 0, 0, 0], beta=2) == pytest.approx(5 / 8)
    assert reference.best_f_beta(scores, labels) == pytest.approx(6 / 7)  # at 0
    assert reference.best_precision_at_recall(scores, labels, 0.6) == 1
    assert reference.best_precision_at_recall(scores, labels, 0.7) == pytest.approx(3 / 4)
    assert reference.best_recall_at_precision(scores, labels, 0.9) == pytest.approx(2 / 3)
    assert reference.best_recall_at_precision(scores, labels, 0.75) == 1
    assert reference.best_recall_at_precision([1.0, 2.0], [1, 0], 0.9) == 0
    assert reference.best_f_beta([1.0, 1.0, 0.0], [1, 0, 1]) == pytest.approx(4 / 5)  # a threshold keeps ties together
    assert reference.best_precision_at_recall([1.0, 1.0, 0.0], [1, 0, 1], 0.5) == pytest.approx(2 / 3)
    assert reference.auc_roc(scores, labels) == pytest.approx(5 / 6)
    assert reference.auc_roc([1.0, 1.0], [1, 0]) == 0.5


def test_measures_equal_those_of_all_decisions():
    """The best of the thresholds is the best of all sets of items that hold, with an item, all that score as much."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores, labels = rng.integers(0, 4, 6).tolist(), [1, 0, *rng.integers(0, 2, 4).tolist()]
        values = []
        for chosen in itertools.product((-1, 1), repeat=6):
            up = [s for s, c in zip(scores, chosen, strict=True) if c > 0]
            down = [s for s, c in zip(scores, chosen, strict=True) if c < 0]
            if up and (not down or min(up) > max(down)):
                values.append(reference.f_beta(chosen, labels, 0.5))
        assert reference.best_f_beta(scores, labels, 0.5) == max(values)

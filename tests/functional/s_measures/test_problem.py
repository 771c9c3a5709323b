"""The numbers of each measure: what they cost and constrain is, of rates that are counted, the measure itself."""

import itertools
import math

import numpy as np
import pytest
import torch
from reference import s_measures as reference
from s_measure_scenes import each_surrogate, margin_penalty

from mmseg_nondecomp.functional.s_measures.problem import MEASURES, RateProblem, rate_problem

PROBLEMS = {
    'F_1': ('f_beta', dict()),
    'F_2': ('f_beta', dict(beta=2)),
    'precision at recall': ('precision_at_recall', dict(target=0.7)),
    'recall at precision': ('recall_at_precision', dict(target=0.6)),
    'area under ROC': ('auc_roc', dict(anchors=4)),
    'area under PR': ('auc_pr', dict(anchors=4)),
}
each_problem = pytest.mark.parametrize(('measure', 'args'), PROBLEMS.values(), ids=PROBLEMS)
N_POS, N_NEG = 5, 8
R = torch.tensor([[N_NEG / N_POS]], dtype=torch.float64)
DECISIONS = list(itertools.product(range(N_POS + 1), range(N_NEG + 1)))
"""All true and false positives that there can be."""


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


def cost(problem, epsilon, a, b, r=R):
    w_a, w_b = problem.weights(torch.zeros(1, len(problem.cost)).double(), r)
    return problem.cost + problem.cost_epsilon * epsilon - w_a * a + w_b * b


def items_of(tp, fp):
    """Scores and labels with as many true and false positives."""
    scores = [1.0] * tp + [-1.0] * (N_POS - tp) + [1.0] * fp + [-1.0] * (N_NEG - fp)
    return scores, [1] * N_POS + [0] * N_NEG


@pytest.mark.parametrize('beta', [0.5, 1, 2, 3.7])
def test_f_beta_of_counted_rates(beta):
    """At the scale where A = 1, which is ε = 1 / recall."""
    problem = rate_problem('f_beta', beta)
    for tp, fp in DECISIONS:
        if tp:
            epsilon = row(N_POS / tp)
            a, b = epsilon * tp / N_POS, epsilon * fp / N_NEG
            found = (1 + beta**2) / (1 + cost(problem, epsilon, a, b).item())
            assert found == pytest.approx(reference.f_beta(*items_of(tp, fp), beta), rel=1e-14)
            assert problem.violation(a, b, R).item() == pytest.approx(0, abs=1e-15)


@each_surrogate
@pytest.mark.parametrize('beta', [0.5, 1.0, 2.0])
def test_f_beta_is_never_below_its_bound(surrogate, beta):
    """For any scores with A > 0, rescaled so that A = 1."""
    problem, rng, n_bounds = rate_problem('f_beta', beta), np.random.default_rng(0), 0
    for shift in (0.5, 1.0, 2.0, 4.0):
        for _ in range(10):
            labels = [1] * N_POS + [0] * N_NEG
            scores = torch.tensor(rng.normal(size=N_POS + N_NEG) + shift * (2 * np.array(labels) - 1))
            margin = torch.tensor(1.0).double()
            a = (margin - margin_penalty(-scores[:N_POS], margin, surrogate)).mean()
            if a <= 0:
                continue
            scores, margin = scores / a, margin / a
            a = (margin - margin_penalty(-scores[:N_POS], margin, surrogate)).mean()
            b = margin_penalty(scores[N_POS:], margin, surrogate).mean()
            assert problem.violation(a, b, R).item() == pytest.approx(0, abs=1e-14)
            bound = (1 + beta**2) / (1 + cost(problem, margin, a, b).item())
            assert 0 < bound <= reference.f_beta(scores.tolist(), labels, beta) + 1e-14
            n_bounds += 1
    assert n_bounds > 15


def test_recall_is_the_constraint_and_false_positives_are_the_cost():
    problem = rate_problem('precision_at_recall', target=0.6)  # 3 of 5
    found = {}
    for tp, fp in DECISIONS:
        a, b = row(tp / N_POS), row(fp / N_NEG)
        precision, recall = reference.precision_recall(*items_of(tp, fp))
        violation = problem.violation(a, b, R).item()
        assert violation == pytest.approx(0.6 - recall, abs=1e-15)
        assert (violation > 1e-15) == (tp < 3)
        assert problem.true_violation(row(1.0), a, b, R).item() == violation
        found.setdefault(tp, []).append((cost(problem, row(1.0), a, b).item(), precision))
    for tp, of_tp in found.items():  # what costs more is less precise
        costs, precisions = zip(*sorted(of_tp), strict=True)
        assert list(precisions) == sorted(precisions, reverse=True)
        assert len(set(costs)) == N_NEG + 1 or not tp


def test_precision_is_the_constraint_and_one_minus_recall_the_cost():
    problem = rate_problem('recall_at_precision', target=0.6)
    for tp, fp in DECISIONS:
        a, b = row(tp / N_POS), row(fp / N_NEG)
        precision, recall = reference.precision_recall(*items_of(tp, fp))
        assert cost(problem, row(1.0), a, b).item() == pytest.approx(1 - recall, abs=1e-15)
        if tp + fp:
            lacking = 0.6 - precision
            for violation in (problem.violation(a, b, R), problem.true_violation(row(1.0), a, b, R)):
                if abs(lacking) > 1e-9:
                    assert math.copysign(1, violation.item()) == math.copysign(1, lacking)
                else:
                    assert violation.item() == pytest.approx(0, abs=1e-15)
            assert problem.true_violation(row(1.0), a, b, R).item() == pytest.approx(lacking, abs=1e-15)


@pytest.mark.parametrize('measure', ['recall_at_precision', 'auc_pr'])
def test_a_precision_holds_without_predicted_positives(measure):
    problem = rate_problem(measure, target=0.6 if measure == 'recall_at_precision' else None)
    violation = problem.true_violation(row(1.0), row(0.0), row(0.0), R)
    torch.testing.assert_close(violation, (problem.limit_b - 1).expand_as(violation))
    # With next to no predicted positives the violation is between that and that of the precision, for any r.
    for r in (1e-3, 1.0, 1e6):
        little = problem.true_violation(row(1.0), row(0.0), row(1e-3 / r), row(r))
        assert (little >= problem.limit_b - 1).all()
        assert (little <= problem.limit_b).all()


@each_problem
def test_the_weights_of_the_rates_are_those_of_the_lagrangian_and_not_negative(measure, args):
    """cost + μ violation, of any rates and multipliers."""
    problem, rng = rate_problem(measure, **args), np.random.default_rng(0)
    k = len(problem.cost)
    for size in (0, *[1] * 20):
        mu, epsilon, a, b = (torch.tensor(rng.exponential(size=(3, k))) for _ in range(4))
        mu, r = size * mu, torch.tensor(rng.exponential(size=(3, 1)))
        w_a, w_b = problem.weights(mu, r)
        assert torch.cat([w_a, w_b]).min() >= 0
        found = problem.cost + problem.cost_epsilon * epsilon + problem.limit * mu - w_a * a + w_b * b
        expected = cost(problem, epsilon, a, b, r) + mu * problem.violation(a, b, r)
        assert found.shape == (3, k)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@each_problem
@pytest.mark.parametrize('r', [0.5, 1.6, 300.0])
def test_at_the_balance_both_classes_weigh_the_same(measure, args, r):
    """The multiplier is 0 where none is so, since a precision is below that of all items."""
    problem, r = rate_problem(measure, **args), row(r)
    balance = problem.balance(r)
    w_a, w_b = problem.weights(balance, r)
    balanced = balance > 0
    torch.testing.assert_close(w_a[balanced], w_b[balanced])
    if measure in ('recall_at_precision', 'auc_pr'):
        assert torch.equal(balanced, problem.limit_b * (1 + r) > 1)
    else:
        assert balanced.all()


@each_surrogate
@each_problem
def test_a_constraint_on_the_bounds_holds_of_the_rates(measure, args, surrogate):
    problem, n_held = rate_problem(measure, **args), 0
    margin = torch.tensor(2.0 if measure == 'f_beta' else 1.0).double()  # A is below the margin
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        pos = torch.randn(N_POS, generator=generator, dtype=torch.float64) + seed / 10
        neg = torch.randn(N_NEG, generator=generator, dtype=torch.float64) - seed / 10
        a = margin - margin_penalty(-pos, margin, surrogate).mean()
        b = margin_penalty(neg, margin, surrogate).mean()
        held = problem.violation(a, b, R) <= 0
        tp, fp = (pos > 0).double().mean(), (neg > 0).double().mean()
        assert (problem.violation(margin * tp, margin * fp, R) <= 1e-15)[held].all()
        assert (problem.true_violation(margin, tp, fp, R) <= 1e-15)[held].all()
        if measure != 'f_beta':  # whose cost is of another scale
            assert (cost(problem, margin, tp, fp) <= cost(problem, margin, a, b) + 1e-15).all()
        n_held += int(held.sum())
    assert n_held > 0


def test_an_area_under_the_roc_curve_is_the_mean_over_its_anchors():
    """The recall rises with the false positive rate, so K midpoints are within 1 / 2K of the area."""
    rng, anchors = np.random.default_rng(0), 20
    problem = rate_problem('auc_roc', anchors=anchors)
    labels = np.arange(2000) % 4 == 0
    scores = rng.normal(size=2000) + labels
    negatives = np.sort(scores[~labels])
    costs = []
    for rate in (-problem.limit).tolist():
        threshold = negatives[len(negatives) - 1 - int(rate * len(negatives))]  # so many negatives are above it
        tp, fp = (scores[labels] > threshold).mean(), (scores[~labels] > threshold).mean()
        assert fp == pytest.approx(rate, abs=1 / len(negatives))
        costs.append(cost(problem, row(1.0), row(tp), row(fp)).mean().item())
    area = reference.auc_roc(scores[::5].tolist(), labels[::5].tolist())
    assert 1 - np.mean(costs) == pytest.approx(area, abs=1 / (2 * anchors) + 0.03)  # a fifth of the pairs is counted
    below = (scores[labels][:, None] > negatives).mean()
    assert 1 - np.mean(costs) == pytest.approx(below, abs=1 / (2 * anchors))


def test_an_area_under_the_pr_curve_is_the_mean_over_its_anchors():
    """The best recall falls with the precision that is asked for."""
    rng, anchors = np.random.default_rng(0), 10
    problem = rate_problem('auc_pr', anchors=anchors)
    labels = (np.arange(60) % 3 == 0).tolist()
    scores = (rng.normal(size=60) + 2 * np.array(labels)).tolist()
    recalls = [reference.best_recall_at_precision(scores, labels, p) for p in problem.limit_b.tolist()]
    fine = [reference.best_recall_at_precision(scores, labels, (k + 0.5) / 100) for k in range(100)]
    assert 0.3 < np.mean(fine) < 0.97
    assert np.mean(recalls) == pytest.approx(np.mean(fine), abs=1 / (2 * anchors))


@pytest.mark.parametrize('measure', ['auc_roc', 'auc_pr'])
def test_anchors_are_the_middles_of_equal_parts(measure):
    problem = rate_problem(measure, anchors=4)
    grid = -problem.limit if measure == 'auc_roc' else problem.limit_b
    torch.testing.assert_close(grid, torch.tensor([0.125, 0.375, 0.625, 0.875]).double())
    assert len(rate_problem(measure).cost) == 10
    one, other = rate_problem('auc_pr', anchors=1), rate_problem('recall_at_precision', target=0.5)
    assert torch.equal(torch.stack(one[:-1]), torch.stack(other[:-1]))
    assert one.per_positive == other.per_positive


@each_problem
def test_numbers_are_exact_and_move_together(measure, args):
    problem = rate_problem(measure, **args)
    assert all((part.shape, part.dtype) == ((args.get('anchors', 1),), torch.float64) for part in problem[:-1])
    moved = problem.to(torch.device('meta'))
    assert isinstance(moved, RateProblem)
    assert all(part.device.type == 'meta' for part in moved[:-1])
    assert moved.measure == measure


def test_all_measures_are_tested():
    assert {measure for measure, _ in PROBLEMS.values()} == set(MEASURES)


@pytest.mark.parametrize(
    ('args', 'error', 'message'),
    [
        (dict(measure='dice'), ValueError, r"`measure`.*f_beta.*'dice'"),
        (dict(measure='f_beta', beta=0), ValueError, '`beta`.*0'),
        (dict(measure='f_beta', target=0.5), ValueError, "`target`.*None.*'f_beta'.*0.5"),
        (dict(measure='auc_roc', target=0.5), ValueError, "`target`.*None.*'auc_roc'.*0.5"),
        (dict(measure='auc_pr', target=0.5), ValueError, "`target`.*None.*'auc_pr'.*0.5"),
        (dict(measure='precision_at_recall'), ValueError, "`target`.*'precision_at_recall'.*None"),
        (dict(measure='recall_at_precision'), ValueError, "`target`.*'recall_at_precision'.*None"),
        (dict(measure='precision_at_recall', target=0.0), ValueError, '`target`.*0.0'),
        (dict(measure='precision_at_recall', target=1), ValueError, '`target`.*1'),
        (dict(measure='auc_roc', anchors=0), ValueError, '`anchors`.*0'),
    ],
)
def test_bad_input(args, error, message):
    with pytest.raises(error, match=message):
        rate_problem(**args)

"""The oracles of direct loss minimisation agree, take known values and have the properties that define them."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import binary_average_precision

from reference import direct_loss as reference

FAMILIES = {
    'distinct': lambda rng, n: fractions(rng.permutation(2000)[:n] - 1000, 500),
    'close': lambda rng, n: fractions(rng.permutation(2000)[:n] - 1000, 20000),
    'tied': lambda rng, n: fractions(rng.integers(0, 3, n), 2),
    'constant': lambda rng, n: fractions(np.ones(n), 3),
    'one third': lambda rng, n: fractions(rng.integers(0, 12, n), 36),
}
EPSILONS = [Fraction(0), Fraction(1, 100), Fraction(1, 10), Fraction(1), Fraction(10), Fraction(100)]
MODES = ['positive', 'negative', 'hinge', 'perceptron']
each_family = pytest.mark.parametrize('family', FAMILIES)
each_mode = pytest.mark.parametrize('mode', MODES)
each_sign = pytest.mark.parametrize('mode', ['positive', 'negative'])


def fractions(numerators, denominator):
    return [Fraction(int(numerator), denominator) for numerator in numerators]


def draw(family, rng, n_positives, n_negatives):
    """Draw scores of P positives and N negatives at once, so that distinct ones have no ties at all."""
    scores = FAMILIES[family](rng, n_positives + n_negatives)
    return scores[:n_positives], scores[n_positives:]


def sizes(largest):
    return itertools.product(range(1, largest + 1), repeat=2)


def cases(family, largest, seed=0, repeats=1):
    rng = np.random.default_rng(seed)
    return [draw(family, rng, P, N) for P, N in sizes(largest) for _ in range(repeats)]


def items(s_p, s_n):
    return range(len(s_p)), range(len(s_p), len(s_p) + len(s_n))


def counts(ranking, n_positives):
    """Return the negatives above each positive, from the highest to the lowest positive, which determine F and Δ."""
    return sorted(reference.negatives_above(ranking, n_positives))


def optimal_counts(s_p, s_n, epsilon, mode):
    rankings = reference.loss_augmented_rankings(s_p, s_n, epsilon, mode).rankings
    return {tuple(counts(ranking, len(s_p))) for ranking in rankings}


def shifted(s_p, s_n, step):
    scores = [score + change for score, change in zip(s_p + s_n, step, strict=True)]
    return scores[: len(s_p)], scores[len(s_p) :]


def ap_of(s_p, s_n):
    return reference.average_precision_of_scores(s_p + s_n, [1] * len(s_p) + [0] * len(s_n))


def is_smooth(s_p, s_n, epsilon, mode):
    """Return whether all maxima of the loss are attained once."""
    modes = [mode, 'perceptron']
    return all(len(reference.loss_augmented_rankings(s_p, s_n, epsilon, m).rankings) == 1 for m in modes)


def test_interleavings_are_the_rankings_that_keep_both_orders():
    for P, N in sizes(3):
        found = list(reference.interleavings(range(P), range(P, P + N)))
        expected = {
            ranking
            for ranking in reference.all_rankings(range(P), range(P, P + N))
            if [i for i in ranking if i < P] == list(range(P)) and [j for j in ranking if j >= P] == [*range(P, P + N)]
        }
        assert len(found) == len(expected) == math.comb(P + N, P)
        assert set(found) == expected
    assert list(reference.interleavings('ab', 'x')) == [tuple('abx'), tuple('axb'), tuple('xab')]


def test_known_ranking():
    ranking, s_p, s_n = (0, 3, 1, 4, 2), [5, 3, 1], [4, 2]
    assert reference.negatives_above(ranking, 3) == [0, 1, 2]
    assert reference.positives_above(ranking, 3) == [1, 2]
    assert reference.average_precision(ranking, 3) == Fraction(1, 3) * (1 + Fraction(2, 3) + Fraction(3, 5))
    # + (5 - 4) + (5 - 2) - (3 - 4) + (3 - 2) - (1 - 4) - (1 - 2)
    assert reference.score_of_ranking(ranking, s_p, s_n) == pytest.approx(10 / 6)
    assert reference.derivative_of_score(ranking, 3) == [Fraction(k, 6) for k in (2, 0, -2, 1, -1)]
    assert reference.perfect_ranking(s_p, s_n) == (0, 1, 2, 3, 4)
    assert reference.average_precision((3, 4, 0, 1, 2), 3) == Fraction(1, 3) * (
        Fraction(1, 3) + Fraction(2, 4) + Fraction(3, 5)
    )


def test_the_score_is_linear_in_the_scores():
    rng = np.random.default_rng(1)
    for P, N in sizes(4):
        s_p, s_n = draw('distinct', rng, P, N)
        for _ in range(5):
            ranking = tuple(rng.permutation(P + N).tolist())
            slope = reference.derivative_of_score(ranking, P)
            expected = sum(a * b for a, b in zip(slope, s_p + s_n, strict=True))
            assert reference.score_of_ranking(ranking, s_p, s_n) == expected


@each_mode
@each_family
def test_some_interleaving_is_the_best_of_all_rankings(family, mode):
    for s_p, s_n in cases(family, 3):
        if len(s_p + s_n) > 5:
            continue
        rankings = list(reference.all_rankings(*items(s_p, s_n)))
        scores = [reference.score_of_ranking(ranking, s_p, s_n) for ranking in rankings]
        losses = [1 - reference.average_precision(ranking, len(s_p)) for ranking in rankings]
        for epsilon in EPSILONS:
            k = reference.weight_of_loss(epsilon, mode)
            highest = max(F + k * loss for F, loss in zip(scores, losses, strict=True))
            assert reference.loss_augmented_rankings(s_p, s_n, epsilon, mode).value == highest


@each_family
def test_average_precision_is_that_of_torchmetrics(family):
    rng = np.random.default_rng(2)
    for n in (2, 3, 8, 40):
        for _ in range(5):
            # Scores outside of [0, 1] would be taken for logits.
            scores = [(float(s) + 3) / 6 for s in FAMILIES[family](rng, n)]
            target = rng.permutation(np.arange(n) < rng.integers(1, n + 1)).astype(int).tolist()
            found = reference.average_precision_of_scores(scores, target)
            theirs = binary_average_precision(torch.tensor(scores, dtype=torch.float64), torch.tensor(target))
            assert float(found) == pytest.approx(float(theirs), abs=1e-6)


def test_average_precision_is_that_of_the_predicted_ranking_and_with_ties_can_exceed_all_orders():
    for family in ('distinct', 'close'):
        for s_p, s_n in cases(family, 4):
            (predicted,) = reference.loss_augmented_rankings(s_p, s_n, 1, 'perceptron').rankings
            assert ap_of(s_p, s_n) == reference.average_precision(predicted, len(s_p))
    s_p, s_n = [0, 0], [1]
    (predicted,) = reference.loss_augmented_rankings(s_p, s_n, 1, 'perceptron').rankings
    assert reference.average_precision(predicted, 2) == Fraction(7, 12)
    assert ap_of(s_p, s_n) == Fraction(2, 3)
    # Of equal scores all, it is the share of positives, which is below the AP of most orders of them.
    assert ap_of([0, 0], [0, 0, 0]) == Fraction(2, 5)


@each_sign
@each_family
def test_the_dynamic_programme_finds_the_lowest_optimum(family, mode):
    for s_p, s_n in cases(family, 4):
        for epsilon in EPSILONS:
            optima = reference.loss_augmented_rankings(s_p, s_n, epsilon, mode)
            found = reference.dynamic_programme(s_p, s_n, epsilon, reference.SIGNS[mode])
            assert found.value == optima.value
            assert found.ranking in optima.rankings
            every = optimal_counts(s_p, s_n, epsilon, mode)
            assert counts(found.ranking, len(s_p)) == [max(c) for c in zip(*every, strict=True)]


@each_family
def test_each_negative_finds_its_slot_alone_in_the_positive_mode(family):
    for s_p, s_n in cases(family, 4) + cases(family, 4, seed=1):
        for epsilon in EPSILONS:
            slots = reference.best_slots(s_p, s_n, epsilon, 1)
            assert slots == sorted(slots)
            assert reference.per_slot(s_p, s_n, epsilon) == reference.dynamic_programme(s_p, s_n, epsilon, 1)


@pytest.mark.parametrize('epsilon', [0.01, 0.1, 1.0, 10.0])
def test_each_negative_finds_its_slot_alone_among_many(epsilon):
    rng = np.random.default_rng(4)
    for P, N in ((20, 50), (40, 15), (1, 80)):
        s_p, s_n = rng.normal(size=P) + 0.5, rng.normal(size=N)
        found, expected, lower = (
            reference.per_slot(s_p, s_n, epsilon),
            *(reference.dynamic_programme(s_p, s_n, epsilon, sign) for sign in (1, -1)),
        )
        assert found.ranking == expected.ranking
        assert float(found.value) == pytest.approx(expected.value, abs=1e-12)
        assert float(reference.objective(lower.ranking, s_p, s_n, -epsilon)) == pytest.approx(lower.value, abs=1e-12)


@pytest.mark.parametrize('s_n', [['2/5', '2/5'], ['42/100', '2/5']])
def test_a_negative_does_not_find_its_slot_alone_in_the_negative_mode(s_n):
    """Over the only positive, the first negative would cost ε/2 of precision, and the second ε/6 more.

    To lift the first pays 2/5 - 1/2 < 0, to lift the second after it 2/5 - 1/6 > 0, and both together > 0.
    """
    s_p, s_n, epsilon = [Fraction(0)], list(map(Fraction, s_n)), Fraction(1)
    slots = reference.best_slots(s_p, s_n, epsilon, -1)
    assert slots == [1, 0]
    best = reference.dynamic_programme(s_p, s_n, epsilon, -1)
    assert best.ranking == (1, 2, 0)
    assert reference.loss_augmented_rankings(s_p, s_n, epsilon, 'negative') == ([best.ranking], best.value)
    assert reference.objective(reference.ranking_of_slots(s_p, s_n, slots), s_p, s_n, -epsilon) < best.value


def test_a_positive_does_not_find_its_slot_alone_in_the_positive_mode():
    """Two equal positives above a negative: to lift it pays ε/4 over the first, and ε/6 over the second."""
    s_p, s_n, epsilon = [Fraction(0)] * 2, [Fraction(-1, 5)], Fraction(1)
    rankings = reference.interleavings([0, 1], [2])
    values = {tuple(reference.negatives_above(y, 2)): reference.objective(y, s_p, s_n, epsilon) for y in rankings}
    over_second, over_both = values[0, 1] - values[0, 0], values[1, 1] - values[0, 0]
    assert over_second == -Fraction(1, 5) + Fraction(1, 6) < 0 < -Fraction(1, 5) + Fraction(1, 4)
    assert over_both == over_second - Fraction(1, 5) + Fraction(1, 4) > 0


def test_gain_of_a_lift():
    """The terms of the docstring's sum."""
    P, N = 3, 4
    rng = np.random.default_rng(6)
    s_p, s_n = draw('distinct', rng, P, N)
    p, n = sorted(s_p, reverse=True), sorted(s_n, reverse=True)
    for k in (Fraction(-3), Fraction(0), Fraction(1), Fraction(2, 7)):
        best = reference.objective(tuple(range(P + N)), p, n, k)
        for y in reference.interleavings(range(P), range(P, P + N)):
            c = reference.negatives_above(y, P)
            paid = sum(
                2 * (n[j - 1] - p[i - 1]) / (P * N) + k * Fraction(i, P * (i + j - 1) * (i + j))
                for i in range(1, P + 1)
                for j in range(1, c[i - 1] + 1)
            )
            assert reference.objective(y, p, n, k) == best + paid


@each_mode
@each_family
def test_optima_are_closed_under_minimum_and_maximum(family, mode):
    for s_p, s_n in cases(family, 3):
        for epsilon in EPSILONS:
            every = optimal_counts(s_p, s_n, epsilon, mode)
            for a, b in itertools.combinations(every, 2):
                assert tuple(map(min, a, b)) in every
                assert tuple(map(max, a, b)) in every


@each_family
def test_epsilon_leads_step_by_step_from_the_order_of_the_scores_to_the_worst_and_the_best_ranking(family):
    for s_p, s_n in cases(family, 3):
        extremes = []
        for mode, epsilon in [('negative', e) for e in reversed(EPSILONS)] + [('positive', e) for e in EPSILONS]:
            every = np.array(list(optimal_counts(s_p, s_n, epsilon, mode)))
            extremes.append(np.stack([every.min(0), every.max(0)]))
        assert (np.diff(extremes, axis=0) >= 0).all()
    for s_p, s_n in cases(family, 3):
        predicted = optimal_counts(s_p, s_n, 0, 'perceptron')
        for mode, end in (('positive', len(s_n)), ('negative', 0)):
            # Below all differences, Δ only decides between rankings that the scores leave equal.
            assert optimal_counts(s_p, s_n, Fraction(1, 10**9), mode) <= predicted
            assert optimal_counts(s_p, s_n, 0, mode) == predicted
            assert optimal_counts(s_p, s_n, Fraction(10**6), mode) == {(end,) * len(s_p)}
    for s_p, s_n in cases(family, 3):
        scores = s_p + s_n
        for ranking in reference.loss_augmented_rankings(s_p, s_n, 1, 'perceptron').rankings:
            assert all(scores[a] >= scores[b] for a, b in itertools.pairwise(ranking))


def test_tied_optima_are_all_returned():
    optima = reference.loss_augmented_rankings([0.3 - 0.1], [0.2], 0.0, 'perceptron')
    assert sorted(optima.rankings) == [(0, 1), (1, 0)]
    # The pair is lifted for ε/2 and costs 1.
    optima = reference.loss_augmented_rankings([0.7], [0.2], 2.0, 'positive')
    assert sorted(optima.rankings) == [(0, 1), (1, 0)]
    assert reference.dynamic_programme([0.75], [0.25], 2.0, 1).ranking == (1, 0)
    assert reference.dynamic_programme([0.25], [0.75], 2.0, -1).ranking == (1, 0)


@each_mode
def test_the_gradient_is_that_of_the_surrogate(mode):
    h = Fraction(1, 10**9)
    checked = 0
    for s_p, s_n in cases('distinct', 3, seed=7) + cases('close', 3, seed=8):
        for epsilon in EPSILONS[1:]:
            assert is_smooth(s_p, s_n, epsilon, mode)
            gradient = reference.direct_gradient(s_p, s_n, epsilon, mode)
            here = reference.surrogate(s_p, s_n, epsilon, mode)
            for item, expected in enumerate(gradient):
                step = [h if k == item else 0 for k in range(len(gradient))]
                there = reference.surrogate(*shifted(s_p, s_n, step), epsilon, mode)
                assert (there - here) / h == expected
            checked += any(gradient)
    assert checked > 20


@pytest.mark.parametrize('epsilon', EPSILONS[1:])
def test_where_the_modes_learn_nothing(epsilon):
    """The positive mode has nothing worse than the worst ranking to leave, and the negative one nothing to gain."""
    s_p, s_n = fractions([-1, -2], 10), fractions([1, 2, 3], 10)
    assert not any(reference.direct_gradient(s_p, s_n, epsilon, 'positive'))
    assert not any(reference.direct_gradient(s_n, s_p, epsilon, 'negative'))
    assert any(reference.direct_gradient(s_p, s_n, 10, 'negative'))
    assert any(reference.direct_gradient(s_n, s_p, 10, 'positive'))


@each_mode
@each_family
def test_gradients_raise_positives_lower_negatives_and_add_up_to_zero(family, mode):
    for s_p, s_n in cases(family, 3):
        for epsilon in EPSILONS[1:]:
            gradient = reference.direct_gradient(s_p, s_n, epsilon, mode)
            of_positives, of_negatives = gradient[: len(s_p)], gradient[len(s_p) :]
            assert max(of_positives) <= 0 <= min(of_negatives)
            assert sum(gradient) == 0
            bound = Fraction(2, 1) / (epsilon if mode in reference.SIGNS else 1)
            assert max(of_negatives) * len(s_n) <= bound
            assert -min(of_positives) * len(s_p) <= bound


@each_mode
@each_family
def test_gradients_are_of_items_and_not_of_their_order(family, mode):
    """Equal items get equal gradients, wherever they stand."""
    rng = np.random.default_rng(11)
    for s_p, s_n in cases(family, 3):
        P = len(s_p)
        order_P, order_N = rng.permutation(P), rng.permutation(len(s_n))
        expected = reference.direct_gradient(s_p, s_n, Fraction(1, 2), mode)
        found = reference.direct_gradient([s_p[i] for i in order_P], [s_n[j] for j in order_N], Fraction(1, 2), mode)
        assert found == [expected[i] for i in order_P] + [expected[P + j] for j in order_N]
        assert len(set(zip(s_p, expected[:P], strict=True))) == len(set(s_p))


@each_family
def test_the_prediction_gives_tied_pairs_nothing(family):
    """The perceptron has Σ_ij (sign(p_i - n_j) - 1) / PN; where nothing ties, it counts the misranked pairs."""
    for s_p, s_n in cases(family, 3):
        pairs = [[int(np.sign(p - n)) - 1 for n in s_n] for p in s_p]
        of_positives = [Fraction(sum(row), len(s_p) * len(s_n)) for row in pairs]
        of_negatives = [-Fraction(sum(column), len(s_p) * len(s_n)) for column in zip(*pairs, strict=True)]
        assert reference.direct_gradient(s_p, s_n, 1, 'perceptron') == of_positives + of_negatives
        value = sum(2 * max(n - p, 0) for p in s_p for n in s_n) / (len(s_p) * len(s_n))
        assert reference.surrogate(s_p, s_n, 1, 'perceptron') == value


@pytest.mark.parametrize(
    ('mode', 'scale'), [('positive', 10), ('negative', 10), ('hinge', 2), ('perceptron', 1)], ids=MODES
)
def test_constant_scores_are_left(mode, scale):
    gradient = reference.direct_gradient([1] * 3, [1] * 2, Fraction(1, 10), mode)
    assert gradient == [Fraction(-scale, 3)] * 3 + [Fraction(scale, 2)] * 2


def test_known_gradients_of_one_pair():
    """As functions of the margin m = p - n: the losses are 0 or 1 - AP = 1/2, and the margins of the modes ε/4."""
    for epsilon in EPSILONS[1:]:
        for margin in fractions(range(-40, 41, 3), 16):
            expected = {
                'positive': min(max(Fraction(1, 2) - 2 * margin / epsilon, 0), Fraction(1, 2)),
                'negative': min(max(-2 * margin / epsilon, 0), Fraction(1, 2)),
                'hinge': max(Fraction(1, 2) - 2 * margin, 0),
                'perceptron': max(-2 * margin, 0),
            }
            slopes = {
                'positive': 0 < margin < epsilon / 4,
                'negative': -epsilon / 4 < margin < 0,
                'hinge': margin < Fraction(1, 4),
                'perceptron': margin < 0,
            }
            for mode in MODES:
                assert reference.surrogate([margin], [0], epsilon, mode) == expected[mode]
                if is_smooth([margin], [0], epsilon, mode):
                    slope = 2 * slopes[mode] / (epsilon if mode in reference.SIGNS else 1)
                    assert reference.direct_gradient([margin], [0], epsilon, mode) == [-slope, slope]


@each_family
def test_the_surrogates_enclose_the_loss(family):
    for s_p, s_n in cases(family, 3):
        predicted = reference.loss_augmented_rankings(s_p, s_n, 0, 'perceptron').rankings
        losses = [1 - reference.average_precision(ranking, len(s_p)) for ranking in predicted]
        upper = [reference.surrogate(s_p, s_n, epsilon, 'positive') for epsilon in EPSILONS[1:]]
        lower = [reference.surrogate(s_p, s_n, epsilon, 'negative') for epsilon in EPSILONS[1:]]
        assert upper == sorted(upper)
        assert lower == sorted(lower, reverse=True)
        assert max(losses) <= upper[0]
        assert lower[0] <= min(losses)
        tiny = Fraction(1, 10**9)
        assert reference.surrogate(s_p, s_n, tiny, 'positive') == max(losses)
        assert reference.surrogate(s_p, s_n, tiny, 'negative') == min(losses)


def test_the_theorem_of_the_gradient():
    """The mean gradient of scores that are spread evenly tends to the slope of the mean loss: equation 2.

    When all positives rise by t, the mean of the derivative over t in [0, 1] is the change of the loss.
    """
    s_p, s_n = fractions([-10, 1], 20), fractions([3, 9, -4], 20)
    steps = [Fraction(2 * k + 1, 200) for k in range(100)]
    change = (1 - ap_of([p + 1 for p in s_p], s_n)) - (1 - ap_of(s_p, s_n))
    for mode in ('positive', 'negative'):
        slopes = [sum(reference.direct_gradient([p + t for p in s_p], s_n, Fraction(1, 10), mode)[:2]) for t in steps]
        assert sum(slopes) / len(slopes) == pytest.approx(change, abs=0.05)


def zero_one_surrogates(margin, epsilon):
    return {
        'positive': min(max(1 - 2 * margin / epsilon, 0), 1),
        'negative': min(max(-2 * margin / epsilon, 0), 1),
        'hinge': max(1 - 2 * margin, 0),
        'perceptron': max(-2 * margin, 0),
    }


@each_mode
@each_family
def test_zero_one_losses_are_ramps_and_hinges_of_the_margins(family, mode):
    rng = np.random.default_rng(12)
    for n in (1, 2, 5):
        for epsilon in EPSILONS[1:]:
            s = [score - Fraction(1, 3) for score in FAMILIES[family](rng, n)]
            y = [int(label) for label in rng.choice([-1, 1], n)]
            found = reference.direct_zero_one(s, y, epsilon, mode)
            margins = [label * score for label, score in zip(y, s, strict=True)]
            assert found.surrogate == sum(zero_one_surrogates(m, epsilon)[mode] for m in margins) / Fraction(n)
            assert found.loss == Fraction(sum((score > 0) != (label > 0) for score, label in zip(s, y, strict=True)), n)
            h = Fraction(1, 10**9)
            for item, margin in enumerate(margins):
                right, left = (zero_one_surrogates(margin + step, epsilon)[mode] for step in (h, -h))
                # At a corner, the midpoint of both slopes.
                assert found.gradient[item] == y[item] * (right - left) / (2 * h) / n

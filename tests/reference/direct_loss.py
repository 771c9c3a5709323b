"""Oracles of direct loss minimisation, by enumeration of the outputs.

There are `P` positive and `N` negative items. Item `0 <= i < P` is a positive with the score `p_i = s_p[i]`, and item
`P + j` is a negative with the score `n_j = s_n[j]`, in any order. A ranking is the tuple of the items, best first. Let
`c_i` be the number of negatives above the positive `i`, and `a_j` the number of positives above the negative `j`, and
`y_ij = +1` where `i` is above `j`, else -1. Then

    F(y) = 1/PN Σ_ij y_ij (p_i - n_j),    ∂F/∂p_i = (N - 2 c_i) / PN,    ∂F/∂n_j = (P - 2 a_j) / PN,
    AP(y) = 1/P Σ_{positives i} (1 + positives above i) / (1 + items above i),    Δ(y) = 1 - AP(y),

so the precision at a positive counts the positive itself. With `y_w = argmax F` (the order of the scores), `y_GT` the
positives above all negatives, and `ε > 0`, a mode is an inference, a loss and its gradient in the scores:

    mode        y_direct          loss L                              ∂L/∂s
    positive    argmax F + ε Δ    (max(F + ε Δ) - max F) / ε         +1/ε (∂F(y_direct) - ∂F(y_w))
    negative    argmax F - ε Δ    (max F - max(F - ε Δ)) / ε         -1/ε (∂F(y_direct) - ∂F(y_w))
    hinge       argmax F + Δ      max(F + Δ) - F(y_GT)                ∂F(y_direct) - ∂F(y_GT)
    perceptron  argmax F          max F - F(y_GT)                     ∂F(y_w) - ∂F(y_GT)

A descent step is `s <- s - η ∂L/∂s`. The first two gradients are equation 2 of the paper at a finite `ε`. The paper has
no loss for them: that they are gradients of these `L` is the envelope theorem, as a maximum of functions that are
linear in `s` has the derivative of its maximiser. From `max(F ± ε Δ) >= F(y_w) ± ε Δ(y_w)` follows

    L_negative <= Δ(y_w) <= L_positive,

and both are equalities below some `ε` where no positive has the score of a negative.

**Interleavings.** The positions of the positives determine `Δ`, all `c` and all `a` up to their order, and
`F = 1/PN (Σ p_i (N - 2 c_i) + Σ n_j (P - 2 a_j))` is greatest when high scores meet low counts (the rearrangement
inequality): some optimum of each mode has the positives, and the negatives, in descending order of their scores.
With the items numbered so, a ranking is `0 <= c_1 <= ... <= c_P <= N`, and both terms are sums over positives:

    F + k Δ = const + Σ_i Σ_{j <= c_i} (2 (n_j - p_i) / PN + k/P g_ij),    g_ij = i / ((i + j - 1) (i + j)),

`k` being ε, -ε, 1 or 0. A term is what it pays to lift the negative `j`, after those above it, over the positive `i`.

**Ties.** A sum of functions of one `c_i` each has optima that are closed under the minimum and the maximum of two of
them: one optimum has all positives as high as any optimum has them, and one has all as low. As `g > 0`, both of these
have greater or equal `c` for a greater `k`: `y_direct` of the positive mode differs from `y_w` only by negatives that
moved up, that of the negative mode only by negatives that moved down. `direct_gradient` takes the midpoint of the two
extreme optima as `∂F`, which for `y_w` is `y_ij = sign(p_i - n_j)`, and gives items of the same label and score the
mean of their shares. `dynamic_programme` and `per_slot` return the extreme optimum with low positives.

**Slots.** The same sum by negatives: the negative `j` with `a_j` positives above it adds the terms `i > a_j`. Only
`a_1 <= ... <= a_N` is a ranking. For `k >= 0` every term decreases with `j`, as `n_j` and `g_ij` do, so the best slot
of each negative alone increases with `j` (of several best, the smallest of each): the best slots are a ranking, and
`per_slot` is exact. For `k < 0` the term `k/P g_ij` increases with `j`, as the first negative above a positive costs
the most precision: to lift the second alone may pay where to lift the first alone does not, and the best slots are no
ranking. By positives the sum does not split in this way for any `k` but 0, because `g_ij` rises in `i` to about `i = j`
and then falls.

**0-1 loss.** The paper trains with it and has no formula. Here `n` items have the scores `s_i` and the labels `±1`, and

    F(ŷ) = 1/n Σ ŷ_i s_i,    Δ(ŷ) = 1/n Σ [ŷ_i != y_i]

by analogy: `ŷ = ±1`, and means. With the modes as above and the margins `m_i = y_i s_i`, the losses are the means of
`clip(1 - 2m/ε, 0, 1)`, `clip(-2m/ε, 0, 1)`, `max(1 - 2m, 0)` and `max(-2m, 0)`, which is for tests to find.

Numbers are fractions, with which everything is exact, ties included, or floats.

Reference: Song, Schwing, Zemel, Urtasun, "Training Deep Neural Networks via Direct Loss Minimization", ICML 2016.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ranking = tuple[int, ...]

SIGNS = {'positive': 1, 'negative': -1}
# Values that are closer than this are those of a tie.
TOLERANCE = Fraction(1, 10**12)


class Optima(NamedTuple):
    """All optimal rankings and their value, which is F + k Δ."""

    rankings: list[Ranking]
    value: Any


class Optimum(NamedTuple):
    """An optimal ranking and its value, which is F + k Δ."""

    ranking: Ranking
    value: Any


class ZeroOne(NamedTuple):
    """Values of the 0-1 loss and its surrogate.

    Attributes:
        loss: Δ, where a score of 0 predicts -1.
        surrogate: L of the mode.
        gradient: ∂L/∂s, one number per item; the midpoint of all where there are several.
    """

    loss: Any
    surrogate: Any
    gradient: list[Any]


class OfTable(NamedTuple):
    """A direct loss of a finite set of labellings.

    Attributes:
        value: Δ(y_w), or the bound.
        gradient: ∂L/∂F, one number per labelling.
    """

    value: float
    gradient: list[float]


def direct_loss_of_table(
    scores: Sequence[float], losses: Sequence[float], epsilon: float, mode: str, truth: int
) -> OfTable:
    """Return the direct loss where each labelling has a score and a loss of its own, without ties."""
    k = weight_of_loss(epsilon, mode)
    direct, of_scores = (max(range(len(scores)), key=lambda y, k=k: scores[y] + k * losses[y]) for k in (k, 0))
    other, scale = (of_scores, SIGNS[mode] / epsilon) if mode in SIGNS else (truth, 1.0)
    gradient = [scale * ((y == direct) - (y == other)) for y in range(len(scores))]
    value = losses[of_scores] if mode in SIGNS else scores[direct] + k * losses[direct] - scores[truth]
    return OfTable(value, gradient)


def interleavings(positives: Sequence[int], negatives: Sequence[int]) -> Iterator[Ranking]:
    """Yield the rankings that keep the order of the positives and that of the negatives."""
    n = len(positives) + len(negatives)
    for places in itertools.combinations(range(n), len(positives)):
        of_positives, of_negatives = iter(positives), iter(negatives)
        yield tuple(next(of_positives if place in places else of_negatives) for place in range(n))


def all_rankings(positives: Sequence[int], negatives: Sequence[int]) -> Iterator[Ranking]:
    """Yield the (P + N)! rankings."""
    return itertools.permutations((*positives, *negatives))


def negatives_above(ranking: Ranking, n_positives: int) -> list[int]:
    """Return c_i, by item."""
    return [sum(item >= n_positives for item in ranking[: ranking.index(i)]) for i in range(n_positives)]


def positives_above(ranking: Ranking, n_positives: int) -> list[int]:
    """Return a_j, by item."""
    return [sum(item < n_positives for item in ranking[: ranking.index(j)]) for j in range(n_positives, len(ranking))]


@functools.cache
def average_precision(ranking: Ranking, n_positives: int) -> Fraction:
    """Return the mean over the positives of the share of positives from the top of the ranking down to each."""
    places = [place for place, item in enumerate(ranking, 1) if item < n_positives]
    return sum((Fraction(number, place) for number, place in enumerate(places, 1)), Fraction(0)) / n_positives


def average_precision_of_scores(scores: Sequence[Any], target: Sequence[int]) -> Fraction:
    """Return the mean over the positives of the share of positives among the items that score at least as much.

    So it is defined in scikit-learn and TorchMetrics. It is the AP of the ranking where no positive has the score of
    another item, but with ties it need not be that of any order of them: it exceeds all when positives tie below a
    negative.
    """
    shares = []
    for threshold in (score for score, label in zip(scores, target, strict=True) if label):
        labels = [label for score, label in zip(scores, target, strict=True) if score >= threshold]
        shares.append(Fraction(sum(map(bool, labels)), len(labels)))
    return sum(shares, Fraction(0)) / len(shares)


def score_of_ranking(ranking: Ranking, s_p: npt.ArrayLike, s_n: npt.ArrayLike) -> Any:
    """Return F, pair by pair."""
    p, n = _numbers(s_p), _numbers(s_n)
    place = {item: k for k, item in enumerate(ranking)}
    total = 0
    for i, j in itertools.product(range(len(p)), range(len(n))):
        y = 1 if place[i] < place[len(p) + j] else -1
        total = total + y * (p[i] - n[j])
    return total / (len(p) * len(n))


@functools.cache
def derivative_of_score(ranking: Ranking, n_positives: int) -> list[Fraction]:
    """Return ∂F/∂s of a fixed ranking, by item."""
    P, N = n_positives, len(ranking) - n_positives
    of_positives = [Fraction(N - 2 * c, P * N) for c in negatives_above(ranking, P)]
    return of_positives + [Fraction(P - 2 * a, P * N) for a in positives_above(ranking, P)]


def weight_of_loss(epsilon: Any, mode: str) -> Any:
    """Return k of the inference argmax F + k Δ."""
    return {'positive': epsilon, 'negative': -epsilon, 'hinge': 1, 'perceptron': 0}[mode]


def objective(ranking: Ranking, s_p: npt.ArrayLike, s_n: npt.ArrayLike, k: Any) -> Any:
    """Return F + k Δ."""
    return score_of_ranking(ranking, s_p, s_n) + k * (1 - average_precision(ranking, len(_numbers(s_p))))


def perfect_ranking(s_p: npt.ArrayLike, s_n: npt.ArrayLike) -> Ranking:
    """Return y_GT, with the items of a label in descending order."""
    positives, negatives = _descending(s_p, s_n)
    return tuple(positives + negatives)


def loss_augmented_rankings(s_p: npt.ArrayLike, s_n: npt.ArrayLike, epsilon: Any, mode: str) -> Optima:
    """Return argmax F + k Δ over the interleavings, one ranking per set of positions of the positives.

    Items of the same label and score are in the order in which they are given.
    """
    k = weight_of_loss(epsilon, mode)
    values = {y: objective(y, s_p, s_n, k) for y in interleavings(*_descending(s_p, s_n))}
    highest = max(values.values())
    return Optima([y for y, value in values.items() if value >= highest - TOLERANCE], highest)


def surrogate(s_p: npt.ArrayLike, s_n: npt.ArrayLike, epsilon: Any, mode: str) -> Any:
    """Return the loss L of the table above."""
    augmented = loss_augmented_rankings(s_p, s_n, epsilon, mode).value
    if mode in SIGNS:
        predicted = loss_augmented_rankings(s_p, s_n, epsilon, 'perceptron').value
        return SIGNS[mode] * (augmented - predicted) / epsilon
    return augmented - score_of_ranking(perfect_ranking(s_p, s_n), s_p, s_n)


def direct_gradient(s_p: npt.ArrayLike, s_n: npt.ArrayLike, epsilon: Any, mode: str) -> list[Any]:
    """Return ∂L/∂s, by item: first those of the positives, then those of the negatives."""
    direct = _derivative_of_maximum(s_p, s_n, epsilon, mode)
    if mode in SIGNS:
        predicted = _derivative_of_maximum(s_p, s_n, epsilon, 'perceptron')
        return [SIGNS[mode] * (a - b) / epsilon for a, b in zip(direct, predicted, strict=True)]
    # All positives, and all negatives, have the same derivative in the perfect ranking.
    perfect = derivative_of_score(perfect_ranking(s_p, s_n), len(_numbers(s_p)))
    return [a - b for a, b in zip(direct, perfect, strict=True)]


def dynamic_programme(s_p: npt.ArrayLike, s_n: npt.ArrayLike, epsilon: Any, sign: int) -> Optimum:
    """Return argmax F + sign ε Δ, in O(PN): figure 2 of the paper, cell by cell.

    `h[i][j]` is the greatest value, without the constant sign ε of Δ, of the ranking of the first i positives and j
    negatives, which ends with a positive or with a negative. B and G are what F gains from the one and the other. The
    paper leaves the edges to the recursion: h(i, 0) = -sign ε i/P and h(0, j) = 0.
    """
    positives, negatives = _descending(s_p, s_n)
    p, n = sorted(_numbers(s_p), reverse=True), sorted(_numbers(s_n), reverse=True)
    P, N = len(p), len(n)
    B, G, h = ([[0] * (N + 1) for _ in range(P + 1)] for _ in range(3))
    ends_with_positive = [[False] * (N + 1) for _ in range(P + 1)]
    for i in range(1, P + 1):
        for j in range(1, N + 1):
            share = (p[i - 1] - n[j - 1]) / (P * N)
            B[i][j] = B[i][j - 1] - share
            G[i][j] = G[i - 1][j] + share
    for i in range(1, P + 1):
        h[i][0] = h[i - 1][0] - sign * epsilon / P
        ends_with_positive[i][0] = True
        for j in range(1, N + 1):
            with_positive = h[i - 1][j] - sign * epsilon * i / (P * (i + j)) + B[i][j]
            with_negative = h[i][j - 1] + G[i][j]
            ends_with_positive[i][j] = with_positive >= with_negative
            h[i][j] = max(with_positive, with_negative)
    ranking, i, j = [], P, N
    while i + j > 0:
        if ends_with_positive[i][j]:
            i -= 1
            ranking.append(positives[i])
        else:
            j -= 1
            ranking.append(negatives[j])
    return Optimum(tuple(reversed(ranking)), h[P][N] + sign * epsilon)


def best_slots(s_p: npt.ArrayLike, s_n: npt.ArrayLike, epsilon: Any, sign: int) -> list[int]:
    """Return for each negative, in descending order, the best a_j for it alone, and of several the smallest."""
    p, n = sorted(_numbers(s_p), reverse=True), sorted(_numbers(s_n), reverse=True)
    P, N = len(p), len(n)
    slots = []
    for j in range(1, N + 1):
        gain, highest, slot = 0, 0, P
        for i in range(P, 0, -1):
            margin = 2 * (n[j - 1] - p[i - 1]) / (P * N)
            gain = gain + margin + sign * epsilon * i / (P * (i + j - 1) * (i + j))
            if gain >= highest:
                highest, slot = gain, i - 1
        slots.append(slot)
    return slots


def ranking_of_slots(s_p: npt.ArrayLike, s_n: npt.ArrayLike, slots: Sequence[int]) -> Ranking:
    """Return the ranking with the given numbers of positives above the negatives, which get them in ascending order."""
    positives, negatives = _descending(s_p, s_n)
    slots, ranking = sorted(slots), []
    for i in range(len(positives) + 1):
        ranking += [negative for negative, slot in zip(negatives, slots, strict=True) if slot == i]
        ranking += positives[i : i + 1]
    return tuple(ranking)


def per_slot(s_p: npt.ArrayLike, s_n: npt.ArrayLike, epsilon: Any) -> Optimum:
    """Return argmax F + ε Δ from the best slot of each negative."""
    ranking = ranking_of_slots(s_p, s_n, best_slots(s_p, s_n, epsilon, 1))
    return Optimum(ranking, objective(ranking, s_p, s_n, epsilon))


def direct_zero_one(s: npt.ArrayLike, y: Sequence[int], epsilon: Any, mode: str) -> ZeroOne:
    """Return the 0-1 loss of the labels y = ±1, from all 2^n labellings."""
    scores = _numbers(s)
    direct, augmented = _best_labels(scores, y, weight_of_loss(epsilon, mode))
    if mode in SIGNS:
        other, reference, scale = *_best_labels(scores, y, 0), SIGNS[mode] / epsilon
    else:
        other, reference, scale = y, _score_of_labels(scores, y), 1
    return ZeroOne(
        loss=Fraction(sum((1 if score > 0 else -1) != label for score, label in zip(scores, y, strict=True)), len(y)),
        surrogate=scale * (augmented - reference),
        gradient=[scale * (Fraction(a) - b) / len(y) for a, b in zip(direct, other, strict=True)],
    )


def _best_labels(scores: list[Any], y: Sequence[int], k: Any) -> tuple[list[Fraction], Any]:
    """Return the midpoint of argmax F + k Δ, and the value."""
    values = {
        labels: _score_of_labels(scores, labels)
        + k * Fraction(sum(a != b for a, b in zip(labels, y, strict=True)), len(y))
        for labels in itertools.product((-1, 1), repeat=len(y))
    }
    highest = max(values.values())
    optima = [labels for labels, value in values.items() if value >= highest - TOLERANCE]
    return [Fraction(min(labels) + max(labels), 2) for labels in zip(*optima, strict=True)], highest


def _score_of_labels(scores: list[Any], labels: Sequence[int]) -> Any:
    return sum(label * score for label, score in zip(labels, scores, strict=True)) / len(scores)


def _derivative_of_maximum(s_p: npt.ArrayLike, s_n: npt.ArrayLike, epsilon: Any, mode: str) -> list[Fraction]:
    """Return the midpoint of ∂F at the extreme optima, shared equally by equal items."""
    scores, P = _numbers(s_p) + _numbers(s_n), len(_numbers(s_p))
    optima = loss_augmented_rankings(s_p, s_n, epsilon, mode).rankings
    derivatives = [derivative_of_score(ranking, P) for ranking in optima]
    # The smallest numbers of all items belong to one ranking, and the largest to another one.
    midpoint = [(min(values) + max(values)) / 2 for values in zip(*derivatives, strict=True)]
    equal = {}
    for item, value in enumerate(midpoint):
        equal.setdefault((item < P, scores[item]), []).append(value)
    means = {key: sum(values) / len(values) for key, values in equal.items()}
    return [means[item < P, scores[item]] for item in range(len(scores))]


def _descending(s_p: npt.ArrayLike, s_n: npt.ArrayLike) -> tuple[list[int], list[int]]:
    """Return the positive and the negative items by their scores, equal ones in the given order."""
    p, n = _numbers(s_p), _numbers(s_n)
    positives = sorted(range(len(p)), key=lambda i: -p[i])
    return positives, [len(p) + j for j in sorted(range(len(n)), key=lambda j: -n[j])]


def _numbers(s: npt.ArrayLike) -> list[Any]:
    """Return scores as numbers of Python where there are such."""
    return np.asarray(s).tolist()

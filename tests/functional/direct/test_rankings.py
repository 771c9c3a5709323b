"""Rankings against all interleavings, and the two ways to find them against the dynamic programme cell by cell."""

import sys
from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from ranking_scenes import (
    DIRECTIONS,
    descending,
    different_problems,
    each_direction,
    objective,
    padded,
    random_cases,
    scores,
)
from reference import direct_loss as reference

from mmseg_nondecomp.functional import loss_augmented_ranking
from mmseg_nondecomp.functional.direct._rankings import best_rankings, rankings_by_slots, rankings_by_table

EPSILONS = (0.0, 0.01, 0.1, 1.0, 3.0, 10.0, 100.0)


@each_direction
@pytest.mark.parametrize('tied', [False, True])
def test_is_the_best_of_all_interleavings(direction, tied):
    rng, sign = np.random.default_rng(0), DIRECTIONS[direction]
    for n_pos in range(1, 5):
        for n_neg in range(1, 5):
            for epsilon in EPSILONS:
                pos, neg = scores(rng, n_pos, n_neg, tied)
                counts = loss_augmented_ranking(torch.tensor(pos), torch.tensor(neg), epsilon, direction).tolist()
                assert counts == sorted(counts)
                best = reference.dynamic_programme(pos, neg, epsilon, sign).value
                if epsilon > 0:
                    best = reference.loss_augmented_rankings(pos, neg, epsilon, direction).value
                assert objective(pos, neg, counts, epsilon, sign) == pytest.approx(float(best), abs=1e-12)


@each_direction
def test_a_weight_leads_in_one_direction_from_the_order_of_the_scores_to_the_worst_or_the_best_ranking(direction):
    generator = torch.Generator().manual_seed(0)
    pos, neg = torch.randn(20, generator=generator), torch.randn(50, generator=generator)
    expected = (neg > pos.sort(descending=True).values.unsqueeze(1)).sum(1)
    for epsilon in (0.0, 1e-12):
        assert torch.equal(loss_augmented_ranking(pos, neg, epsilon, direction), expected)
    assert loss_augmented_ranking(pos, neg, 1e9, direction).eq(50 if direction == 'positive' else 0).all()
    rng = np.random.default_rng(2)
    for _case in range(50):
        pos, neg = (torch.tensor(x) for x in scores(rng, 7, 19))
        counts = loss_augmented_ranking(pos, neg, 1.0, direction)
        change = counts - loss_augmented_ranking(pos, neg, 0.0)
        assert (DIRECTIONS[direction] * change >= 0).all()
        assert torch.equal(loss_augmented_ranking(pos.flip(0), neg.roll(5), 1.0, direction), counts)


def test_a_table_that_is_too_large_is_made_coarse_with_a_warning(monkeypatch):
    pos, neg = torch.randn(20).double() - 1, torch.randn(300).double()
    exact = loss_augmented_ranking(pos, neg, 1.0, 'negative')
    n_cells = (neg > pos.unsqueeze(1)).sum().item() + 20
    monkeypatch.setattr(sys.modules[best_rankings.__module__], 'MAX_CELLS', -(-n_cells // 8))
    with pytest.warns(UserWarning, match='blocks of 8'):
        coarse = loss_augmented_ranking(pos, neg, 1.0, 'negative')
    assert (coarse % 8 == 0).all()
    values = [objective(pos.numpy(), neg.numpy(), c.tolist(), 1.0, -1) for c in (coarse, exact)]
    assert values[0] < values[1]
    assert values[0] == pytest.approx(values[1], abs=0.05)


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        (dict(epsilon=-1.0), ValueError, '`epsilon`'),
        (dict(direction='up'), ValueError, "`direction`.*'up'"),
        (dict(pos=torch.ones(2, 2)), ValueError, '`pos`'),
        (dict(neg=torch.ones(2).long()), TypeError, '`neg`'),
    ],
)
def test_bad_input(arguments, error, message):
    with pytest.raises(error, match=message):
        loss_augmented_ranking(**{**dict(pos=torch.ones(2), neg=torch.ones(3), epsilon=1.0), **arguments})


def by_slots(pos, neg, weight):
    return rankings_by_slots(*padded((pos, neg)), weight)[0].tolist()


def by_table(pos, neg, weight, highest=None, stride=1):
    highest = highest or [len(neg)] * len(pos)
    return rankings_by_table(*padded((pos, neg)), weight, highest, stride)[0].tolist()


def test_both_ways_are_the_dynamic_programme():
    for pos, neg, epsilon, sign, counts in random_cases():
        direction = 'positive' if sign > 0 else 'negative'
        assert loss_augmented_ranking(pos, neg, epsilon, direction).tolist() == counts
        assert by_table(pos, neg, sign * epsilon) == counts
        if sign > 0:
            assert by_slots(pos, neg, epsilon) == counts


WAYS = {
    'slots': (rankings_by_slots, 0.5),
    'table, positive': (lambda *args: rankings_by_table(*args, [30] * 8), 0.5),
    'table, negative': (lambda *args: rankings_by_table(*args, [30] * 8), -0.5),
    'best, positive': (best_rankings, 0.5),
    'best, negative': (best_rankings, -0.5),
}


@pytest.mark.parametrize('way', WAYS)
def test_problems_of_different_sizes_are_independent(way):
    problems, (rank, weight) = different_problems(), WAYS[way]
    direction = 'positive' if weight > 0 else 'negative'
    for counts, (pos, neg) in zip(rank(*padded(*problems), weight), problems, strict=True):
        assert torch.equal(counts[: len(pos)], loss_augmented_ranking(pos, neg, 0.5, direction))


def test_a_negative_passes_a_positive_for_the_precision_that_it_costs_and_not_for_nothing():
    r"""The first negative gains :math:`\epsilon |N| (1 - 1 / 2)` over the only positive: up to that lead it passes."""
    for lead, passes in ((0.4, 1), (0.6, 0)):
        pos, neg = torch.tensor([lead / 2]).double(), torch.tensor([0.0]).double()
        assert by_slots(pos, neg, 2.0) == [1]
        assert by_slots(pos, neg, 1.0) == [passes]
    for n_neg in (1, 2, 7, 8):
        pos, neg = torch.zeros(3).double(), torch.zeros(n_neg).double()
        assert by_slots(pos, neg, 0.0) == by_table(pos, neg, 0.0) == by_table(pos, neg, -1e-9) == [0, 0, 0]


@each_direction
def test_counts_stay_below_their_limits(direction):
    """And are the best of those that do."""
    rng, sign = np.random.default_rng(0), DIRECTIONS[direction]
    for _ in range(20):
        pos, neg = descending(*scores(rng, 3, 6))
        highest = sorted(rng.integers(0, 7, 3).tolist())
        allowed = [c for c in combinations_with_replacement(range(7), 3) if all(np.array(c) <= highest)]
        assert by_table(pos, neg, 3.0 * sign, highest) == list(best(pos, neg, allowed, 3.0, sign))


@each_direction
@pytest.mark.parametrize('stride', [2, 3, 5])
def test_in_blocks_it_is_the_best_of_the_rankings_of_blocks(direction, stride):
    rng, sign = np.random.default_rng(0), DIRECTIONS[direction]
    for n_neg in (4, 5, 6, 9):
        pos, neg = descending(*scores(rng, 3, n_neg))
        allowed = list(combinations_with_replacement(range(0, n_neg + 1, stride), 3))
        assert by_table(pos, neg, sign, stride=stride) == list(best(pos, neg, allowed, 1.0, sign))


def best(pos, neg, allowed, epsilon, sign):
    return max(allowed, key=lambda counts: objective(pos.tolist(), neg.tolist(), counts, epsilon, sign))


def test_the_way_back_finds_places_that_are_far_apart():
    """In thousands of negatives, of which none, some or all are above a positive."""
    pos, neg = torch.tensor([9.0, 0.90005, -0.99905, -9.0]).double(), torch.linspace(1, -1, 20_001).double()
    expected = [0, 1000, 19_991, 20_001]
    assert by_table(pos, neg, 1e-12) == by_table(pos, neg, -1e-12) == expected
    assert by_slots(pos, neg, 1.0) == by_table(pos, neg, 1.0) != expected

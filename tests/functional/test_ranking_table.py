"""Rankings row by row, against the dynamic programme cell by cell."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from ranking_scenes import (
    DIRECTIONS,
    descending,
    different_queries,
    each_direction,
    objective,
    padded,
    random_cases,
    scores,
)

from mmseg_nondecomp.functional import ranking_slots
from mmseg_nondecomp.functional.ranking_table import negatives_above


def ranked(pos, neg, epsilon, highest=None, stride=1):
    highest = highest or [len(neg)] * len(pos)
    return negatives_above(*padded((pos, neg)), epsilon, highest, stride)[0].tolist()


def test_row_by_row_is_cell_by_cell():
    for case in random_cases():
        assert ranked(case.pos, case.neg, case.sign * case.epsilon) == case.counts


@each_direction
def test_queries_of_different_sizes_do_not_see_each_other(direction):
    queries, epsilon = different_queries(), 0.5 * DIRECTIONS[direction]
    found = negatives_above(*padded(*queries), epsilon, [30] * 8)
    for counts, (pos, neg) in zip(found, queries, strict=True):
        assert counts[: len(pos)].tolist() == (ranked(pos, neg, epsilon) if len(pos) > 0 else [])


@each_direction
def test_counts_stay_below_their_limits(direction):
    """And are the best of those that do."""
    rng, sign = np.random.default_rng(0), DIRECTIONS[direction]
    for _ in range(20):
        pos, neg = descending(*scores(rng, 3, 6))
        highest = sorted(rng.integers(0, 7, 3).tolist())
        allowed = [c for c in combinations_with_replacement(range(7), 3) if all(np.array(c) <= highest)]
        assert ranked(pos, neg, 3.0 * sign, highest) == list(best(pos, neg, allowed, 3.0, sign))


@each_direction
@pytest.mark.parametrize('stride', [2, 3, 5])
def test_in_blocks_it_is_the_best_of_the_rankings_of_blocks(direction, stride):
    rng, sign = np.random.default_rng(0), DIRECTIONS[direction]
    for n_neg in (4, 5, 6, 9):
        pos, neg = descending(*scores(rng, 3, n_neg))
        allowed = list(combinations_with_replacement(range(0, n_neg + 1, stride), 3))
        assert ranked(pos, neg, sign, stride=stride) == list(best(pos, neg, allowed, 1.0, sign))


def best(pos, neg, allowed, epsilon, sign):
    return max(allowed, key=lambda counts: objective(pos.tolist(), neg.tolist(), counts, epsilon, sign))


@pytest.mark.parametrize('epsilon', [0.0, -1e-9])
def test_of_equally_good_rankings_it_is_the_one_with_the_highest_positives(epsilon):
    assert ranked(torch.zeros(3).double(), torch.zeros(8).double(), epsilon) == [0, 0, 0]


def test_the_way_back_finds_places_that_are_far_apart():
    """In thousands of negatives, of which none, some or all are above a positive."""
    pos, neg = torch.tensor([9.0, 0.90005, -0.99905, -9.0]).double(), torch.linspace(1, -1, 20_001).double()
    expected = [0, 1000, 19_991, 20_001]
    assert ranked(pos, neg, 1e-12) == ranked(pos, neg, -1e-12) == expected
    found = ranked(pos, neg, 1.0)
    assert found != expected
    assert found == ranking_slots.negatives_above(*padded((pos, neg)), 1.0)[0].tolist()

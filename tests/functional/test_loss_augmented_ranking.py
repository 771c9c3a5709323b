"""Rankings against all interleavings."""

import math
import sys

import numpy as np
import pytest
import torch
from ranking_scenes import DIRECTIONS, different_queries, each_direction, objective, padded, random_cases, scores
from reference import direct_loss as reference

from mmseg_nondecomp.functional import loss_augmented_ranking
from mmseg_nondecomp.functional.loss_augmented_ranking import best_rankings

EPSILONS = (0.0, 0.01, 0.1, 1.0, 3.0, 10.0, 100.0)


@each_direction
@pytest.mark.parametrize('tied', [False, True])
def test_is_the_best_of_all_interleavings(direction, tied):
    rng, sign = np.random.default_rng(0), DIRECTIONS[direction]
    for n_pos in range(1, 5):
        for n_neg in range(1, 5):
            for epsilon in EPSILONS:
                pos, neg = scores(rng, n_pos, n_neg, tied)
                found = loss_augmented_ranking(torch.tensor(pos), torch.tensor(neg), epsilon, direction).tolist()
                assert found == sorted(found)
                best = reference.dynamic_programme(pos, neg, epsilon, sign).value
                if epsilon > 0:
                    best = reference.loss_augmented_rankings(pos, neg, epsilon, direction).value
                assert objective(pos, neg, found, epsilon, sign) == pytest.approx(float(best), abs=1e-12)


def test_is_that_of_the_dynamic_programme():
    for case in random_cases():
        direction = 'positive' if case.sign > 0 else 'negative'
        assert loss_augmented_ranking(case.pos, case.neg, case.epsilon, direction).tolist() == case.counts


@each_direction
def test_a_weight_of_0_gives_the_order_of_the_scores(direction):
    generator = torch.Generator().manual_seed(0)
    pos, neg = torch.randn(20, generator=generator), torch.randn(50, generator=generator)
    ordered = pos.sort(descending=True).values
    expected = (neg > ordered.unsqueeze(1)).sum(1)
    for epsilon in (0.0, 1e-12):
        assert torch.equal(loss_augmented_ranking(pos, neg, epsilon, direction), expected)


@pytest.mark.parametrize(('direction', 'expected'), [('positive', 50), ('negative', 0)])
def test_a_large_weight_gives_the_worst_or_the_best_ranking(direction, expected):
    pos, neg = torch.linspace(-1, 1, 20), torch.linspace(-1, 1, 50)
    assert loss_augmented_ranking(pos, neg, 1e9, direction).eq(expected).all()


@each_direction
def test_the_order_of_the_input_does_not_matter(direction):
    pos, neg = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([0.1, 1.0, -3.0, 0.6])
    expected = loss_augmented_ranking(pos, neg, 1.0, direction)
    assert torch.equal(loss_augmented_ranking(pos.flip(0), neg[[2, 0, 3, 1]], 1.0, direction), expected)


@each_direction
def test_the_ranking_differs_from_the_scores_in_one_direction(direction):
    rng = np.random.default_rng(2)
    for _case in range(50):
        pos, neg = (torch.tensor(x) for x in scores(rng, 7, 19))
        by_scores = loss_augmented_ranking(pos, neg, 0.0)
        change = loss_augmented_ranking(pos, neg, 1.0, direction) - by_scores
        assert (DIRECTIONS[direction] * change >= 0).all()


@each_direction
def test_queries_of_different_sizes_at_once(direction):
    queries = different_queries()
    found = best_rankings(*padded(*queries), 0.5, direction)
    for counts, (pos, neg) in zip(found, queries, strict=True):
        assert torch.equal(counts[: len(pos)], loss_augmented_ranking(pos, neg, 0.5, direction))


def test_a_table_that_is_too_large_is_made_coarse_and_says_so(monkeypatch):
    pos, neg = torch.randn(20).double() - 1, torch.randn(300).double()
    exact = loss_augmented_ranking(pos, neg, 1.0, 'negative')
    n_cells = (neg > pos.unsqueeze(1)).sum().item() + 20
    monkeypatch.setattr(sys.modules[best_rankings.__module__], 'MAX_CELLS', -(-n_cells // 8))
    with pytest.warns(UserWarning, match='blocks of 8'):
        found = loss_augmented_ranking(pos, neg, 1.0, 'negative')
    assert (found % 8 == 0).all()
    values = [objective(pos.numpy(), neg.numpy(), c.tolist(), 1.0, -1) for c in (found, exact)]
    assert values[0] < values[1]
    assert values[0] == pytest.approx(values[1], abs=0.05)


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        (dict(epsilon=-1.0), ValueError, '`epsilon`'),
        (dict(epsilon=math.nan), ValueError, '`epsilon`'),
        (dict(epsilon='1'), TypeError, '`epsilon`'),
        (dict(direction='up'), ValueError, "`direction`.*'up'"),
        (dict(pos=torch.ones(2, 2)), ValueError, '`pos`'),
        (dict(neg=torch.ones(2).long()), TypeError, '`neg`'),
    ],
)
def test_bad_input(arguments, error, message):
    with pytest.raises(error, match=message):
        loss_augmented_ranking(**{**dict(pos=torch.ones(2), neg=torch.ones(3), epsilon=1.0), **arguments})

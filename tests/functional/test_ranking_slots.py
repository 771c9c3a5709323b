"""Rankings negative by negative, against the dynamic programme."""

import pytest
import torch
from ranking_scenes import different_queries, padded, random_cases

from mmseg_nondecomp.functional.ranking_slots import negatives_above


def ranked(pos, neg, epsilon):
    return negatives_above(*padded((pos, neg)), epsilon)[0].tolist()


def test_negative_by_negative_is_cell_by_cell():
    for case in random_cases():
        if case.sign > 0:
            assert ranked(case.pos, case.neg, case.epsilon) == case.counts


def test_queries_of_different_sizes_do_not_see_each_other():
    queries = different_queries()
    for counts, (pos, neg) in zip(negatives_above(*padded(*queries), 0.5), queries, strict=True):
        assert counts[: len(pos)].tolist() == ranked(pos, neg, 0.5)


@pytest.mark.parametrize('n_neg', [1, 2, 7, 8])
def test_of_equally_good_slots_a_negative_takes_the_lowest(n_neg):
    pos, neg = torch.zeros(3).double(), torch.zeros(n_neg).double()
    assert ranked(pos, neg, 0.0) == [0, 0, 0]


def test_a_negative_passes_a_positive_for_the_precision_that_it_costs():
    r"""The first negative gains :math:`\epsilon |N| (1 - 1 / 2)` over the only positive: up to that lead it passes."""
    for lead, passes in ((0.4, 1), (0.6, 0)):
        pos, neg = torch.tensor([lead / 2]).double(), torch.tensor([0.0]).double()
        assert ranked(pos, neg, 2.0) == [1]
        assert ranked(pos, neg, 1.0) == [passes]

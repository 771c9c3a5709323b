"""Metrics in four processes, one of which has seen nothing; this file is also the program that they run."""

import pytest
import torch
from metric_tester import assert_same
from metrics.test_contract import CASES
from processes import find_as_a_process, found_by_ranks

TYPES = (torch.float32, torch.float64)
IDLE = 2


def shards_of(case, dtype):
    """Return the batches of each process, of different numbers and sizes."""
    first, second, third, fourth = case.batches(dtype)
    return [[first], [(second[0][:1], second[1][:1]), third], [], [fourth]]


def find(rank):
    return {(str(case), dtype): of_a_process(case, dtype, rank) for case in CASES for dtype in TYPES}


def of_a_process(case, dtype, rank):
    batches = shards_of(case, dtype)[rank]
    metric = case.seen(batches)
    found = [metric.compute()]
    metric.reset()
    for batch in reversed(batches):
        metric.update(*batch)
    return [*found, metric.compute()]


@pytest.fixture(scope='module')
def found(tmp_path_factory):
    return found_by_ranks(__file__, tmp_path_factory.mktemp('metrics'), 4)


@pytest.mark.filterwarnings('ignore:The ``compute`` method')
@pytest.mark.parametrize('dtype', TYPES)
@pytest.mark.parametrize('case', CASES, ids=str)
def test_four_processes_find_what_one_finds(found, case, dtype):
    shards = shards_of(case, dtype)
    assert shards[IDLE] == []
    expected = case.seen([batch for shard in shards for batch in shard]).compute()
    for of_rank in found:
        for value in of_rank[str(case), dtype]:
            assert_same(value, expected)


if __name__ == '__main__':
    find_as_a_process(find)

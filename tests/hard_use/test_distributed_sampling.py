"""Samplers in 1, 2 and 4 processes; this file is also the program that they run."""

import itertools

import pytest
import torch
from numbered import Numbered
from processes import find_as_a_process, found_by_ranks
from torch import distributed

from mmseg_nondecomp import EquiBatchSampler, IoUAdaptiveSampler

DATA = Numbered([0], [0, 1], [0], [], [0, 2], [1], [0])
"""Seven images, which neither two nor four processes share evenly."""
SAMPLERS = {'equibatch': EquiBatchSampler, 'by IoU': IoUAdaptiveSampler}
N_DRAWS, TOLD, IOU = 80, 16, [0.9, 0.1, 0.5]
each_sampler = pytest.mark.parametrize('name', SAMPLERS)


def first(sampler, n=None):
    """Return image, class and place of that many draws, or of a pass."""
    return [(int(i), getattr(i, 'cls', None), getattr(i, 'place', None)) for i in itertools.islice(sampler, n)]


def told(sampler, n_processes):
    """Return draws before and after an IoU is set, after the same number of draws over all processes."""
    before = first(sampler, TOLD // n_processes)
    sampler.set_iou(IOU)
    return before + first(sampler, (N_DRAWS - TOLD) // n_processes)


def passes(sampler):
    found = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        found.append(first(sampler))
    return found


def find(rank):
    n, found = distributed.get_world_size(), {}
    for name, cls in SAMPLERS.items():
        of_any_seed = cls(DATA)
        found[name] = {
            'stream': first(cls(DATA, seed=3), N_DRAWS // n),
            'seed': of_any_seed.seed,
            'stream of that seed': first(of_any_seed, N_DRAWS // n),
            'passes': passes(cls(DATA, seed=3, infinite=False)),
            'batches': [len(b) for b in cls(DATA, seed=3, infinite=False, batch_size=2)],
            'whole batches': [len(b) for b in cls(DATA, seed=3, infinite=False, batch_size=2, drop_last=True)],
        }
    sampler = IoUAdaptiveSampler(DATA, seed=3)
    found['told'] = told(sampler, n)
    found['state'] = sampler.state_dict()
    return found


@pytest.fixture(scope='module', params=[1, 2, 4])
def found(request, tmp_path_factory):
    return found_by_ranks(__file__, tmp_path_factory.mktemp('sampling'), request.param)


def in_turns(shards):
    return [draw for draws in zip(*shards, strict=True) for draw in draws]


@each_sampler
def test_processes_share_one_stream_in_passes_and_batches_of_equal_lengths(found, name):
    assert in_turns(of_rank[name]['stream'] for of_rank in found) == first(SAMPLERS[name](DATA, seed=3), N_DRAWS)
    [seed] = {of_rank[name]['seed'] for of_rank in found}
    streams = (of_rank[name]['stream of that seed'] for of_rank in found)
    assert in_turns(streams) == first(SAMPLERS[name](DATA, seed=seed), N_DRAWS)
    n = len(found)
    for of_rank in found:
        assert [len(each) for each in of_rank[name]['passes']] == [-(-7 // n)] * 3
    streams = (itertools.chain(*of_rank[name]['passes']) for of_rank in found)
    assert in_turns(streams) == first(SAMPLERS[name](DATA, seed=3), 3 * n * -(-7 // n))
    # Or one process waits for what another has no batch for.
    sizes = {1: [2, 2, 2, 1], 2: [2, 2], 4: [2]}[len(found)]
    for of_rank in found:
        assert of_rank[name]['batches'] == sizes
        assert of_rank[name]['whole batches'] == [size for size in sizes if size == 2]


def test_an_iou_set_on_all_processes_keeps_one_stream_and_any_number_resumes_from_it(found):
    assert in_turns(of_rank['told'] for of_rank in found) == told(IoUAdaptiveSampler(DATA, seed=3), 1)
    # By the IoU that was told last; where in the stream it stands depends on how many there are.
    for of_rank in found:
        sampler = IoUAdaptiveSampler(DATA, seed=3)
        assert len(set(sampler.class_probabilities())) == 1
        sampler.load_state_dict(of_rank['state'])
        sampler.skip(TOLD)
        weights = 1 / torch.tensor(IOU, dtype=torch.float64)
        assert sampler.class_probabilities() == pytest.approx(weights / weights.sum())


if __name__ == '__main__':
    find_as_a_process(find)

import itertools

import numpy as np
import pytest
from numbered import Numbered
from torch import distributed
from torch.utils.data import DataLoader, RandomSampler

from mmseg_nondecomp import EquiBatchSampler, IoUAdaptiveSampler
from mmseg_nondecomp.samplers.class_driven_sampler import Permutations

DATA = Numbered([0], [0, 1], [0], [], [0, 2], [1], [0])
SAMPLERS = pytest.mark.parametrize('cls', [EquiBatchSampler, IoUAdaptiveSampler])


def first(sampler, n):
    return [(int(index), getattr(index, 'cls', None)) for index in itertools.islice(sampler, n)]


def of_rank(cls, rank, world_size, monkeypatch, **kwargs):
    monkeypatch.setattr(distributed, 'is_initialized', lambda: True)
    monkeypatch.setattr(distributed, 'get_rank', lambda: rank)
    monkeypatch.setattr(distributed, 'get_world_size', lambda: world_size)
    return cls(DATA, seed=3, **kwargs)


@pytest.fixture
def stock():
    return pytest.importorskip('mmengine.dataset')


class TestPermutations:
    def test_each_turn_holds_everything_once(self):
        numbers = Permutations((1, 2), 7)
        turns = np.array([numbers[i] for i in range(700)]).reshape(100, 7)
        assert (np.sort(turns) == np.arange(7)).all()
        assert len({tuple(turn) for turn in turns}) > 90

    def test_seed_and_place_decide(self):
        forward = [Permutations((1, 2), 5)[i] for i in range(50)]
        numbers = Permutations((1, 2), 5)
        assert [numbers[i] for i in reversed(range(50))] == forward[::-1]
        assert [Permutations((2, 2), 5)[i] for i in range(50)] != forward


@SAMPLERS
class TestStream:
    def test_seed_decides(self, cls):
        assert first(cls(DATA, seed=1), 50) == first(cls(DATA, seed=1), 50)
        assert first(cls(DATA, seed=1), 50) != first(cls(DATA, seed=2), 50)
        assert cls(DATA).seed != cls(DATA).seed

    def test_sampled_images_hold_the_class(self, cls):
        sampled = [(image, c) for image, c in first(cls(DATA, seed=1), 300) if c is not None]
        assert len(sampled) > 100
        assert all(c in DATA[image] for image, c in sampled)

    def test_goes_on_where_it_stopped(self, cls):
        sampler = cls(DATA, seed=1)
        assert first(sampler, 20) + first(sampler, 30) == first(cls(DATA, seed=1), 50)

    @pytest.mark.parametrize('world_size', [2, 3])
    def test_processes_share_one_stream(self, cls, world_size, monkeypatch):
        alone = first(cls(DATA, seed=3), 60)
        ranks = [first(of_rank(cls, r, world_size, monkeypatch), 60 // world_size) for r in range(world_size)]
        assert [index for group in zip(*ranks, strict=True) for index in group] == alone

    def test_skip(self, cls, monkeypatch):
        stream = first(of_rank(cls, 1, 2, monkeypatch), 60)
        sampler = of_rank(cls, 1, 2, monkeypatch)
        first(sampler, 10)
        sampler.skip(40)
        assert first(sampler, 20) == stream[40:]

    def test_epoch_does_not_matter_to_an_endless_stream(self, cls):
        sampler = cls(DATA, seed=1)
        first(sampler, 5)
        sampler.set_epoch(7)
        assert first(sampler, 5) == first(cls(DATA, seed=1), 10)[5:]
        assert len(sampler) == len(DATA)


@SAMPLERS
def test_built_from_a_config_with_shuffle(cls):
    """As MMEngine merges a sampler into that of a base config."""
    settings = dict(type=cls.__name__, shuffle=True)
    samplers = pytest.importorskip('mmengine.registry').DATA_SAMPLERS
    sampler = samplers.build(settings, default_args=dict(dataset=DATA, seed=1))
    assert first(sampler, 20) == first(cls(DATA, seed=1), 20)


@SAMPLERS
class TestPasses:
    def test_pass_is_as_long_as_the_data(self, cls, stock, monkeypatch):
        sampler = cls(DATA, seed=1, infinite=False)
        assert len(list(sampler)) == len(sampler) == len(stock.DefaultSampler(DATA)) == 7
        assert len(cls(DATA, seed=1)) == len(stock.InfiniteSampler(DATA))
        half = of_rank(cls, 1, 2, monkeypatch, infinite=False)
        assert len(list(half)) == len(half) == 4

    @pytest.mark.parametrize('epochs', [(0, 1, 2), (2,), (None, None)], ids=str)
    def test_epochs_follow_each_other_and_any_can_be_gone_to(self, cls, epochs):
        sampler = cls(DATA, seed=1, infinite=False)
        stream = first(cls(DATA, seed=1), 21)
        for place, epoch in enumerate(epochs):
            if epoch is not None:  # else it goes on
                sampler.set_epoch(epoch)
            start = 7 * (place if epoch is None else epoch)
            assert first(sampler, 100) == stream[start : start + 7]


@SAMPLERS
class TestBatches:
    """As MMEngine builds a batch sampler: with the sampler and the batch size of the config."""

    @pytest.mark.parametrize(('own', 'seed'), [(dict(), 3), (dict(seed=4), 4)], ids=['same stream', 'seed of its own'])
    def test_of_a_stock_sampler(self, cls, stock, own, seed):
        batches = cls(sampler=stock.InfiniteSampler(DATA, seed=3), batch_size=4, **own)
        found = [(int(i), getattr(i, 'cls', None)) for batch in itertools.islice(batches, 5) for i in batch]
        assert found == first(cls(DATA, seed=seed), 20)

    @pytest.mark.parametrize(('drop_last', 'sizes'), [(False, [3, 3, 1]), (True, [3, 3])])
    def test_passes(self, cls, drop_last, sizes):
        batches = cls(DATA, batch_size=3, drop_last=drop_last, seed=0, infinite=False)
        assert [len(batch) for batch in batches] == sizes
        assert len(batches) == len(sizes)

    def test_dropped_images_are_not_lost_for_the_next_epoch(self, cls):
        batches = cls(DATA, batch_size=3, drop_last=True, seed=0, infinite=False)
        list(batches)
        batches.sampler.set_epoch(1)
        assert [(int(i), getattr(i, 'cls', None)) for i in next(iter(batches))] == first(cls(DATA, seed=0), 10)[7:]

    def test_in_a_loader(self, cls):
        batches = cls(DATA, batch_size=3, seed=0)
        loader = DataLoader(DATA, batch_sampler=batches, collate_fn=list)
        assert len(next(iter(loader))) == 3
        assert loader.batch_sampler.sampler is batches


@SAMPLERS
@pytest.mark.parametrize(
    ('error', 'message', 'settings'),
    [
        (ValueError, 'hold a class in at least one image', dict(dataset=Numbered([], []))),
        (TypeError, '`dataset` or `sampler`', dict(dataset=None)),
        (TypeError, '`sampler` should have a `dataset`', dict(dataset=None, sampler=RandomSampler(DATA), batch_size=2)),
        (ValueError, '`shuffle` should be True', dict(shuffle=False)),
        *((ValueError, '`seed`', dict(seed=seed)) for seed in (-1, 0.5, 'a')),
        *((ValueError, '`batch_size`', dict(batch_size=size)) for size in (0, -1, 2.5, True)),
    ],
)
def test_mistakes(cls, error, message, settings):
    with pytest.raises(error, match=message):
        cls(**dict(dataset=DATA) | settings)

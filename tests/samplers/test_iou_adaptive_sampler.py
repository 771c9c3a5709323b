import copy
import warnings
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from numbered import Numbered
from scipy import stats
from torch.utils.data import DataLoader

from mmseg_nondecomp import IoUAdaptiveSampler
from mmseg_nondecomp.samplers import iou_adaptive_sampler

DATA = Numbered([0], [0, 1], [0], [], [0, 2], [1], [0])
N = 20_000


def first(sampler, n):
    return [(int(index), getattr(index, 'cls', None)) for index in islice(sampler, n)]


def fits(found, expected):
    """Whether counts are what one expects of them: chi-square at one in a thousand."""
    return stats.chisquare(found, expected).pvalue > 1e-3


def class_counts(sampler, n):
    drawn = Counter(getattr(index, 'cls', None) for index in islice(sampler, n))
    return np.array([drawn[c] for c in (None, 0, 1, 2)])


class TestLaw:
    @pytest.mark.parametrize('iou', [[0.9, 0.5, 0.2], [1.0, 1.0, 0.0], [0.04, 0.06, 0.3]])
    @pytest.mark.parametrize('uniform', [0.0, 0.3])
    def test_classes(self, iou, uniform):
        sampler = IoUAdaptiveSampler(DATA, uniform=uniform, epsilon=0.05, seed=1)
        sampler.set_iou(iou)
        law = 1 / np.maximum(iou, 0.05)
        expected = N * np.array([uniform, *(1 - uniform) * law / law.sum()])
        found = class_counts(sampler, N)
        assert fits(found[expected > 0], expected[expected > 0])
        assert (found[expected == 0] == 0).all()

    def test_images_of_a_class_and_of_the_uniform_part_are_equally_likely(self):
        sampler = IoUAdaptiveSampler(DATA, uniform=0.5, seed=1)
        sampler.set_iou([0.5, 0.5, 0.5])
        stream = list(islice(sampler, 2 * N))
        of_class = Counter(int(index) for index in stream if getattr(index, 'cls', None) == 0)
        uniform = Counter(index for index in stream if type(index) is int)
        for found, images in ((of_class, [0, 1, 2, 4, 6]), (uniform, list(range(7)))):
            assert sorted(found) == images
            assert fits(list(found.values()), [sum(found.values()) / len(images)] * len(images))

    def test_uniform_is_uniform(self):
        sampler = IoUAdaptiveSampler(DATA, uniform=1.0, seed=1)
        stream = list(islice(sampler, 700))
        assert all(type(index) is int for index in stream)
        for start in range(0, 700, 7):
            assert sorted(stream[start : start + 7]) == list(range(7))

    def test_probabilities_before_an_iou_of_an_unknown_one_and_of_tensors(self):
        sampler = IoUAdaptiveSampler(DATA, seed=1)
        assert np.allclose(sampler.class_probabilities(), 1 / 3)
        sampler.set_iou([0.5, float('nan'), 0.0])
        assert np.allclose(sampler.class_probabilities(), np.array([2, 10, 10]) / 22), 'unknown counts as the lowest'
        sampler.set_iou(torch.tensor([0.1, 0.2, 0.3]))
        assert np.allclose(sampler.class_probabilities(), np.array([6, 3, 2]) / 11)

    def test_class_in_no_image_is_never_drawn(self):
        sampler = IoUAdaptiveSampler(Numbered([0], [2]), uniform=0.0, seed=0)
        sampler.set_iou([0.9, 0.0, 0.9])
        assert sampler.class_probabilities().tolist() == [0.5, 0, 0.5]
        assert {index.cls for index in islice(sampler, 200)} == {0, 2}


class TestChange:
    def test_next_draw_follows(self):
        sampler = IoUAdaptiveSampler(DATA, uniform=0.0, epsilon=1e-9, seed=1)
        draws = iter(sampler)
        next(draws)
        for best in (0, 1, 2):
            sampler.set_iou([float(c != best) for c in range(3)])
            assert {next(draws).cls for _ in range(50)} == {best}

    @pytest.mark.parametrize(('num_workers', 'ahead'), [(0, 0), (2, 4)])
    def test_reaches_the_loader_after_what_is_drawn_ahead(self, num_workers, ahead):
        sampler = IoUAdaptiveSampler(DATA, uniform=0.0, epsilon=1e-9, seed=1)
        sampler.set_iou([0.0, 1.0, 1.0])
        loader = iter(DataLoader(Echo(DATA), batch_size=5, sampler=sampler, num_workers=num_workers, collate_fn=list))
        assert {c for _ in range(3) for c in next(loader)} == {0}
        sampler.set_iou([1.0, 1.0, 0.0])
        batches = [set(next(loader)) for _ in range(ahead + 3)]
        assert batches == [{0}] * ahead + [{2}] * 3

    def test_iou_of_before_is_repeated(self):
        """A resumed training repeats all draws before its checkpoint."""
        sampler = IoUAdaptiveSampler(DATA, seed=1)
        stream = []
        for iou in ([0.2, 0.9, 0.9], [0.9, 0.1, 0.5], [0.9, 0.9, 0.0]):
            stream += first(sampler, 33)
            sampler.set_iou(iou)
        state = copy.deepcopy(sampler.state_dict())
        stream += first(sampler, 33)

        other = IoUAdaptiveSampler(DATA, seed=1)
        ahead = first(other, 10)
        other.load_state_dict(state)
        assert ahead + first(other, 122) == stream

    def test_set_again_before_the_next_draw(self):
        sampler = IoUAdaptiveSampler(DATA, seed=1)
        for value in (0.2, 0.4, 1.0):
            sampler.set_iou([value, 1.0, 1.0])
        assert np.allclose(sampler.class_probabilities(), 1 / 3)
        assert len(sampler.state_dict()['since']) == 1


class Echo:
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return index.cls


class TestMistakes:
    @pytest.mark.parametrize(
        ('name', 'value'),
        [*(('uniform', v) for v in (-0.1, 1.1, np.nan)), *(('epsilon', v) for v in (0, -1, np.inf, np.nan))],
    )
    def test_arguments(self, name, value):
        with pytest.raises(ValueError, match=f'`{name}`'):
            IoUAdaptiveSampler(DATA, **{name: value})

    @pytest.mark.parametrize('iou', [[0.5, 0.5], [0.5, 0.5, 1.1], [[0.5] * 3], [0.5, 0.5, -0.1]])
    def test_iou(self, iou):
        with pytest.raises(ValueError, match='3 numbers from 0 to 1'):
            IoUAdaptiveSampler(DATA).set_iou(iou)

    def test_state_of_other_classes(self):
        state = IoUAdaptiveSampler(DATA).state_dict()
        state['iou'] = [iou[:2] for iou in state['iou']]
        with pytest.raises(ValueError, match=r'3 classes\. Found 2'):
            IoUAdaptiveSampler(DATA).load_state_dict(state)

    @pytest.mark.parametrize('seed', range(5))
    @pytest.mark.parametrize('told', [True, False])
    def test_missing_hook_warns_once(self, told, seed, monkeypatch):
        monkeypatch.setattr(iou_adaptive_sampler, 'PREFETCHED', 20)
        sampler = IoUAdaptiveSampler(DATA, seed=seed)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter('always')
            list(islice(sampler, 10))
            if told:
                sampler.set_iou([0.1, 0.2, 0.3])
            list(islice(sampler, 50))
        assert [('TrainIoUHook' in str(w.message)) for w in said] == ([] if told else [True])

    @pytest.mark.parametrize(('n_images', 'expected'), [(7, 1000), (1500, 1500)])
    def test_missing_hook_warns_after_the_first_pass(self, n_images, expected):
        sampler = IoUAdaptiveSampler(Numbered(*[[0], [1]] * (n_images // 2), *[[0]] * (n_images % 2)), seed=0)
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            first(sampler, expected)
        with pytest.warns(UserWarning, match="Add `custom_hooks = .dict.type='TrainIoUHook'"):
            first(sampler, 1)

    def test_a_hook_that_has_not_reported_yet_is_enough(self, monkeypatch):
        monkeypatch.setattr(iou_adaptive_sampler, 'PREFETCHED', 20)
        sampler = IoUAdaptiveSampler(DATA, seed=0)
        sampler.has_hook = True
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            first(sampler, 100)

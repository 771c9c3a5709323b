from types import SimpleNamespace

import pytest
from comparison import search
from comparison.results import Trained
from comparison.search import FIRST_RATES, RATES, best_rate, mean_iou, search_rates


def trainings(scores):
    return [Trained(dict(lr=rate, mIoU=score, seconds=2.0), None) for rate, score in scores]


@pytest.mark.parametrize(
    ('scores', 'rate', 'at_the_edge'),
    [
        ({1e-3: 1.0, 3e-3: 3.0, 1e-2: 2.0}, 3e-3, False),
        ({1e-3: 1.0, 3e-3: 3.0, 1e-2: 4.0}, 1e-2, True),
        ({1e-2: 4.0, 3e-3: 4.0, 1e-3: 4.0}, 1e-3, True),
    ],
)
def test_the_rate_with_the_highest_score_is_chosen_and_the_lowest_of_equal_ones(scores, rate, at_the_edge):
    searched = best_rate(trainings(scores.items()), mean_iou)
    assert searched == (rate, scores, 6.0)
    assert searched.is_at_the_edge == at_the_edge


def test_the_score_of_a_rate_is_the_mean_over_its_runs():
    group = trainings([(3e-3, 9.0), (1e-2, 5.0), (3e-3, 1.0), (1e-2, 6.0)])
    assert best_rate(group, mean_iou) == (1e-2, {3e-3: 5.0, 1e-2: 5.5}, 8.0)
    assert best_rate(group, lambda trained: -mean_iou(trained)).rate == 3e-3


@pytest.fixture
def search_for(monkeypatch):
    """Return a function that searches the rates of keys with the given scores; each call of `train_missing` is kept."""
    calls = []

    def train_missing(jobs, n_at_a_time):
        calls.append([(job.key, job.lr) for job in jobs])
        return [dict(lr=job.lr, mIoU=job.score, seconds=1.0) for job in jobs]

    def run(**score_of):
        def jobs_of(key, rate):
            return [SimpleNamespace(key=key, lr=rate, score=score_of[key](rate), work_dir=None)]

        return search_rates(score_of, jobs_of, 2), calls

    monkeypatch.setattr(search, 'train_missing', train_missing)
    return run


@pytest.mark.parametrize('best', RATES[1:-1])
def test_the_search_goes_on_until_the_best_rate_is_not_at_the_edge(search_for, best):
    searched, _ = search_for(loss=lambda rate: -abs(RATES.index(rate) - RATES.index(best)))
    assert searched['loss'].rate == best
    assert not searched['loss'].is_at_the_edge
    i, tried = RATES.index(best), {RATES.index(rate) for rate in (*FIRST_RATES, best)}
    assert set(searched['loss'].scores) == set(RATES[min(*tried, i - 1) : max(*tried, i + 1) + 1])


@pytest.mark.parametrize('sign', [1, -1])
def test_the_search_ends_with_the_range(search_for, sign):
    searched, _ = search_for(loss=lambda rate: sign * rate)
    assert searched['loss'].rate == (max(RATES) if sign > 0 else min(RATES))
    assert searched['loss'].is_at_the_edge
    assert searched['loss'].seconds == 6


def test_only_those_whose_best_rate_is_at_the_edge_go_on(search_for):
    _, calls = search_for(inside=lambda rate: -abs(rate - 1e-2), above=lambda rate: -abs(rate - 3e-2))
    assert calls == [[(key, rate) for key in ('inside', 'above') for rate in FIRST_RATES], [('above', 1e-1)]]

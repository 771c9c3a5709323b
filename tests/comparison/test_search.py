import pytest
from comparison.results import Trained
from comparison.search import RATES, best_rate, mean_iou, rates_of


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


def test_rates_are_those_of_the_optimizer(tmp_path):
    for optimizer, rates in RATES.items():
        config = tmp_path / 'config.py'
        config.write_text(f"optim_wrapper = dict(optimizer=dict(type='{optimizer}'))")
        assert rates_of(str(config)) == rates

"""Average precision of weighted items, and paired gains with intervals."""

import numpy as np
import pytest
from reproductions.resampling import Measured, average_precision, draw_weights, measured, paired_gain
from sklearn.metrics import average_precision_score


@pytest.fixture
def ranked():
    """Return whether items in descending order are positives, and weights of them."""
    generator = np.random.default_rng(0)
    return generator.random(50) < np.linspace(0.9, 0.1, 50), generator.integers(0, 4, (6, 50)).astype(np.float32)


def test_weighted_average_precision_is_that_of_scikit_learn(ranked):
    is_positive, weights = ranked
    scores = -np.arange(50.0)
    expected = [average_precision_score(is_positive, scores, sample_weight=row) for row in weights]
    np.testing.assert_allclose(average_precision(is_positive, weights), expected, rtol=1e-6)


def test_positives_that_are_missed_lower_it(ranked):
    is_positive, weights = ranked
    found = (weights * is_positive).sum(1)
    np.testing.assert_allclose(
        average_precision(is_positive, weights, 2.0 * found), average_precision(is_positive, weights) / 2
    )


def test_the_envelope_is_that_of_pascal_voc():
    evaluation = pytest.importorskip('mmdet.evaluation')
    is_positive = np.random.default_rng(0).random(50) < np.linspace(0.9, 0.1, 50)
    hits = is_positive.cumsum()
    expected = evaluation.average_precision(hits / 40, hits / np.arange(1, 51))
    found = average_precision(is_positive, np.ones((1, 50), np.float32), np.array([40.0]), envelope=True)
    np.testing.assert_allclose(found, [expected], rtol=1e-6)


def test_without_positives_it_is_zero():
    assert average_precision(np.zeros(3, bool), np.ones((2, 3), np.float32)).tolist() == [0, 0]
    assert average_precision(np.zeros(0, bool), np.ones((1, 0), np.float32), np.array([3.0])).tolist() == [0]


def test_weights_are_drawn_within_each_group():
    groups = np.array([0, 1, 0, 1, 1, 2])
    weights = draw_weights(groups, 200)
    assert weights[0].tolist() == [1] * 6
    for group in range(3):
        assert set(weights[:, groups == group].sum(1)) == {(groups == group).sum()}
    assert weights[1:, 0].std() > 0.3
    assert np.array_equal(weights, draw_weights(groups, 200))


def test_gains_are_paired():
    generator = np.random.default_rng(0)
    common = generator.normal(50, 10, (5, 100))
    theirs = [Measured(row.mean(), row) for row in common]
    ours = [Measured(row.mean() + shift, row + shift) for row, shift in zip(common, (1, 2, 3, -1, 0), strict=True)]
    gain = paired_gain(ours, theirs)
    assert gain.mean == pytest.approx(1)
    assert -1 <= gain.low < gain.mean < gain.high <= 3
    assert (gain.n_ahead, gain.n_seeds) == (3, 5)


def test_measures_are_in_percent():
    assert measured(np.array([0.5, 0.25, 0.75])).value == 50
    assert measured(np.array([0.5, 0.25, 0.75])).resampled.tolist() == [25, 75]

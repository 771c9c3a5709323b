import pytest
from comparison.charts import extremes, gain_over_pixels, learning_curves, most_classes, wins_and_losses
from comparison.results import Comparison


@pytest.fixture
def pair(write_training):
    """The second config gains in the first images and loses in the last; the class 'bird' gains, 'sky' loses."""
    base = [[[8, 2], [10, 4]]] * 6
    other = [
        [[8, 4], [10, 4]],
        [[7, 4], [10, 4]],
        [[8, 2], [10, 4]],
        [[6, 2], [10, 4]],
        [[2, 2], [10, 4]],
        [[8, 1], [10, 4]],
    ]
    return Comparison([write_training('base', 0, base), write_training('other', 0, other)])


def test_wins_come_first_and_losses_last_with_their_gains(pair):
    ours, theirs = (pair.groups['short'][name][0] for name in ('other', 'base'))
    places, gains = extremes(ours, theirs)
    assert places == [0, 1, 3, 5, 4]
    assert gains == pytest.approx([25, 20, -10, -12.5, -30])
    axes = wins_and_losses(pair, 'short', 'other', places, gains).axes
    assert [axis.get_title() for axis in axes[:5]] == ['+25.0', '+20.0', '-10.0', '-12.5', '-30.0']
    assert [axis.get_ylabel() for axis in axes[::5]] == ['image', 'label', 'base', 'other']


def test_a_config_that_equals_the_first_has_neither(write_training):
    same = [[[8, 2], [10, 4]]] * 3
    pair = Comparison([write_training('base', 0, same), write_training('other', 0, same)])
    ours, theirs = (pair.groups['short'][name][0] for name in ('other', 'base'))
    assert extremes(ours, theirs) == ([], [])


def test_bars_are_gains_of_classes_rare_ones_first(pair):
    [axis] = gain_over_pixels(pair, 'short').axes
    assert [label.get_text().split('\n')[0] for label in axis.get_xticklabels()] == ['bird', 'sky']
    bird, sky = (bar.get_height() for bar in axis.patches)
    assert bird == pytest.approx(100 * (15 - 12) / 24)
    assert sky == pytest.approx(100 * (39 - 48) / 60)
    assert '1 of 2 classes gain' in axis.get_title()


def test_curves_go_through_the_validations(pair):
    left, right = learning_curves(pair, 'short').axes
    assert [list(line.get_ydata()) for line in left.lines] == [[25, 50]] * 2
    assert [list(line.get_ydata()) for line in right.lines] == [[20, 40]] * 2


def test_images_with_many_classes_are_shown(pair):
    last = pair.trainings[0].last
    last['areas'][0, 1, 1] = 0
    assert most_classes(last, 1) == [1]

"""Fits of ImageOverlap against loops over images. This file is also the program of the processes that fit."""

import copy
import json
import math
import pickle

import numpy as np
import pytest
import torch
from processes import find_as_a_process, found_by_ranks

from mmseg_nondecomp.functional._inputs import in_one_process
from mmseg_nondecomp.functional.decisions import GainReport, ImageOverlap, Temperature, decide_overlap
from mmseg_nondecomp.functional.decisions.image_overlap import LIMITS
from mmseg_nondecomp.losses._distributed import sum_over
from mmseg_nondecomp.metrics import JaccardIndexByImage

N_PROCESSES = 2


def scene(n_images=8, n_classes=3, pixels=24, seed=0, scale=2.0):
    """Return logits [N, C, P] and labels [N, P]; each image holds some of the classes, an ignored pixel and noise."""
    g = torch.Generator().manual_seed(seed)
    held = torch.rand(n_images, max(2, n_classes), generator=g) < 0.6
    held[:, 0] = True
    share = held * torch.rand(held.shape, generator=g)
    labels = torch.multinomial(share, pixels, replacement=True, generator=g)
    logits = torch.randn(n_images, n_classes, pixels, generator=g)
    classes = torch.ones(1, 1, 1) if n_classes == 1 else torch.arange(n_classes).view(1, -1, 1)
    logits = logits + 1.2 * (labels.unsqueeze(1) == classes) - (1.5 if n_classes == 1 else 0)
    labels[:, 0] = 255
    return scale * logits, labels


def one_by_one(logits, labels):
    return list(zip(logits.split(1), labels.split(1), strict=True))


def fit(batches, measure='iou', **settings):
    """Fit with the fast approximation of the expectation."""
    settings = dict(ignore_index=255, expectation='first_order') | settings
    return ImageOverlap.fit(batches, measure, **settings)


def by_image(maps, labels, n_classes, measure):
    """Return the measure of each image, NaN where no class is true or decided."""
    found = []
    for decided, true in zip(maps.numpy(), labels.numpy(), strict=True):
        decided, true = decided[true != 255], true[true != 255]
        values = []
        for c in [1] if n_classes == 1 else range(n_classes):
            hits, either = ((decided == c) & (true == c)).sum(), ((decided == c) | (true == c)).sum()
            if either > 0:
                values.append(hits / either if measure == 'iou' else 2 * hits / (hits + either))
        found.append(np.mean(values) if values else math.nan)
    return np.array(found)


def first_choice(logits):
    return (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(1)


def decided(logits, decision, limit):
    """Return the maps of a decision with another `min_probability`."""
    return ImageOverlap(**(decision.settings() | {'min_probability': limit}))(logits)


# Decisions


@pytest.mark.parametrize('temperature', [1.0, 0.4, 3.0])
@pytest.mark.parametrize(
    'settings',
    [
        dict(),
        dict(measure='dice'),
        dict(min_probability=0.5),
        dict(zero_division=1.0, expectation='second_order'),
    ],
)
def test_is_decide_overlap_of_the_softmax(settings, temperature):
    for shape in ((3, 4, 30), (2, 3, 5, 6)):
        logits = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(0))
        found = ImageOverlap(temperature=temperature, **settings)(logits)
        assert found.dtype == torch.int64
        assert torch.equal(found, decide_overlap((logits / temperature).softmax(1), **settings))
    single = logits[:, :1]
    found = ImageOverlap(temperature=temperature, **settings)(single)
    assert torch.equal(found, decide_overlap((single / temperature).sigmoid(), **settings))


def test_half_precision_is_computed_in_float32():
    logits, _ = scene()
    half = logits.half()
    assert torch.equal(ImageOverlap(temperature=1.3)(half), ImageOverlap(temperature=1.3)(half.float()))


def test_infinite_logits_are_certain():
    single = torch.tensor([[[torch.inf, -torch.inf, 0.1]]])
    assert ImageOverlap(temperature=2.0)(single)[0, :2].tolist() == [1, 0]
    ruled_out = torch.cat([torch.zeros(1, 1, 5), torch.full((1, 1, 5), -torch.inf)], 1)
    assert ImageOverlap()(ruled_out).tolist() == [[0] * 5]


# Fits


@pytest.mark.parametrize('measure', ['iou', 'dice'])
@pytest.mark.parametrize('n_classes', [1, 2, 3])
def test_fit_is_the_best_limit_at_the_fitted_temperature(measure, n_classes):
    chosen = set()
    for seed in range(3):
        logits, labels = scene(n_classes=n_classes, seed=seed)
        decision = fit(one_by_one(logits, labels), measure)
        assert decision.temperature == Temperature.fit(one_by_one(logits, labels), ignore_index=255).value
        values = [
            np.nanmean(by_image(decided(logits, decision, limit), labels, n_classes, measure)) for limit in LIMITS
        ]
        assert decision.min_probability == LIMITS[int(np.argmax(np.round(values, 12)))]
        assert decision.report.fitted == pytest.approx(max(values), abs=1e-12)
        before = np.nanmean(by_image(first_choice(logits), labels, n_classes, measure))
        assert decision.report.before == pytest.approx(before, abs=1e-12)
        chosen.add(decision.min_probability)
    assert len(chosen) > 1, 'the limit does not matter in these scenes'


@pytest.mark.parametrize('n_classes', [1, 3])
def test_report_is_that_of_the_metric(n_classes):
    logits, labels = scene(n_classes=n_classes, seed=3)
    decision = fit([(logits, labels)])
    for maps, expected in (
        (first_choice(logits), decision.report.before),
        (decision(logits), decision.report.fitted),
    ):
        value = JaccardIndexByImage(num_classes=n_classes)(maps, labels)['image']
        assert value.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(('n_classes', 'measure'), [(1, 'dice'), (1, 'iou'), (3, 'iou')])
def test_held_out_measure_is_that_of_limits_chosen_on_the_other_half(n_classes, measure):
    """The temperature is one number, fitted to all images."""
    differs = 0
    for seed in range(3):
        logits, labels = scene(9, n_classes, seed=seed)
        decision = fit(one_by_one(logits, labels), measure)
        values = np.array([by_image(decided(logits, decision, limit), labels, n_classes, measure) for limit in LIMITS])
        held_out = np.zeros(9)
        for half in (0, 1):
            best = int(np.argmax(np.round(np.nanmean(values[:, 1 - half :: 2], 1), 12)))
            held_out[half::2] = values[best, half::2]
        assert decision.report.held_out == pytest.approx(np.nanmean(held_out), abs=1e-12)
        differs += decision.report.held_out < decision.report.fitted
    assert differs > 0


def test_objects_decided_in_empty_images_count():
    """As in the metric: an image without the object has the value 0 with a false object, and none without it."""
    logits, labels = torch.full((4, 1, 50), -2.0), torch.zeros(4, 50, dtype=torch.long)
    logits[0, 0, :10], labels[0, 2:12] = 2.0, 1
    decision = fit(one_by_one(logits, labels))
    low = decided(logits, decision, 0.0)
    assert low[1:].any(), 'without a limit something is decided in empty images'
    assert not decision(logits)[1:].any()
    assert decision.report.fitted == pytest.approx(np.nanmean(by_image(decision(logits), labels, 1, 'iou')))
    assert decision.report.fitted > np.nanmean(by_image(low, labels, 1, 'iou'))


def test_certain_logits_are_made_less_certain():
    logits, labels = scene(scale=8.0)
    decision = fit([(logits, labels)])
    assert decision.temperature > 3
    assert decision.report.fitted > decision.report.before


def test_layouts_and_batches_do_not_matter():
    logits, labels = scene(7)
    expected = fit([(logits, labels)])
    square = logits.unflatten(2, (4, 6)), labels.unflatten(1, (4, 6))
    for batches in (one_by_one(logits, labels), [square], lambda: iter(one_by_one(logits, labels))):
        found = fit(batches)
        assert found.temperature == pytest.approx(expected.temperature, rel=1e-9)
        assert found.min_probability == expected.min_probability
        assert found.report == pytest.approx(expected.report, abs=1e-9)


def test_other_settings_stay():
    decision = ImageOverlap.fit([scene()], 'dice', zero_division=0.5, expectation='first_order')
    assert decision.settings() == decision.settings() | dict(zero_division=0.5, expectation='first_order')


def test_ignored_images_do_not_count():
    logits, labels = scene()
    expected = fit([(logits, labels)])
    more = torch.cat([logits, logits]), torch.cat([labels, torch.full_like(labels, 255)])
    found = fit([more])
    assert found.report == pytest.approx(expected.report, abs=1e-12)
    moved = torch.where(labels == 255, 9, labels)
    assert fit([(logits, moved)], ignore_index=9).state() == expected.state()


def find(rank):
    """Fit to every second image, two at a time."""
    found = {}
    for n_classes in (1, 3):
        own = (part[rank::N_PROCESSES] for part in scene(9, n_classes))
        batches = list(zip(*(part.split(2) for part in own), strict=True))
        found[n_classes] = fit(batches, reduce=sum_over('world')).state()
    return found


def test_processes_fit_as_one(tmp_path):
    assert sum_over('world') is in_one_process
    first, second = found_by_ranks(__file__, tmp_path, N_PROCESSES)
    assert first == second
    for n_classes, state in first.items():
        expected = fit([scene(9, n_classes)]).state()
        assert state.pop('temperature') == pytest.approx(expected.pop('temperature'), rel=1e-7)
        assert state.pop('report') == pytest.approx(expected.pop('report'), abs=1e-7)
        assert state == expected


# Arguments


def test_batches_are_checked():
    logits, labels = scene()
    with pytest.raises(TypeError, match=r'passes several times\. Found generator'):
        ImageOverlap.fit(pair for pair in one_by_one(logits, labels))
    with pytest.raises(ValueError, match='a pair of logits and targets at least'):
        ImageOverlap.fit([])
    with pytest.raises(ValueError, match='that is not ignored'):
        ImageOverlap.fit([(logits, torch.full_like(labels, 255))])
    with pytest.raises(ValueError, match=r'`logits` should be of images, \[N, C, \*\]. Found \(24, 3\)'):
        ImageOverlap.fit([(logits[0].t(), labels[0])])
    with pytest.raises(ValueError, match='`target` should hold class indices'):
        ImageOverlap.fit([(logits, logits.softmax(1))])
    for value in (torch.nan, torch.inf):
        logits[0, 0, 1] = value
        with pytest.raises(ValueError, match='NaN or infinity'):
            ImageOverlap.fit([(logits, labels)])


@pytest.mark.parametrize(
    ('settings', 'error'),
    [
        (dict(measure='recall'), ValueError),
        (dict(temperature=0.0), ValueError),
        (dict(temperature='1'), TypeError),
        (dict(min_probability=1.5), ValueError),
        (dict(zero_division=-1), ValueError),
        (dict(expectation='third_order'), ValueError),
    ],
)
def test_settings_are_checked(settings, error):
    [name] = settings
    with pytest.raises(error, match=f'`{name}`'):
        ImageOverlap(**settings)


def test_logits_are_checked():
    with pytest.raises(TypeError, match='`logits`'):
        ImageOverlap()(torch.zeros(1, 2, 3, dtype=torch.long))
    with pytest.raises(TypeError, match='`logits`'):
        ImageOverlap()([0.1])
    for shape in ((3,), (3, 0, 2)):
        with pytest.raises(ValueError, match='`logits` should be of shape'):
            ImageOverlap()(torch.zeros(shape))


# States


@pytest.mark.parametrize('n_classes', [1, 3])
def test_state_is_plain_and_complete(n_classes):
    logits, labels = scene(n_classes=n_classes)
    fitted = ImageOverlap.fit([(logits, labels)], 'dice', zero_division=1.0)
    state = json.loads(json.dumps(fitted.state(), allow_nan=False))
    found = ImageOverlap.from_state(state)
    assert found.state() == fitted.state() == state
    assert isinstance(found.report, GainReport)
    assert torch.equal(found(logits), fitted(logits))
    assert repr(found) == repr(fitted)
    for other in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert other.state() == fitted.state()


@pytest.mark.parametrize(
    'state',
    [
        None,
        [],
        {'measure': 'recall'},
        {'measure': ['iou']},
        {'temperature': -1.0},
        {'temperature': None},
        {'min_probability': math.nan},
        {'more': 1},
        {'report': 'high'},
        {'report': {'before': 0.1, 'fitted': 0.2}},
    ],
)
def test_states_are_checked(state):
    with pytest.raises((ValueError, TypeError)):
        ImageOverlap.from_state(state)


if __name__ == '__main__':
    find_as_a_process(find)

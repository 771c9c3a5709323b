"""Fitted offsets against loops over pixels and offsets. This file is also the program of the processes that fit."""

import copy
import json
import math
import pickle

import numpy as np
import pytest
import torch
from processes import find_as_a_process, found_by_ranks
from reference import class_offsets as reference

from mmseg_nondecomp.functional._inputs import in_one_process
from mmseg_nondecomp.functional.decisions import class_offsets
from mmseg_nondecomp.functional.decisions.class_offsets import REACH, STEP, ClassOffsets
from mmseg_nondecomp.functional.decisions.gain_report import GainReport
from mmseg_nondecomp.losses._distributed import sum_over

N_PROCESSES = 2


def scene(n_images=6, n_classes=3, pixels=50, seed=0, signal=1.5):
    """Return logits [N, C, P] that are higher for the label, and labels [N, P] of which class 0 has most."""
    g = torch.Generator().manual_seed(seed)
    share = torch.tensor([0.6 * 0.5**c for c in range(max(2, n_classes))])
    labels = torch.multinomial(share.expand(n_images, -1), pixels, replacement=True, generator=g)
    logits = torch.randn(n_images, n_classes, pixels, generator=g)
    classes = torch.ones(1, 1, 1) if n_classes == 1 else torch.arange(n_classes).view(1, -1, 1)
    logits = logits + signal * (labels.unsqueeze(1) == classes)
    return (logits - 1.5 if n_classes == 1 else logits), labels


def one_by_one(logits, labels):
    return list(zip(logits.split(1), labels.split(1), strict=True))


def tables(logits, labels, valid=None, offsets=None):
    """Return the counts of images that are all in the first half."""
    valid = torch.ones_like(labels, dtype=torch.bool) if valid is None else valid
    table = class_offsets._empty_table(logits)
    class_offsets._add_pixels(table, logits, labels, valid, torch.zeros(len(logits), dtype=torch.long), offsets)
    return class_offsets._of_table(table[0])


# Counts


def test_counts_are_those_of_a_loop_over_pixels():
    logits, labels = scene(n_classes=4)
    valid = torch.rand(labels.shape, generator=torch.Generator().manual_seed(1)) < 0.8
    offsets = torch.tensor([0.3, -0.2, 0.5, 0.0], dtype=torch.float64)
    found = tables(logits, labels, valid, offsets)
    expected = np.zeros((4, 4, 2 * REACH + 1, 3), int)
    shifted = (logits + offsets.float().view(-1, 1)).numpy()
    for image, label, counted in zip(shifted, labels.tolist(), valid.tolist(), strict=True):
        for p, (y, counts) in enumerate(zip(label, counted, strict=True)):
            if counts:
                first, second = np.argsort(-image[:, p], kind='stable')[:2]
                steps = min(int((image[first, p] - image[second, p]) / np.float32(STEP)), 2 * REACH)
                expected[first, second, steps, [first, second, y].index(y)] += 1
    assert np.array_equal(found.moves.numpy(), expected)
    hits, decided, true = reference.count(shifted.argmax(1), labels.masked_fill(~valid, 255), 4)
    assert found.hits.tolist() == hits.tolist()
    assert found.decided.tolist() == decided.tolist()
    assert found.true.tolist() == true.tolist()


@pytest.mark.parametrize('n_classes', [2, 3])
def test_moves_predict_the_counts_of_other_offsets(n_classes):
    """Exactly for two classes, and for more while no pixel goes to its third class."""
    logits, labels = scene(n_classes=n_classes, pixels=80)
    if n_classes == 3:  # no pixel gets class 2 or leaves it
        logits[:, 2] = torch.where(labels == 2, 40.0, -40.0)
    counts = tables(logits, labels)
    nearer = counts.moves.cumsum(2).roll(1, 2)
    nearer[:, :, 0] = 0
    candidates = torch.arange(-REACH, REACH + 1)
    for c, change in ((0, [0, 0, 0]), (1, [7, 0, 0]), (1, [-13, 20, 0])):
        change = torch.tensor(change[:n_classes])
        hits, decided = class_offsets._moved(nearer, counts, change, c, candidates)
        for i, candidate in enumerate(candidates.tolist()):
            offsets = change.clone()
            offsets[c] = candidate
            maps = reference.decide(logits, (STEP * offsets).tolist())
            expected = reference.count(maps, labels, n_classes)
            assert hits[i].tolist() == expected[0].tolist()
            assert decided[i].tolist() == expected[1].tolist()


# Fits


@pytest.mark.parametrize('measure', ['iou', 'dice', 'recall'])
@pytest.mark.parametrize('n_classes', [1, 2, 3, 5])
def test_report_is_that_of_loops_and_the_fit_is_never_worse_than_the_argmax(measure, n_classes):
    for seed in range(4):
        logits, labels = scene(n_classes=n_classes, seed=seed)
        offsets = ClassOffsets.fit([(logits, labels)], measure)
        before = reference.measured(logits, labels, [0] * n_classes, measure)
        fitted = reference.measured(logits, labels, offsets.values, measure)
        assert offsets.report.before == pytest.approx(before, abs=1e-12)
        assert offsets.report.fitted == pytest.approx(fitted, abs=1e-12)
        assert fitted >= before
        assert np.array_equal(offsets(logits).numpy(), reference.decide(logits, offsets.values))


@pytest.mark.parametrize('measure', ['iou', 'dice', 'recall'])
def test_values_are_close_to_the_best_of_a_fine_grid(measure):
    """Ascent stops at a local optimum: in ten scenes of 300 pixels, at most 0.02 below the best pair of offsets."""
    lost = []
    for seed in range(10):
        logits, labels = scene(seed=seed)
        fitted = ClassOffsets.fit([(logits, labels)], measure).report.fitted
        lost.append(reference.best_of_grid(logits, labels, 3, STEP, measure) - fitted)
    print(f'\n{measure}: {np.mean(lost):.4f} below on average, at most {max(lost):.4f}')
    assert np.mean(lost) < 0.005
    assert max(lost) < 0.02


def test_known_offsets_are_taken_back():
    logits, labels = scene(20, 4, 200, signal=6)
    known = torch.tensor([5.0, -1.0, 1.0, -4.0]).view(-1, 1)
    before = reference.measured(logits, labels, [0] * 4)
    shifted = reference.measured(logits + known, labels, [0] * 4)
    offsets = ClassOffsets.fit(one_by_one(logits + known, labels))
    assert before > shifted + 0.1
    assert offsets.report.before == pytest.approx(shifted)
    assert offsets.report.fitted >= before
    assert offsets.report.held_out > before - 0.01


def test_offset_of_a_single_channel_is_the_best_threshold():
    for seed in range(5):
        logits, labels = scene(n_classes=1, seed=seed)
        offsets = ClassOffsets.fit([(logits, labels)])
        on_grid = max(reference.measured(logits, labels, [STEP * k]) for k in range(-REACH, REACH + 1))
        overall = max(reference.measured(logits, labels, [-z]) for z in logits.unique().tolist())
        assert len(offsets.values) == 1
        assert on_grid - 1e-12 <= offsets.report.fitted <= overall + 1e-12
        assert overall - offsets.report.fitted < 0.01


def test_measure_may_be_a_function():
    logits, labels = scene(n_classes=4)

    def lowest(hits, decided, true):
        return (hits / (decided + true - hits)).amin(-1)

    found = ClassOffsets.fit([(logits, labels)], lowest)
    hits, decided, true = reference.count(found(logits), labels, 4)
    assert found.report.fitted == pytest.approx((hits / (decided + true - hits)).min())
    assert found.report.fitted > found.report.before
    as_function = ClassOffsets.fit([(logits, labels)], lambda hits, _, true: (hits / true).mean(-1))
    assert as_function.state() == ClassOffsets.fit([(logits, labels)], 'recall').state()


@pytest.mark.parametrize('n_classes', [1, 3])
def test_ignored_pixels_do_not_count_not_even_nan(n_classes):
    logits, labels = scene(n_classes=n_classes)
    expected = ClassOffsets.fit([(logits, labels)])
    more = torch.cat([logits, torch.full_like(logits, torch.nan)], 2)
    for ignored in (255, 7):
        given = torch.cat([labels, torch.full_like(labels, ignored)], 1)
        found = ClassOffsets.fit([(more, given)], ignore_index=None if ignored == 255 else ignored)
        assert found.state() == expected.state()


def test_layouts_and_batches_do_not_matter():
    logits, labels = scene(7, pixels=48)
    expected = ClassOffsets.fit([(logits, labels)]).state()
    square = logits.unflatten(2, (6, 8)), labels.unflatten(1, (6, 8))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(logits, labels), batch_size=3)
    for batches in (one_by_one(logits, labels), [square], loader, lambda: iter(one_by_one(logits, labels))):
        assert ClassOffsets.fit(batches).state() == expected
    items = logits.movedim(1, 2).flatten(0, 1), labels.flatten()
    assert ClassOffsets.fit([items]).state() == ClassOffsets.fit([(items[0].unsqueeze(2), items[1][:, None])]).state()


def test_the_order_of_images_does_not_matter_for_the_values():
    logits, labels = scene(9, 4)
    expected = ClassOffsets.fit(one_by_one(logits, labels))
    for seed in range(3):
        order = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
        found = ClassOffsets.fit(one_by_one(logits[order], labels[order]))
        assert found.values == expected.values
        assert found.report[:2] == expected.report[:2]


def test_batches_pass_at_most_once_more_than_offsets_are_improved():
    pairs, n_passes = one_by_one(*scene(4)), 0

    def batches():
        nonlocal n_passes
        n_passes += 1
        return iter(pairs)

    for passes in (1, 2, 4):
        n_passes = 0
        ClassOffsets.fit(batches, passes=passes)
        assert 2 <= n_passes <= passes + 1


def test_more_passes_are_never_worse():
    logits, labels = scene(n_classes=6)
    values = [ClassOffsets.fit([(logits, labels)], passes=n).report.fitted for n in (1, 2, 4, 8)]
    assert values == sorted(values)


# Held-out images


@pytest.mark.parametrize(('n_classes', 'measure'), [(1, 'iou'), (3, 'iou'), (4, 'dice'), (4, 'recall')])
def test_held_out_measure_is_that_of_two_fits(n_classes, measure):
    logits, labels = scene(9, n_classes)
    held_out = ClassOffsets.fit(one_by_one(logits, labels), measure).report.held_out
    maps = torch.zeros_like(labels)
    for fitted_on, other in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        maps[other] = ClassOffsets.fit([(logits[fitted_on], labels[fitted_on])], measure)(logits[other])
    counts = reference.count(maps, labels, max(2, n_classes))
    counts = [c[1:] for c in counts] if n_classes == 1 else counts
    assert held_out == pytest.approx(reference.measure_of(measure, *counts), abs=1e-12)


def test_noise_has_a_fitted_gain_and_no_gain_to_expect():
    fitted, expected = [], []
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        logits, labels = torch.randn(10, 3, 20, generator=g), torch.randint(0, 3, (10, 20), generator=g)
        report = ClassOffsets.fit([(logits, labels)]).report
        fitted.append(report.fitted - report.before)
        expected.append(report.gain)
    print(f'\ngain on the images of the fit {np.mean(fitted):+.4f}, on images left out {np.mean(expected):+.4f}')
    assert min(fitted) >= 0
    assert np.mean(fitted) > 0.01
    assert np.mean(expected) <= 0


def test_one_image_leaves_none_out():
    logits, labels = scene(1)
    report = ClassOffsets.fit([(logits, labels)]).report
    assert report.fitted > report.before
    assert report.gain == 0


def cases():
    return {
        'single channel': (scene(9, 1), dict()),
        'four classes': (scene(9, 4), dict(measure='dice')),
        'an ignored class': (scene(7, 3), dict(ignore_index=1, passes=2)),
    }


def find(rank):
    """Fit to every second image, two at a time."""
    found = {}
    for name, ((logits, labels), settings) in cases().items():
        own = logits[rank::N_PROCESSES], labels[rank::N_PROCESSES]
        batches = list(zip(*(part.split(2) for part in own), strict=True))
        found[name] = ClassOffsets.fit(batches, reduce=sum_over('world'), **settings).state()
    return found


def test_processes_fit_as_one(tmp_path):
    assert sum_over('world') is in_one_process
    expected = {name: ClassOffsets.fit([data], **settings).state() for name, (data, settings) in cases().items()}
    for found in found_by_ranks(__file__, tmp_path, N_PROCESSES):
        assert found == expected


# Difficult values


def test_a_class_that_is_ruled_out_is_never_decided():
    logits, labels = scene()
    ruled_out = torch.cat([logits, torch.full_like(logits[:, :1], -torch.inf)], 1)
    expected, found = ClassOffsets.fit([(logits, labels)]), ClassOffsets.fit([(ruled_out, labels)])
    assert torch.equal(found(ruled_out), expected(logits))
    assert found.report == expected.report


def test_infinite_logits_of_a_single_channel_are_certain():
    logits, labels = scene(n_classes=1)
    logits[:, :, 0], logits[:, :, 1] = torch.inf, -torch.inf
    found = ClassOffsets.fit([(logits, labels)])
    assert found.report.fitted == pytest.approx(reference.measured(logits, labels, found.values))
    assert found(logits)[:, 0].all()
    assert not found(logits)[:, 1].any()


def test_nan_is_refused():
    logits, labels = scene()
    logits[2, 1, 3] = torch.nan
    with pytest.raises(ValueError, match='`batches` should hold logits without NaN'):
        ClassOffsets.fit([(logits, labels)])


def test_half_precision_is_computed_in_float32():
    for n_classes in (1, 3):
        logits, labels = scene(n_classes=n_classes)
        half = logits.half()
        found = ClassOffsets.fit([(half, labels)])
        assert found.state() == ClassOffsets.fit([(half.float(), labels)]).state()
        assert torch.equal(found(half), found(half.float()))


def test_gradients_are_not_kept():
    logits, labels = scene()
    logits.requires_grad_()
    assert ClassOffsets.fit([(logits, labels)])(logits).dtype == torch.int64


def test_one_class_in_all_labels_and_decisions_has_nothing_to_gain():
    logits = torch.tensor([2.0, 0.0]).view(1, 2, 1).expand(4, 2, 5)
    found = ClassOffsets.fit([(logits, torch.zeros(4, 5, dtype=torch.long))])
    assert found.values == (0.0, 0.0)
    assert found.report == (1.0, 1.0, 1.0)


# Arguments


def test_batches_are_checked():
    logits, labels = scene()
    with pytest.raises(TypeError, match=r'passes several times\. Found generator'):
        ClassOffsets.fit(pair for pair in one_by_one(logits, labels))
    with pytest.raises(TypeError, match=r'`batches`.*Found int'):
        ClassOffsets.fit(7)
    with pytest.raises(ValueError, match='a pair of logits and targets at least'):
        ClassOffsets.fit([])
    with pytest.raises(ValueError, match='a pixel that is not ignored'):
        ClassOffsets.fit([(logits, torch.full_like(labels, 255))])
    with pytest.raises(ValueError, match='`target` should hold class indices'):
        ClassOffsets.fit([(logits, logits.softmax(1))])
    with pytest.raises(ValueError, match='`target` should hold class indices'):
        ClassOffsets.fit([(logits[:, :1], torch.rand(6, 1, 50))])
    with pytest.raises(ValueError, match=r'`target` should hold labels in \[0, 2\]'):
        ClassOffsets.fit([(logits, labels + 1)])
    with pytest.raises(ValueError, match=r'one number of channels\. Found 3 channels and then 2'):
        ClassOffsets.fit([(logits, labels), (logits[:, :2], labels.clamp(max=1))])
    with pytest.raises(TypeError, match='`logits`'):
        ClassOffsets.fit([(logits.long(), labels)])
    with pytest.raises(TypeError, match='`logits`'):
        ClassOffsets.fit([(logits.tolist(), labels)])


@pytest.mark.parametrize(
    ('settings', 'error', 'message'),
    [
        (dict(measure='miou'), ValueError, r"`measure` should be one of \('iou', 'dice', 'recall'\)"),
        (dict(measure=None), ValueError, '`measure`'),
        (dict(passes=0), ValueError, '`passes`'),
        (dict(passes=1.5), TypeError, '`passes`'),
        (dict(ignore_index='255'), TypeError, '`ignore_index`'),
    ],
)
def test_settings_are_checked(settings, error, message):
    with pytest.raises(error, match=message):
        ClassOffsets.fit([scene()], **settings)


@pytest.mark.parametrize(
    ('values', 'error'),
    [
        ([], ValueError),
        ([math.nan, 0.0], ValueError),
        ([math.inf], ValueError),
        (0.5, TypeError),
        ('0.5', TypeError),
        (['a'], TypeError),
        ([True], TypeError),
        (None, TypeError),
        (torch.tensor(1.0), TypeError),
    ],
)
def test_values_are_checked(values, error):
    with pytest.raises(error, match='Parameter `values`'):
        ClassOffsets(values)


def test_logits_are_checked():
    with pytest.raises(ValueError, match=r'of shape \[N, 2, \*\], as there are 2 offsets. Found \(4, 3\)'):
        ClassOffsets([0.0, 1.0])(torch.zeros(4, 3))
    with pytest.raises(ValueError, match=r'Found \(4,\)'):
        ClassOffsets([0.0])(torch.zeros(4))
    with pytest.raises(TypeError, match='floating-point'):
        ClassOffsets([0.0])(torch.zeros(4, 1, dtype=torch.long))
    with pytest.raises(TypeError, match='should be a tensor'):
        ClassOffsets([0.0])([[0.1]])


def test_values_may_be_a_tensor():
    assert ClassOffsets(torch.tensor([0.5, -1.0])).values == (0.5, -1.0)
    assert repr(ClassOffsets([0.123456, -1])) == 'ClassOffsets([0.1235, -1.0])'


# States


@pytest.mark.parametrize('name', cases())
def test_state_is_plain_and_complete(name):
    data, settings = cases()[name]
    fitted = ClassOffsets.fit([data], **settings)
    state = json.loads(json.dumps(fitted.state(), allow_nan=False))
    found = ClassOffsets.from_state(state)
    assert found.state() == fitted.state() == state
    assert isinstance(found.report, GainReport)
    assert torch.equal(found(data[0]), fitted(data[0]))
    for other in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert other.state() == fitted.state()


def test_state_without_a_fit():
    assert ClassOffsets([0.0, 1.0]).state() == {'values': [0.0, 1.0], 'report': None}
    assert ClassOffsets.from_state({'values': [0.0, 1.0]}).report is None


REPORT = {'before': 0.1, 'fitted': 0.2, 'held_out': 0.1}


@pytest.mark.parametrize(
    'state',
    [
        None,
        [],
        'values',
        {},
        {'report': None},
        {'values': 'a', 'report': None},
        {'values': [], 'report': None},
        {'values': [math.nan], 'report': None},
        {'values': [0.0], 'more': 1},
        {'values': [0.0], 'report': []},
        {'values': [0.0], 'report': {'before': 0.1}},
        {'values': [0.0], 'report': {**REPORT, 'gain': 0.0}},
        {'values': [0.0], 'report': {**REPORT, 'fitted': 'high'}},
        {'values': [0.0], 'report': {**REPORT, 'fitted': None}},
    ],
)
def test_states_are_checked(state):
    with pytest.raises((ValueError, TypeError)):
        ClassOffsets.from_state(state)


if __name__ == '__main__':
    find_as_a_process(find)

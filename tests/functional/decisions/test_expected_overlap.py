import math

import numpy as np
import pytest
import torch
from reference.decisions import index_of_map, value_of_map, value_of_set, values_of_maps, values_of_sets

from mmseg_nondecomp.functional.decisions.expected_overlap import decide_overlap

EXPECTATIONS = ('exact', 'first_order', 'second_order')
CHARACTERS = ('concentrated', 'uniform', 'flat', 'ties', 'certain', 'rare')
each_measure = pytest.mark.parametrize('measure', ['iou', 'dice'])
each_expectation = pytest.mark.parametrize('expectation', EXPECTATIONS)
each_zero_division = pytest.mark.parametrize('zero_division', [0.0, 0.5, 1.0])
each_resolution = pytest.mark.parametrize('bins', [1024, None])


def scene(character, n_classes, n, seed):
    """Return probabilities [C, n] that add up to 1."""
    random = np.random.default_rng(seed)
    if character == 'ties':
        return random.multinomial(4, [1 / n_classes] * n_classes, n).T / 4
    if character == 'rare':
        return random.dirichlet([0.05] * (n_classes - 1) + [1], n).T
    spread = {'concentrated': 0.3, 'uniform': 1, 'flat': 8, 'certain': 0.5}[character]
    p = random.dirichlet([spread] * n_classes, n).T
    if character == 'certain':
        known = random.random(n) < 0.5
        p[:, known] = np.eye(n_classes)[:, random.integers(n_classes, size=known.sum())]
    return p


def scenes(n_classes, sizes, seeds):
    return [scene(kind, n_classes, n, 100 * n + seed) for kind in CHARACTERS for n in sizes for seed in range(seeds)]


def decide(p, *arguments, **options):
    """Return the decisions for probabilities [C, n] of one image, a single channel or several classes."""
    return decide_overlap(torch.tensor(p)[None], *arguments, **options)[0].numpy()


def thresholded(p):
    """Return the sets of the 0, ..., n highest probabilities."""
    found = [0]
    for j in np.argsort(-p, kind='stable'):
        found.append(found[-1] | 1 << int(j))
    return found


def images(shape, seed=0):
    """Return probabilities of smooth regions with noise, of shape [N, C, *]."""
    generator = torch.Generator().manual_seed(seed)
    flat = torch.randn(shape, generator=generator).flatten(2)
    logits = 2 * flat + 6 * torch.nn.functional.avg_pool1d(flat, 9, 1, 4, count_include_pad=False)
    return logits.softmax(1).view(shape) if shape[1] > 1 else logits.sigmoid().view(shape)


# The oracle.


@each_measure
def test_the_value_of_a_set_is_that_of_an_enumeration(measure):
    for p in scenes(2, (1, 2, 5), 2):
        values = values_of_sets(p[0], measure, 'exact', 0.3)
        for s, value in enumerate(values):
            decided = [s >> j & 1 for j in range(p.shape[1])]
            assert value_of_set(p[0], decided, measure, 0.3) == pytest.approx(value, abs=1e-12)


# One class.


@each_measure
@each_expectation
@each_zero_division
def test_one_class_has_the_highest_value_of_all_sets(measure, expectation, zero_division):
    for p in scenes(2, (1, 2, 3, 5, 8), 2):
        values = values_of_sets(p[0], measure, expectation, zero_division)
        label = decide(p[:1], measure, None, expectation=expectation, zero_division=zero_division)
        assert values[index_of_map(label, 2)] >= values.max() - 1e-7


@each_measure
@each_zero_division
@pytest.mark.parametrize('expectation', EXPECTATIONS[:2])
def test_a_histogram_loses_less_than_1e_6(measure, expectation, zero_division):
    """Not to the second order, where a pixel of probability 0 may add to the value, but not two of them."""
    for p in scenes(2, (1, 2, 3, 5, 8), 2):
        values = values_of_sets(p[0], measure, expectation, zero_division)
        label = decide(p[:1], measure, expectation=expectation, zero_division=zero_division)
        assert values[index_of_map(label, 2)] >= values.max() - 1e-6


@each_measure
@each_expectation
@each_zero_division
def test_a_set_of_highest_probabilities_is_optimal(measure, expectation, zero_division):
    for p in scenes(2, (2, 4, 7), 3):
        values = values_of_sets(p[0], measure, expectation, zero_division)
        assert values[thresholded(p[0])].max() == pytest.approx(values.max(), abs=1e-14)


@each_measure
@each_expectation
@each_resolution
def test_pixels_are_decided_from_a_threshold_on(measure, expectation, bins):
    for p in scenes(2, (3, 40, 500), 2):
        decided = decide(p[:1], measure, bins, expectation=expectation) == 1
        assert p[0, decided].min(initial=1) >= p[0, ~decided].max(initial=0)


@each_measure
@each_expectation
@each_resolution
def test_the_threshold_is_at_most_one_half(measure, expectation, bins):
    for p in scenes(2, (1, 3, 40, 500), 4):
        assert (decide(p[:1], measure, bins, expectation=expectation) == 1)[p[0] > 0.501].all()


@each_measure
@pytest.mark.parametrize('spread', [(0.2, 0.8), (30, 60)])
def test_a_histogram_of_a_large_image_is_as_good_as_sorting(measure, spread):
    p = np.random.default_rng(0).beta(*spread, (1, 256 * 256))
    binned, sorted_ = (value_of_set(p[0], decide(p, measure, bins) == 1, measure) for bins in (1024, None))
    print(f'\n{measure}, {spread}: {binned:.9f} with a histogram, {sorted_:.9f} with sorting')
    assert binned == pytest.approx(sorted_, abs=1e-6)


@each_measure
def test_channels_with_overlap_are_decided_as_single_channels(measure):
    for bins, shape in ((1024, (2, 3, 9, 10)), (None, (3, 4, 5)), (64, (1, 2, 40))):
        probs = images(shape)
        options = dict(measure=measure, bins=bins, min_probability=0.9)
        found = decide_overlap(probs, mode='multilabel', **options)
        assert found.dtype == torch.bool
        assert found.shape == shape
        for c in range(shape[1]):
            single = probs[:, c : c + 1]
            assert torch.equal(found[:, c].long(), decide_overlap(single, **options))
            assert torch.equal(found[:, c : c + 1], decide_overlap(single, mode='multilabel', **options))


# Several classes.


@each_measure
@each_expectation
@each_zero_division
@pytest.mark.parametrize('n_classes', [2, 3])
def test_small_maps_have_the_highest_value_of_all(measure, expectation, zero_division, n_classes):
    """At least 99 % of them. None is below the most probable classes."""
    gaps = []
    for p in scenes(n_classes, (2, 4, 6, 7), 1):
        values = values_of_maps(p, measure, expectation, zero_division)
        label = decide(p, measure, expectation=expectation, zero_division=zero_division)
        value = values[index_of_map(label, n_classes)]
        gaps.append(values.max() - value)
        assert value >= values[index_of_map(p.argmax(0), n_classes)] - 1e-9
    assert np.mean(np.array(gaps) < 1e-7) >= 0.99


@pytest.mark.parametrize('character', CHARACTERS)
@pytest.mark.parametrize(('measure', 'zero_division'), [('iou', 0.0), ('dice', 0.5)])
def test_maps_of_12_pixels_have_the_highest_value_of_all(character, measure, zero_division):
    p = scene(character, 3, 12, 7)
    values = values_of_maps(p, measure, zero_division=zero_division)
    label = decide(p, measure, zero_division=zero_division)
    assert values[index_of_map(label, 3)] >= values.max() - 1e-7


@each_measure
@pytest.mark.parametrize('character', CHARACTERS)
@pytest.mark.parametrize(('n_classes', 'n', 'zero_division'), [(2, 64, 0.0), (3, 30, 1.0), (5, 20, 0.0)])
def test_no_pixel_alone_improves_a_small_map(measure, character, n_classes, n, zero_division):
    p = scene(character, n_classes, n, 3)
    label = decide(p, measure, zero_division=zero_division)
    value = value_of_map(p, label, measure, zero_division)
    by_class = [value_of_set(q, label == c, measure, zero_division) for c, q in enumerate(p)]
    for j in range(n):
        own = int(label[j])
        without = label == own
        without[j] = False
        rest = value - by_class[own] + value_of_set(p[own], without, measure, zero_division)
        for c in set(range(n_classes)) - {own}:
            added = label == c
            added[j] = True
            assert rest - by_class[c] + value_of_set(p[c], added, measure, zero_division) <= value + 1e-7


@each_measure
@pytest.mark.parametrize('character', CHARACTERS)
def test_larger_maps_are_as_good_as_those_of_single_pixels(measure, character):
    """Within 1 %, and never below the most probable classes."""
    for n, n_classes, seed in ((65, 2, 0), (66, 3, 1), (80, 4, 1)):
        p = scene(character, n_classes, n, seed)
        label, one_by_one = decide(p, measure), decide(p, measure, None)
        value, best, most_probable = (value_of_map(p, each, measure) for each in (label, one_by_one, p.argmax(0)))
        assert value >= 0.99 * best
        assert value >= (1 - 1e-6) * most_probable
        assert best >= most_probable - 1e-7


@pytest.mark.parametrize('expectation', EXPECTATIONS)
def test_a_map_of_40_x_40_pixels_is_better_than_the_most_probable_classes(expectation):
    for measure in ('iou', 'dice'):
        p = images((1, 5, 1600), 3).double()[0].numpy()
        p[1:] *= 0.4
        p[0] += 1 - p.sum(0)
        label = decide(p, measure, expectation=expectation)
        assert value_of_map(p, label, measure) > value_of_map(p, p.argmax(0), measure) + 0.01


def test_the_40_x_40_map_of_single_pixels_is_not_1_percent_better():
    p = images((1, 5, 1600), 3).double()[0].numpy()
    value, best = (value_of_map(p, decide(p, bins=bins), 'iou') for bins in (1024, None))
    assert 0.99 * best <= value
    assert best >= value_of_map(p, p.argmax(0), 'iou')


@pytest.mark.parametrize(
    ('measure', 'shape'),
    [('iou', (1, 3, 331, 211)), ('iou', (1, 3, 256, 256)), ('dice', (2, 3, 300, 219)), ('dice', (1, 4, 65537))],
)
def test_large_images_are_better_than_the_most_probable_classes(measure, shape):
    """Of 65 536 pixels and more, also where they are no multiple of the size of a part."""
    probs = images(shape)
    probs[:, 1:] *= 0.3
    probs[:, 0] += 1 - probs.sum(1)
    found = decide_overlap(probs, measure)
    assert found.shape == (shape[0], *shape[2:])
    assert 0 <= found.min() <= found.max() < shape[1]
    flat, label = probs.double().flatten(2).numpy()[-1], found.flatten(1).numpy()[-1]
    assert value_of_map(flat, label, measure) > value_of_map(flat, flat.argmax(0), measure) + 0.001


def test_large_images_are_decided_as_slightly_smaller_ones():
    """Parts of large images consist of runs of pixels."""
    p = scene('concentrated', 3, 65_536, 0)
    large, smaller = decide(p), decide(p[:, :-1])
    assert (large[:-1] == smaller).mean() > 0.9999


def test_a_rare_class_is_decided_where_its_probability_is_below_one_half():
    p = np.zeros((2, 100))
    p[1, :10] = 0.4
    p[0] = 1 - p[1]
    for bins in (1024, None):
        np.testing.assert_array_equal(decide(p, bins=bins), p[1] > 0)


# Symmetries.


@each_measure
@each_resolution
@pytest.mark.parametrize(('n_classes', 'n'), [(1, 10), (1, 300), (2, 40), (3, 40)])
def test_a_permutation_of_pixels_permutes_the_decision(measure, bins, n_classes, n):
    for character in ('concentrated', 'uniform', 'flat'):
        p = scene(character, max(n_classes, 2), n, 5)[:n_classes]
        order = np.random.default_rng(0).permutation(n)
        np.testing.assert_array_equal(decide(p[:, order], measure, bins), decide(p, measure, bins)[order])


@each_measure
def test_a_permutation_of_the_pixels_of_a_larger_map_hardly_changes_its_value(measure):
    """The parts of an image are decided in turns, and have other pixels."""
    for character in ('concentrated', 'uniform', 'flat'):
        p = scene(character, 3, 100, 5)
        order = np.random.default_rng(0).permutation(100)
        permuted = value_of_map(p[:, order], decide(p[:, order], measure), measure)
        assert permuted == pytest.approx(value_of_map(p, decide(p, measure), measure), rel=0.005)


@each_measure
@pytest.mark.parametrize(('n', 'zero_division'), [(9, 0.5), (30, 0.0), (100, 0.0), (900, 1.0)])
def test_a_permutation_of_classes_permutes_the_decision(measure, zero_division, n):
    for character in ('concentrated', 'uniform', 'flat'):
        p, order = scene(character, 4, n, 5), np.array([2, 0, 3, 1])
        permuted = decide(p[order], measure, zero_division=zero_division)
        np.testing.assert_array_equal(order[permuted], decide(p, measure, zero_division=zero_division))


@each_measure
@pytest.mark.parametrize(('expectation', 'zero_division'), [('exact', 0), ('exact', 0.5), ('second_order', 1)])
@pytest.mark.parametrize('shape', [(3, 1, 50), (3, 3, 4, 5), (3, 4, 70)])
def test_a_batch_gives_the_decisions_of_its_images_one_by_one(measure, expectation, zero_division, shape):
    probs = images(shape)
    options = dict(measure=measure, expectation=expectation, zero_division=zero_division, min_probability=0.3)
    for mode in (None, 'multilabel'):
        found = decide_overlap(probs, mode=mode, **options)
        one_by_one = torch.cat([decide_overlap(image[None], mode=mode, **options) for image in probs])
        assert torch.equal(found, one_by_one)


# Options.


@pytest.mark.parametrize('repeats', [1, 20])
def test_a_class_below_the_least_probability_is_not_decided_unless_all_are(repeats):
    p = np.array([[0.8, 0.7, 0.3, 0.3], [0.1, 0.2, 0.6, 0.2], [0.1, 0.1, 0.1, 0.5]]).repeat(repeats, 1)
    label = np.array([0, 0, 1, 2]).repeat(repeats)
    np.testing.assert_array_equal(decide(p), label)
    np.testing.assert_array_equal(decide(p, min_probability=0.5), label)
    np.testing.assert_array_equal(np.unique(decide(p, min_probability=0.55)), [0, 1])
    np.testing.assert_array_equal(decide(p, min_probability=0.7), np.zeros(4 * repeats))
    np.testing.assert_array_equal(decide(p, min_probability=0.9), label)


def test_a_single_channel_below_the_least_probability_is_not_decided():
    p = np.array([[0.4, 0.3, 0.1]])
    assert decide(p, min_probability=0.3).sum() > 0
    assert decide(p, min_probability=0.5).sum() == 0
    assert not decide(p.repeat(2, 0), mode='multilabel', min_probability=0.5).any()


def test_a_class_that_may_be_absent_is_left_out_if_that_is_better():
    p = np.array([[0.2, 0.05, 0.0]])
    assert decide(p).sum() > 0
    assert decide(p, zero_division=1).sum() == 0
    for repeats in (3, 40):
        several = np.concatenate([[[0.8] + [1.0] * (3 * repeats - 1)], [[0.2] + [0.0] * (3 * repeats - 1)]])
        assert decide(several).sum() == 1
        assert decide(several, zero_division=1).sum() == 0


@each_measure
def test_a_rare_class_of_a_larger_map_is_decided_if_it_is_hardly_absent(measure):
    p = np.zeros((2, 100))
    p[1, :10] = 0.4
    p[0] = 1 - p[1]
    np.testing.assert_array_equal(decide(p, measure, None, zero_division=0.5), p[1] > 0)
    np.testing.assert_array_equal(decide(p, measure, zero_division=0.5), p[1] > 0)


def test_the_least_probability_is_rounded_as_the_probabilities():
    probs = torch.tensor([[[0.7, 0.2], [0.2, 0.1], [0.1, 0.7]]])
    assert decide_overlap(probs, min_probability=0.7).tolist() == [[0, 2]]
    probs[0, 0, 0] = 0.69
    assert decide_overlap(probs, min_probability=0.7).tolist() == [[2, 2]]


@each_measure
def test_more_bins_are_not_worse_and_one_is_enough_to_run(measure):
    p = np.random.default_rng(1).beta(0.3, 1, (1, 400))
    values = [value_of_set(p[0], decide(p, measure, bins) == 1, measure) for bins in (1, 4, 16, 256, 4096)]
    best = value_of_set(p[0], decide(p, measure, None) == 1, measure)
    assert np.all(best - np.array(values) >= -1e-9)
    np.testing.assert_array_less(best - np.array(values), [0.2, 0.02, 0.002, 1e-5, 1e-5])


# Degenerate probabilities.


@each_resolution
@each_expectation
@pytest.mark.parametrize('n', [1, 7, 100])
def test_certain_and_constant_probabilities(bins, expectation, n):
    options = dict(bins=bins, expectation=expectation)
    for zero_division in (0, 1):
        assert decide(np.zeros((1, n)), **options, zero_division=zero_division).sum() == 0
        assert decide(np.ones((1, n)), **options, zero_division=zero_division).sum() == n
    assert decide(np.full((1, n), 0.6), **options).all()
    label = np.arange(n) % 3
    np.testing.assert_array_equal(decide(np.eye(3)[label].T, **options), label)
    assert 0 <= decide(np.full((3, n), 1 / 3), **options).max() < 3


@pytest.mark.parametrize('bins', [1024, None])
def test_one_pixel_of_a_single_channel_is_decided_if_its_class_is_possible(bins):
    for p in (1e-3, 0.3, 0.49, 0.51, 1.0):
        assert decide(np.array([[p]]), bins=bins) == 1
        assert decide(np.array([[p]]), bins=bins, zero_division=1) == (p > 0.5)


@pytest.mark.parametrize(
    ('shape', 'mode', 'expected'),
    [
        ((0, 3, 4, 5), None, (0, 4, 5)),
        ((2, 3, 0, 5), None, (2, 0, 5)),
        ((2, 1, 4, 0), None, (2, 4, 0)),
        ((0, 1), None, (0,)),
        ((0, 3), 'multiclass', (0,)),
        ((0, 3, 4), 'multilabel', (0, 3, 4)),
        ((2, 3, 0), 'multilabel', (2, 3, 0)),
    ],
)
@each_resolution
def test_nothing_gives_nothing(shape, mode, expected, bins):
    assert decide_overlap(torch.zeros(shape), bins=bins, mode=mode).shape == expected


def test_nothing_in_several_channels_has_the_dtype_of_a_decision():
    assert decide_overlap(torch.zeros(0, 3, 4), mode='multilabel').dtype == torch.bool


@pytest.mark.parametrize(('n_classes', 'n', 'bins'), [(1, 3, None), (2, 3, 1024), (2, 100, None)])
def test_probabilities_above_1_by_a_rounding_error_are_read_as_1(n_classes, n, bins):
    p = np.full((2, n), 0.1)
    p[0, ::3], p[0, 1::3] = 1, 0.9
    p[1] = 1 - p[0]
    expected = decide(p[:n_classes], bins=bins)
    p[0, 0] += 1e-6
    np.testing.assert_array_equal(decide(p[:n_classes], bins=bins), expected)


@pytest.mark.parametrize(('n_classes', 'shape'), [(3, (7, 7)), (3, (9, 11)), (40, (5,)), (5, (260, 260))])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16])
def test_a_pixel_with_nan_goes_to_the_class_of_its_first_nan(n_classes, shape, dtype):
    probs = images((2, n_classes, *shape)).to(dtype)
    expected = decide_overlap(probs)
    where = probs[0].flatten(1)
    where[2, 3] = where[1:, 1] = where[:, -1] = math.nan
    found = decide_overlap(probs)
    assert torch.equal(found[1], expected[1])
    assert found[0].flatten()[[3, 1, -1]].tolist() == [2, 1, 0]
    if found[0].numel() > 10:
        assert (found[0] != expected[0]).sum() < 3 + found[0].numel() // 10
    assert (decide_overlap(torch.full_like(probs, math.nan)) == 0).all()


@each_resolution
@each_zero_division
def test_a_nan_of_a_single_channel_is_not_decided_and_is_the_only_change(bins, zero_division):
    probs = images((3, 1, 8, 9))
    probs[0, 0, 2, 2] = probs[2] = math.nan
    found = decide_overlap(probs, bins=bins, zero_division=zero_division)
    assert torch.equal(found, decide_overlap(probs.nan_to_num(0), bins=bins, zero_division=zero_division))
    assert not (found.bool() & probs[:, 0].isnan()).any()


# Calls.


@pytest.mark.parametrize('shape', [(2, 1, 40), (2, 3, 5, 5), (2, 3, 12, 12)])
@each_resolution
def test_low_precision_is_computed_in_float32(shape, bins):
    if bins is None:
        shape = (*shape[:2], 9)
    for dtype in (torch.float16, torch.bfloat16):
        probs = images(shape).to(dtype)
        expected = decide_overlap(probs.float(), bins=bins)
        assert torch.equal(decide_overlap(probs, bins=bins), expected)
        with torch.autocast('cpu', dtype=torch.bfloat16):
            assert torch.equal(decide_overlap(probs, bins=bins), expected)


def test_float64_gives_the_same_decisions():
    for shape in ((2, 1, 40), (2, 3, 5, 5)):
        probs = images(shape)
        assert torch.equal(decide_overlap(probs, bins=None), decide_overlap(probs.double(), bins=None))
    probs = images((1, 3, 90, 90))
    assert (decide_overlap(probs) == decide_overlap(probs.double())).float().mean() > 0.999


@pytest.mark.parametrize('mode', [None, 'multilabel'])
def test_items_without_a_position_are_one_image(mode):
    probs = torch.rand(6, 3, generator=torch.Generator().manual_seed(0)).softmax(1)
    for part in (probs, probs[:, :1]):
        found = decide_overlap(part, mode=mode)
        assert torch.equal(found, of_image(part, mode))
        assert found.shape == (part.shape if mode == 'multilabel' else (6,))


def of_image(items, mode):
    found = decide_overlap(items.t().unsqueeze(0), mode=mode)[0]
    return found.t() if mode == 'multilabel' else found


@each_resolution
def test_the_layout_of_pixels_does_not_matter(bins):
    size = (2, 3, 4) if bins is None else (4, 5, 6)
    for n_classes in (1, 3):
        flat = images((2, n_classes, math.prod(size)))
        expected = decide_overlap(flat, bins=bins)
        volume = flat.view(2, n_classes, *size)
        found = decide_overlap(volume, bins=bins)
        assert found.shape == (2, *size)
        assert torch.equal(found.flatten(1), expected)
        last = volume.contiguous(memory_format=torch.channels_last_3d)
        assert torch.equal(decide_overlap(last, bins=bins), found)
        strided = torch.stack([volume, 1 - volume], -1)[..., 0]
        assert not strided.is_contiguous()
        assert torch.equal(decide_overlap(strided, bins=bins), found)
        image = volume.flatten(3)
        last = image.contiguous(memory_format=torch.channels_last)
        assert torch.equal(decide_overlap(last, bins=bins).flatten(1), expected)
        of_last, of_first = (decide_overlap(part, bins=bins, mode='multilabel') for part in (last, image))
        assert torch.equal(of_last, of_first)


@each_resolution
@pytest.mark.parametrize('mode', [None, 'multilabel'])
def test_the_result_has_no_gradient_the_argument_is_unchanged_and_calls_are_repeatable(bins, mode):
    for shape in ((2, 1, 40), (2, 3, 5, 5), (1, 3, 9, 9)):
        probs = images(shape)
        before = probs.clone()
        found = decide_overlap(probs.requires_grad_(), bins=bins, mode=mode)
        assert not found.requires_grad
        assert torch.equal(probs, before)
        assert torch.equal(decide_overlap(probs, bins=bins, mode=mode), found)


P = torch.tensor([[[0.7, 0.2], [0.3, 0.8]]])


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        ({'probs': [0.5]}, TypeError, '`probs` should be a tensor. Found list'),
        ({'probs': (P > 0.5).long()}, TypeError, '`probs` should be a floating-point tensor. Found torch.int64'),
        ({'probs': P.to(torch.complex64)}, TypeError, '`probs` should hold real numbers. Found torch.complex64'),
        ({'probs': P[0, 0]}, ValueError, r'`probs` should be of shape \[N, C, \*\]. Found \(2,\)'),
        ({'probs': P[:, :0]}, ValueError, r'`probs` should be of shape .* Found \(1, 0, 2\)'),
        (
            {'probs': P.logit()},
            ValueError,
            r'`probs` should hold probabilities .* -1.386 to 1.386; pass `logits.softmax',
        ),
        ({'measure': 'jaccard'}, ValueError, r"`measure` should be one of \('iou', 'dice'\). Found 'jaccard'"),
        ({'measure': None}, ValueError, '`measure` should be one of .* Found None'),
        ({'expectation': 'zeroth'}, ValueError, "`expectation` should be one of .* Found 'zeroth'"),
        ({'bins': 0}, ValueError, '`bins` should be at least 1. Found 0'),
        ({'bins': 2.5}, TypeError, '`bins` should be an integer, or None to sort. Found 2.5'),
        ({'bins': True}, TypeError, '`bins` should be an integer, or None to sort. Found True'),
        ({'mode': 'softmax'}, ValueError, "`mode` should be one of .* Found 'softmax'"),
        ({'mode': 'binary'}, ValueError, r"`probs` .* one channel with `mode='binary'`. Found \(1, 2, 2\)"),
        (
            {'probs': P[:, :1], 'mode': 'multiclass'},
            ValueError,
            r"`probs` .* each class with `mode='multiclass'`. Found \(1, 1, 2\)",
        ),
        ({'zero_division': 1.5}, ValueError, r'`zero_division` should be in \[0, 1\]. Found 1.5'),
        ({'zero_division': math.nan}, ValueError, r'`zero_division` should be in \[0, 1\]. Found nan'),
        ({'zero_division': 'nan'}, TypeError, "`zero_division` should be a number. Found 'nan'"),
        ({'min_probability': -0.1}, ValueError, r'`min_probability` should be in \[0, 1\]. Found -0.1'),
        ({'min_probability': None}, TypeError, '`min_probability` should be a number. Found None'),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=f'Parameter {message}'):
        decide_overlap(**{'probs': P, **arguments})

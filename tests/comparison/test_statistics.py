import itertools

import numpy as np
import pytest
import torch
from comparison import statistics
from comparison.statistics import (
    class_accuracy,
    class_image_iou,
    data_set_iou,
    image_iou,
    iou_of_classes,
    iou_of_images,
    paired_difference,
    resampled,
    shares_first,
    value_of,
)
from torchmetrics.functional.classification import multiclass_accuracy

from mmseg_nondecomp.metrics.functional import jaccard_index_by_image


def random_areas(seed, n_images=12, n_classes=4):
    generator = np.random.default_rng(seed)
    unions = generator.integers(0, 30, (n_images, n_classes))
    hits = np.floor(unions * generator.uniform(size=unions.shape))
    return np.stack([hits, unions], axis=1).astype(float)


def areas_of(decided, label, n_classes):
    hits = [[((d == c) & (t == c)).sum() for c in range(n_classes)] for d, t in zip(decided, label, strict=True)]
    unions = [[((d == c) | (t == c)).sum() for c in range(n_classes)] for d, t in zip(decided, label, strict=True)]
    return np.stack([hits, unions], axis=1).astype(float)


def test_both_measures_are_those_of_the_package():
    generator = torch.Generator().manual_seed(0)
    decided, label = (torch.randint(0, 5, (6, 9, 9), generator=generator) for _ in range(2))
    values = jaccard_index_by_image(decided, label, num_classes=5)
    areas, once = areas_of(decided.numpy(), label.numpy(), 5), np.ones((1, 6))
    assert data_set_iou(once, areas)[0] == pytest.approx(100 * values['dataset'].item(), rel=1e-6)
    assert image_iou(once, areas)[0] == pytest.approx(100 * values['image'].item(), rel=1e-6)


def test_class_accuracy_is_that_of_torchmetrics_over_the_labelled_classes():
    generator = torch.Generator().manual_seed(0)
    decided, label = (torch.randint(0, n, (6, 9, 9), generator=generator) for n in (5, 4))  # 4 is in no label
    areas = areas_of(decided.numpy(), label.numpy(), 5)
    labelled = np.array([[(image == c).sum() for c in range(5)] for image in label.numpy()])
    by_class = multiclass_accuracy(decided, label, num_classes=5, average=None)
    found = class_accuracy(np.ones((1, 6)), np.concatenate([areas, labelled[:, None]], 1))
    assert found[0] == pytest.approx(100 * by_class[:4].mean().item(), rel=1e-6)


def test_the_iou_of_some_classes_is_that_of_a_data_set_with_these_alone():
    areas = random_areas(3)
    assert value_of(iou_of_classes([0, 2]), areas) == value_of(data_set_iou, areas[:, :, [0, 2]])
    assert value_of(iou_of_classes(range(4)), areas) == value_of(data_set_iou, areas)


def test_the_image_iou_of_classes_that_may_be_absent_is_that_of_the_package():
    generator = torch.Generator().manual_seed(1)
    decided, label = (torch.randint(0, 5, (6, 2, 2), generator=generator) for _ in range(2))
    value = jaccard_index_by_image(decided, label, num_classes=5, zero_division=1)['image']
    areas = areas_of(decided.numpy(), label.numpy(), 5)
    assert (areas[:, 1] == 0).any()
    assert value_of(class_image_iou, areas) == pytest.approx(100 * value.item(), rel=1e-6)


@pytest.mark.parametrize('measure', [data_set_iou, image_iou, class_image_iou])
def test_a_weight_counts_an_image_so_many_times(measure):
    areas = random_areas(0)
    weights = np.random.default_rng(1).integers(0, 3, (5, len(areas)))
    repeated = [areas[np.repeat(np.arange(len(areas)), row)] for row in weights]
    expected = [measure(np.ones((1, len(each))), each)[0] for each in repeated]
    assert measure(weights.astype(float), areas) == pytest.approx(expected)


def test_classes_and_images_without_a_pixel_do_not_count():
    areas = np.array([[[1, 0], [2, 0]], [[0, 0], [0, 0]]], float)
    assert iou_of_images(areas) == pytest.approx([0.5, np.nan], nan_ok=True)
    once = np.ones((1, 2))
    assert data_set_iou(once, areas)[0] == image_iou(once, areas)[0] == 50


@pytest.mark.parametrize('measure', ['data set', 'image'])
def test_a_config_does_not_differ_from_itself(measure):
    seeds = [random_areas(seed) for seed in range(3)]
    assert paired_difference(seeds, seeds, measure) == (0, 0, 0, 0, 3)


def test_with_one_seed_the_interval_is_that_of_the_mean_over_images():
    n = 400
    ours, theirs = random_areas(0, n), random_areas(1, n)
    gains = 100 * (iou_of_images(ours) - iou_of_images(theirs))
    difference = paired_difference([ours], [theirs], 'image')
    assert difference.mean == pytest.approx(np.mean(gains))
    half = 1.96 * np.std(gains) / np.sqrt(n)  # central limit theorem
    assert (difference.high - difference.low) / 2 == pytest.approx(half, rel=0.1)


def test_pairing_removes_the_variation_of_the_images():
    """Images differ by much, the gain on each is the same: without pairs the interval would be wide."""
    unions = np.full((50, 1), 100.0)
    hits = np.linspace(10, 80, 50)[:, None]
    theirs, ours = (np.stack([part, unions], axis=1) for part in (hits, hits + 10))
    difference = paired_difference([ours], [theirs], 'image')
    assert (difference.low, difference.high) == pytest.approx((10, 10))


def test_seeds_that_disagree_widen_the_interval():
    base = random_areas(0, 200)
    better, worse = base.copy(), base.copy()
    better[:, 0] = base[:, 1]
    worse[:, 0] = 0
    agreeing = paired_difference([better, better], [base, base], 'data set')
    split = paired_difference([better, worse], [base, base], 'data set')
    assert agreeing.n_ahead == 2
    assert split.n_ahead == 1
    assert split.low < 0 < split.high
    assert split.high - split.low > 5 * (agreeing.high - agreeing.low)


def every_draw(groups, measure):
    """Return the value of each group in every data set of as many seeds and images that can be drawn."""
    n_seeds, n_images = len(groups[0]), len(groups[0][0])
    once = np.ones((1, n_images))
    return np.array(
        [
            [np.mean([measure(once, group[seed][list(images)])[0] for seed in seeds]) for group in groups]
            for seeds in itertools.product(range(n_seeds), repeat=n_seeds)
            for images in itertools.product(range(n_images), repeat=n_images)
        ]
    ).T


class TestResampling:
    """Two seeds of three images have 4 · 27 equally likely draws."""

    @pytest.fixture
    def groups(self):
        return [[random_areas(10 * way + seed, 3, 2) + 1 for seed in range(2)] for way in range(3)]

    @pytest.mark.parametrize('measure', [data_set_iou, image_iou])
    def test_draws_are_those_of_seeds_and_images_alike_for_all(self, groups, measure):
        values, possible = resampled(groups, measure), every_draw(groups, measure)
        assert values.shape == (3, statistics.N_RESAMPLES)
        # Each draw is one of the possible ones in all groups together, and none is left out or preferred.
        drawn = {tuple(row) for row in values.T.round(6)}
        assert drawn == {tuple(row) for row in possible.T.round(6)}
        assert values.mean(1) == pytest.approx(possible.mean(1), abs=1)
        assert values.std(1) == pytest.approx(possible.std(1), rel=0.1)

    @pytest.mark.parametrize('measure', ['data set', 'image'])
    def test_the_share_of_first_places_is_that_of_all_draws(self, groups, measure):
        shares = shares_first(dict(zip('abc', groups, strict=True)), measure)
        possible = every_draw(groups, statistics.MEASURES[measure])
        expected = np.bincount(possible.argmax(0), minlength=3) / possible.shape[1]
        assert list(shares.values()) == pytest.approx(expected.tolist(), abs=0.04)
        assert sum(shares.values()) == pytest.approx(1)

    def test_the_interval_is_that_of_all_draws(self, groups):
        ours, theirs, _ = groups
        possible = every_draw([ours, theirs], image_iou)
        low, high = np.quantile(possible[0] - possible[1], (0.025, 0.975))
        difference = paired_difference(ours, theirs, image_iou)
        assert (difference.low, difference.high) == pytest.approx((low, high), abs=1.5)

    def test_equal_configs_share_the_first_place_and_one_that_is_always_behind_has_none(self, groups):
        [best, *_] = groups
        worse = [areas.copy() for areas in best]
        for areas in worse:
            areas[:, 0] = 0
        assert shares_first({'a': best, 'b': best, 'c': worse}, 'data set') == {'a': 0.5, 'b': 0.5, 'c': 0}

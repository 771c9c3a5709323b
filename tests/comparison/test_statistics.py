import numpy as np
import pytest
import torch
from comparison.statistics import data_set_iou, image_iou, iou_of_images, paired_difference

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


@pytest.mark.parametrize('measure', [data_set_iou, image_iou])
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

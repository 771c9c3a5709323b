"""Class by class, from checked items: sorted and binned alike."""

import math

import numpy as np
import pytest
import torch
from mmseg_nondecomp.functional.error_cells import MarginCells, ProbabilityCells
from mmseg_nondecomp.functional.error_histogram import error_histogram
from mmseg_nondecomp.functional.jaccard_shares import shares_of_cells
from reference import lovasz as reference

from mmseg_nondecomp.functional.items import Items
from mmseg_nondecomp.functional.lovasz import binned_losses, occupancy, sorted_losses

BINS = 64
each_kind = pytest.mark.parametrize('kind', ['labels', 'weights', 'several labels'])
per_image_or_not = pytest.mark.parametrize('per_image', [False, True])


def scene(kind, seed=0, top=1.0):
    """Items of 3 images and 4 classes; the last image has none, the first no foreground of class 3."""
    rng = np.random.default_rng(seed)
    scores = rng.random((3, 4, 60)) if top == 1 else rng.normal(1, 3, (3, 4, 60))
    if kind == 'several labels':
        target = rng.integers(0, 5, (3, 4, 60)) / 4
        target[0, 3] = 0
    else:
        target = rng.integers(0, 5, (3, 60))  # 4 is none
        target[0] %= 3
    mass = rng.exponential(size=(3, 60)) if kind == 'weights' else np.ones((3, 60), np.int32)
    mass[2] = 0
    mass[1, :7] = 0
    return Items(*(torch.tensor(part) for part in (scores, target, mass)))


def losses_by_levels(items, top, per_image):
    """The loss of each class in each set, from the definition; a share is that much of a pixel of the class."""
    scores, target, mass = (part.numpy() for part in items)
    share = target if target.ndim == 3 else (target[:, None] == np.arange(4)[:, None]).astype(float)
    sets = [[n] for n in range(3)] if per_image else [[0, 1, 2]]
    losses = np.zeros((len(sets), 4))
    for row, images in enumerate(sets):
        for c in range(4):
            s, y, w = (part[images].ravel() for part in (scores[:, c], share[:, c], mass))
            errors = np.maximum(np.concatenate([top - s, s]), 0)
            masses = np.concatenate([w * y, w * (1 - y)])
            losses[row, c] = reference.lovasz_extension_by_levels(errors, np.arange(2 * s.size) < s.size, masses)
    return losses


@each_kind
@per_image_or_not
@pytest.mark.parametrize('top', [1.0, 2.0])
def test_sorted_losses_are_those_of_the_definition(kind, per_image, top):
    for seed in range(3):
        items = scene(kind, seed, top)
        found = sorted_losses(items, top, per_image)
        np.testing.assert_allclose(found.losses, losses_by_levels(items, top, per_image), rtol=1e-12, atol=1e-15)


@each_kind
@per_image_or_not
def test_binned_losses_of_probabilities_are_within_half_a_bin_below(kind, per_image):
    for seed in range(3):
        items = scene(kind, seed)
        found = binned_losses(items, ProbabilityCells(BINS), per_image)
        below = losses_by_levels(items, 1.0, per_image) - found.losses.numpy()
        assert below.min() >= -1e-12
        assert below.max() <= 1 / (2 * BINS)


@each_kind
@per_image_or_not
def test_binned_losses_of_margins_are_within_the_width_of_their_cells_below(kind, per_image):
    for seed in range(3):
        items = scene(kind, seed, 2.0)
        expected = losses_by_levels(items, 2.0, per_image)
        below = expected - binned_losses(items, MarginCells(BINS), per_image).losses.numpy()
        assert below.min() >= -1e-12
        assert (below <= 10 / BINS * (1 + expected)).all()


@each_kind
@per_image_or_not
def test_which_classes_are_present_and_which_sets_are_filled(kind, per_image):
    items = scene(kind)
    present = [[True, True, True, False], [True] * 4, [False] * 4] if per_image else [[True] * 4]
    filled = [True, True, False] if per_image else [True]
    for found in (sorted_losses(items, 1.0, per_image), binned_losses(items, ProbabilityCells(4), per_image)):
        assert found.present.tolist() == present
        assert found.filled.tolist() == filled
        assert found.losses.shape == found.present.shape


@per_image_or_not
def test_a_set_of_background_alone_is_filled(per_image):
    items = scene('labels')._replace(target=torch.full((3, 60), 4))
    for found in (sorted_losses(items, 1.0, per_image), binned_losses(items, ProbabilityCells(4), per_image)):
        assert not found.present.any()
        assert found.filled.tolist() == ([True, True, False] if per_image else [True])


@each_kind
@per_image_or_not
@pytest.mark.parametrize('top', [1.0, 2.0])
def test_gradcheck_of_sorted_losses(kind, per_image, top):
    items = Items(*(part[..., 5:9] for part in scene(kind, top=top)))
    assert torch.autograd.gradcheck(
        lambda scores: sorted_losses(items._replace(scores=scores), top, per_image).losses,
        items.scores.clone().requires_grad_(),
    )


@each_kind
@per_image_or_not
def test_nothing_that_has_no_mass_leaves_a_trace(kind, per_image):
    items = scene(kind)
    poisoned = items.scores.masked_fill(items.mass.unsqueeze(1) == 0, math.nan).requires_grad_()
    for losses in (
        lambda items: sorted_losses(items, 1.0, per_image).losses,
        lambda items: binned_losses(items, ProbabilityCells(BINS), per_image).losses,
    ):
        found = losses(items._replace(scores=poisoned))
        assert torch.equal(found, losses(items))
        assert torch.autograd.grad(found.sum(), poisoned)[0].isfinite().all()


@each_kind
def test_no_items_lose_nothing(kind):
    scores, target, mass = scene(kind)
    for items in (Items(scores[:0], target[:0], mass[:0]), Items(scores[..., :0], target[..., :0], mass[..., :0])):
        for found in (sorted_losses(items, 1.0, False), binned_losses(items, ProbabilityCells(4), False)):
            assert found.losses.eq(0).all()
            assert not found.present.any()
            assert not found.filled.any()


@each_kind
def test_the_sum_of_histograms_has_the_loss_of_all_images_and_not_the_mean_of_their_losses(kind):
    items, cells = scene(kind), ProbabilityCells(1024)
    parts = [error_histogram(*(part[n : n + 1] for part in items), cells, False) for n in range(3)]
    mass, errors = sum(part.mass for part in parts), sum(part.errors for part in parts)
    found = (errors * shares_of_cells(mass)).sum((2, 3))
    torch.testing.assert_close(found, binned_losses(items, cells, False).losses, rtol=1e-12, atol=0)
    np.testing.assert_allclose(found, losses_by_levels(items, 1.0, False), atol=1 / 2048)
    of_images = losses_by_levels(items, 1.0, True)[:2].mean(0)
    assert np.abs(found.numpy() - of_images).max() > 0.02


@each_kind
@per_image_or_not
def test_shares_of_a_histogram_add_up_to_one_for_each_set_with_items(kind, per_image):
    histogram = error_histogram(*scene(kind), ProbabilityCells(BINS), per_image)
    total = (histogram.mass * shares_of_cells(histogram.mass)).sum((2, 3))
    _, filled = occupancy(histogram.mass)
    torch.testing.assert_close(total, filled.double().unsqueeze(1).expand_as(total), rtol=1e-8, atol=0)

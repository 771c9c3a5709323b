"""Theorems of the soft Jaccard loss alone; those of all Jaccard losses are in `test_jaccard_losses`."""

import functools

import numpy as np
import pytest
import torch
from jaccard_scenes import inputs_of, one_hot, scene, soft_labels
from reference import lovasz as reference

from mmseg_nondecomp.functional import soft_iou
from mmseg_nondecomp.functional.overlap import soft_losses

per_image_or_not = pytest.mark.parametrize('per_image', [False, True])


@pytest.mark.parametrize('n_classes', [1, 2, 5])
@per_image_or_not
def test_of_soft_labels_the_value_is_that_of_the_definition(n_classes, per_image):
    for seed in range(3):
        probs, shares = scene(n_classes, seed=seed)[0].sigmoid(), soft_labels(n_classes, seed=seed + 9)
        shares[1, -1] = 0
        for classes in ('present', 'all', [0]):
            expected = float(reference.soft_iou(probs, shares, classes, per_image))
            assert soft_iou(probs, shares, classes, per_image, mode='multilabel').item() == pytest.approx(
                expected, rel=1e-12
            )


@pytest.mark.parametrize('soft', [False, True])
@per_image_or_not
def test_the_weight_of_a_pixel_is_its_mass(soft, per_image):
    logits, target = scene(4)
    probs, target = logits.softmax(1), soft_labels(4) if soft else target
    mass = np.random.default_rng(2).exponential(size=(3, 50)) * (np.arange(50) % 4 > 0)
    found = soft_losses(inputs_of(probs, target, mass), per_image).losses.mean(0)
    for c in range(4):
        expected = float(reference.soft_iou(probs, target, [c], per_image, mass=mass))
        assert found[c].item() == pytest.approx(expected, rel=1e-12)


def test_labels_have_the_intersection_and_union_of_rahman_and_wang():
    logits, target = scene(4)
    probs, y = logits.softmax(1), one_hot(target, 4)
    intersection, either = (probs * y).sum((0, 2)), (probs + y).sum((0, 2))
    expected = 1 - (intersection / (either - intersection)).mean()
    assert soft_iou(probs, target).item() == pytest.approx(expected.item(), rel=1e-12)
    assert soft_iou(probs, y.double()).item() == pytest.approx(expected.item(), rel=1e-12)


@per_image_or_not
def test_zero_exactly_where_probabilities_and_soft_labels_agree(per_image):
    probs = scene(4)[0].softmax(1)
    assert soft_iou(probs, probs.clone(), 'all', per_image).item() == 0
    other = probs.clone()
    other[1, :2, 3] += torch.tensor([1e-6, -1e-6])
    assert 0 < soft_iou(other, probs, 'all', per_image).item() < 1e-5
    assert soft_iou(soft_labels(4), probs, 'all', per_image) > 0.1


def test_soft_labels_are_matched_and_any_probability_of_an_absent_class_costs_one():
    share = torch.full((1, 1, 20), 0.7, dtype=torch.float64)
    losses = [soft_iou(torch.full_like(share, p), share).item() for p in np.linspace(0, 1, 11)]
    assert int(np.argmin(losses)) == 7
    np.testing.assert_allclose(losses, [1 - min(p, 0.7) / max(p, 0.7) for p in np.linspace(0, 1, 11)], atol=1e-12)
    target = torch.zeros(1, 9, dtype=torch.long)
    probs = one_hot(target, 2).double()
    assert soft_iou(probs, target, 'all').item() == 0
    probs[0, 1, 3] = 1e-30
    assert soft_iou(probs, target, 'all').item() == 0.5
    assert soft_iou(probs, target, [1]).item() == 1
    assert soft_iou(probs, target, 'present').item() == 0


@pytest.mark.parametrize('n_classes', [1, 2, 5])
@pytest.mark.parametrize('soft', [False, True])
def test_gradcheck(n_classes, soft):
    logits = torch.randn(3, n_classes, 5, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    target = soft_labels(n_classes, 5) * 0.9 if soft else scene(n_classes, shape=(3, 5))[1]
    activate = torch.sigmoid if n_classes == 1 else lambda x: x.softmax(1)
    assert not soft or (activate(logits) - target).abs().min() > 1e-4
    for settings in ({}, {'per_image': True, 'classes': 'all'}, {'ignore_index': 0}):
        assert torch.autograd.gradcheck(
            lambda x, settings=settings: soft_iou(activate(x), target, mode='multilabel', **settings), logits, eps=1e-5
        )


@pytest.mark.parametrize('soft', [False, True])
@per_image_or_not
def test_weighted_errors_give_the_tversky_index(soft, per_image):
    logits, target = scene(4)
    probs, target = logits.softmax(1), soft_labels(4) if soft else target
    for alpha, beta in [(0.5, 0.5), (0.3, 0.7), (2, 1), (0, 1), (1, 0)]:
        of_class = functools.partial(reference.soft_iou_of_class, alpha=alpha, beta=beta)
        expected = reference._class_average(of_class, probs, target, 'all', per_image)
        actual = soft_iou(probs, target, 'all', per_image, alpha=alpha, beta=beta)
        assert actual.item() == pytest.approx(float(expected), rel=1e-12)


def test_weights_of_one_half_give_the_dice_loss():
    logits, target = scene(4)
    probs, y = logits.softmax(1), one_hot(target, 4).double()
    dice = 1 - (2 * (probs * y).sum((0, 2)) / (probs + y).sum((0, 2))).mean()
    assert soft_iou(probs, target, alpha=0.5, beta=0.5).item() == pytest.approx(dice.item(), rel=1e-12)


@pytest.mark.parametrize(('alpha', 'beta'), [(-1, 1), (1, float('inf')), (float('nan'), 1), (0, 0)])
def test_weights_are_finite_and_not_negative_or_both_zero(alpha, beta):
    with pytest.raises(ValueError, match=r'`alpha`|`beta`'):
        soft_iou(torch.tensor([[0.5, 0.5]]), torch.tensor([0]), alpha=alpha, beta=beta)

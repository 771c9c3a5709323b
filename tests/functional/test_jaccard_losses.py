"""Theorems of the Jaccard losses of probabilities: `lovasz_softmax`, exact and by histograms, and `soft_iou`."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from jaccard_scenes import LOGITS, one_hot, scene
from reference import lovasz as reference
from torchmetrics.functional.classification import multiclass_jaccard_index

from mmseg_nondecomp.functional import lovasz_softmax, soft_iou

BINNED = partial(lovasz_softmax, bins=1024)
LOSSES = {'lovasz_softmax': lovasz_softmax, 'lovasz_softmax by histograms': BINNED, 'soft_iou': soft_iou}
each_loss = pytest.mark.parametrize('loss', LOSSES.values(), ids=LOSSES)


@pytest.mark.parametrize(
    ('loss', 'definition', 'tolerance'),
    [
        (lovasz_softmax, reference.lovasz_softmax, 1e-12),
        (BINNED, reference.lovasz_softmax, 1 / 2048),
        (soft_iou, reference.soft_iou, 1e-12),
    ],
    ids=LOSSES,
)
@pytest.mark.parametrize('family', LOGITS)
@pytest.mark.parametrize('n_classes', [2, 3, 5])
def test_the_value_is_that_of_the_definition_or_below_by_half_a_bin(loss, definition, tolerance, n_classes, family):
    logits, labels = scene(n_classes, family, (3, 25))
    probs, weight = logits.softmax(1), torch.arange(n_classes) / 2
    for per_image, ignore_index in itertools.product((False, True), (None, 255, 0, -7)):
        target = labels.clone()
        if ignore_index is not None:
            target[:, 5:15] = ignore_index
        for classes in ('present', 'all', [n_classes - 1, 0]):
            for class_weight in (None, weight if per_image else weight.tolist()):
                args = probs, target, classes, per_image, ignore_index, class_weight
                assert -1e-12 <= float(definition(*args)) - loss(*args).item() <= tolerance


@pytest.mark.parametrize('n_classes', [2, 4, 10])
@each_loss
def test_one_minus_the_jaccard_index_on_hard_predictions(loss, n_classes):
    rng = np.random.default_rng(0)
    decided, target = torch.tensor(rng.integers(0, n_classes, (2, 2, 300)))
    target[target == n_classes - 1] = 0  # decided, never true
    target[:, :50] = 255
    index = multiclass_jaccard_index(decided, target, n_classes, average='none', ignore_index=255)
    present = target[target != 255].unique()
    found = loss(one_hot(decided, n_classes).float(), target, ignore_index=255)
    assert found.item() == pytest.approx(1 - index[present].mean().item(), rel=1e-6)


@pytest.mark.parametrize('n_classes', [2, 3, 5, 10])
@each_loss
def test_one_where_all_is_wrong_and_zero_where_all_is_right(loss, n_classes):
    target = scene(n_classes)[1]
    wrong, right = (one_hot((target + step) % n_classes, n_classes).float().requires_grad_() for step in (1, 0))
    for settings in ({}, {'per_image': True}, {'class_weight': range(1, n_classes + 1)}):
        assert loss(wrong, target, **settings).item() == pytest.approx(1, rel=1e-6)
        assert loss(right, target, **settings).item() == 0
    assert loss(1 - wrong, target).item() < 1
    loss(right, target, 'all').backward()
    assert right.grad.isfinite().all()


@each_loss
def test_class_weights_are_as_precise_as_the_scores(loss):
    logits, target = scene(3)
    weights = [1, 3, 0], [1 / 3, 1, 0]
    found, thirds = (loss(logits.softmax(1), target, [0, 1], class_weight=weight).item() for weight in weights)
    assert thirds == pytest.approx(found, rel=1e-14)


P, T = torch.full((2, 3, 5), 1 / 3), torch.zeros(2, 5, dtype=torch.long)


@pytest.mark.parametrize(
    ('args', 'error', 'message'),
    [
        ((P.long(), T), TypeError, '`probs`.*int64'),
        ((P[:, :1], T + 2), ValueError, r'`target`.*\[0, 1\].*Found 2'),
        ((P, T, [0, 3]), ValueError, '`classes`.*below 3.*Found 3'),
        ((P, T, 'all', False, 'void'), TypeError, '`ignore_index` should be a label, an integer, or None'),
        ((P, T, 'all', False, None, [1, 2]), ValueError, '`class_weight`.*3 classes.*Found 2'),
    ],
)
@each_loss
def test_arguments_that_do_not_fit_are_named(loss, args, error, message):
    with pytest.raises(error, match=message):
        loss(*args)

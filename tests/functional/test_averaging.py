import math

import numpy as np
import pytest
import torch
from reference import lovasz as reference
from torchmetrics.functional.classification import multiclass_jaccard_index

from mmseg_nondecomp.functional._averaging import ClassLosses, class_average, jaccard_counts, mean_jaccard


def average(losses, classes='present', present=None, non_empty=None, class_weight=None):
    losses = torch.tensor(losses)
    present = torch.ones_like(losses, dtype=torch.bool) if present is None else torch.tensor(present)
    non_empty = torch.ones(len(losses), dtype=torch.bool) if non_empty is None else torch.tensor(non_empty)
    class_weight = None if class_weight is None else torch.tensor(class_weight)
    return class_average(ClassLosses(losses, present, non_empty), classes, class_weight).item()


@pytest.mark.parametrize(
    ('classes', 'class_weight', 'expected'),
    [
        ('present', None, (0.1 + 0.7) / 2),
        ('all', None, (0.1 + 0.4 + 0.7) / 3),
        ([1], None, 0.4),
        ([2, 0], None, (0.1 + 0.7) / 2),
        ((1, 2), None, (0.4 + 0.7) / 2),
        ('present', [1.0, 9.0, 3.0], (0.1 + 3 * 0.7) / 4),
        ('all', [1.0, 2.0, 0.0], (0.1 + 2 * 0.4) / 3),
        ([1, 2], [5.0, 1.0, 3.0], (0.4 + 3 * 0.7) / 4),
    ],
)
def test_weighted_mean_over_the_classes_that_count(classes, class_weight, expected):
    found = average([[0.1, 0.4, 0.7]], classes, [[True, False, True]], class_weight=class_weight)
    assert found == pytest.approx(expected)


def test_each_set_has_its_own_classes_and_counts_once_unless_it_is_empty_or_has_no_weight():
    losses, present = [[0.2, 0.4], [1.0, 0.6]], [[True, True], [False, True]]
    assert average(losses, 'present', present) == pytest.approx((0.3 + 0.6) / 2)
    assert average(losses, 'all', present) == pytest.approx((0.3 + 0.8) / 2)
    assert average(losses, 'present', present, class_weight=[2.0, 0.0]) == pytest.approx(0.2)
    for classes in ('present', 'all', [0, 1]):
        found = average([[0.2, 0.4], [0.0, 0.0]], classes, [[True, True], [False, False]], [True, False])
        assert found == pytest.approx(0.3)


@pytest.mark.parametrize('rows', [0, 2])
def test_zero_attached_to_the_graph_if_nothing_counts(rows):
    losses = torch.rand(rows, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    nothing = torch.zeros(rows, 3, dtype=torch.bool)
    loss = class_average(ClassLosses(losses, nothing, nothing.any(1)), 'all')
    loss.backward()
    assert loss.item() == 0
    assert losses.grad.eq(0).all()


@pytest.mark.parametrize('classes', ['present', [0, 2]], ids=str)
def test_a_class_that_does_not_count_may_be_nan_and_one_that_counts_is_not_hidden(classes):
    losses = torch.tensor([[0.1, math.nan, 0.7]], requires_grad=True)
    loss = class_average(ClassLosses(losses, torch.tensor([[True, False, True]]), torch.tensor([True])), classes)
    loss.backward()
    assert loss.item() == pytest.approx(0.4)
    assert losses.grad.tolist() == [[0.5, 0, 0.5]]
    assert math.isnan(average([[0.1, math.nan]]))


def test_never_above_the_largest_loss_whatever_the_weights():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        losses = torch.rand(3, 4, generator=generator).double()
        present = torch.rand(3, 4, generator=generator) < 0.6
        weight = torch.rand(4, generator=generator).double().mul(20).exp()
        for classes in ('present', 'all', [1, 3]):
            counted = losses[present] if classes == 'present' else losses if classes == 'all' else losses[:, classes]
            mean = class_average(ClassLosses(losses, present, torch.ones(3, dtype=torch.bool)), classes, weight)
            assert counted.min() - 1e-12 <= mean <= counted.max() + 1e-12


@pytest.mark.parametrize(
    ('classes', 'class_weight', 'message'),
    [
        ([0, 2], None, '`classes`.*below 2.*Found 2'),
        ('all', [1.0, 1.0, 1.0], '`class_weight`.*2 classes.*Found 3'),
    ],
)
def test_settings_that_do_not_fit_the_classes_are_named(classes, class_weight, message):
    with pytest.raises(ValueError, match=message):
        average([[0.1, 0.2]], classes, class_weight=class_weight)


def labels(seed=0, n_classes=4, none=0):
    """Return decided and true classes [3, 50]; some are none, ``n_classes``, and the last class is in no image."""
    rng = np.random.default_rng(seed)
    decided, target = rng.integers(0, n_classes - 1 + none, (2, 3, 50))
    return tuple(torch.tensor(np.where(part == n_classes - 1, n_classes, part)) for part in (decided, target))


@pytest.mark.parametrize('none', [0, 1])
def test_counts_are_those_of_a_loop(none):
    decided, target = labels(none=none)
    mass = torch.tensor(np.random.default_rng(1).integers(0, 3, (3, 50)) / 2)
    expected = torch.zeros(3, 2, 4, dtype=torch.float64)
    for n in range(3):
        for d, t, w in zip(decided[n].tolist(), target[n].tolist(), mass[n].tolist(), strict=True):
            for c in range(4):
                expected[n, 0, c] += w * (d == c and t == c)
                expected[n, 1, c] += w * (d == c or t == c)
    found = jaccard_counts(decided, target, mass, 4)
    assert found.dtype == torch.float64
    assert torch.equal(found, expected)
    of_all = jaccard_counts(decided.view(1, -1), target.view(1, -1), mass.view(1, -1), 4)
    assert torch.equal(found.sum(0), of_all[0])


def test_the_mean_index_of_classes_decided_or_true_is_that_of_torchmetrics_and_counts_are_exact():
    for seed in range(5):
        decided, target = labels(seed)
        ignored = torch.rand(3, 50, generator=torch.Generator().manual_seed(seed)) < 0.2
        counts = jaccard_counts(decided, target, (~ignored).int(), 4)
        found, target = mean_jaccard(counts.sum(0)).item(), target.masked_fill(ignored, 255)
        assert found == pytest.approx(float(reference.dataset_miou(decided, target, 4, 255)), rel=1e-12)
        assert found == pytest.approx(multiclass_jaccard_index(decided, target, 4, ignore_index=255).item(), rel=1e-6)
        of_images = reference.mious_by_image(decided, target, 4, 255).astype(float)
        np.testing.assert_allclose(mean_jaccard(counts), of_images, rtol=1e-12)
    same = torch.zeros(1, 500_000, dtype=torch.long)
    assert jaccard_counts(same, same, torch.ones(1, 500_000, dtype=torch.float16), 1).tolist() == [[[5e5], [5e5]]]
    assert mean_jaccard(torch.tensor([[3.0, 0.0, 0.0], [4.0, 0.0, 2.0]]).double()).item() == 3 / 8
    assert mean_jaccard(torch.zeros(2, 3).double()).isnan()
    nothing = torch.zeros(2, 0).long()
    assert mean_jaccard(jaccard_counts(nothing, nothing, torch.zeros(2, 0), 3)).isnan().all()

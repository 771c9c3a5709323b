import math

import pytest
import torch

from mmseg_nondecomp.functional.class_average import check_classes, class_average, class_weights


def average(losses, classes='present', present=None, filled=None, class_weight=None):
    losses = torch.tensor(losses)
    present = torch.ones_like(losses, dtype=torch.bool) if present is None else torch.tensor(present)
    filled = torch.ones(len(losses), dtype=torch.bool) if filled is None else torch.tensor(filled)
    class_weight = None if class_weight is None else torch.tensor(class_weight)
    return class_average(losses, present, filled, classes, class_weight).item()


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


def test_every_set_has_its_own_classes_and_counts_once():
    losses, present = [[0.2, 0.4], [1.0, 0.6]], [[True, True], [False, True]]
    assert average(losses, 'present', present) == pytest.approx((0.3 + 0.6) / 2)
    assert average(losses, 'all', present) == pytest.approx((0.3 + 0.8) / 2)


@pytest.mark.parametrize('classes', ['present', 'all', [0, 1]], ids=str)
def test_a_set_without_pixels_is_not_averaged(classes):
    losses, present = [[0.2, 0.4], [0.0, 0.0]], [[True, True], [False, False]]
    assert average(losses, classes, present, [True, False]) == pytest.approx(0.3)


def test_a_set_whose_classes_have_no_weight_is_not_averaged():
    losses, present = [[0.2, 0.4], [1.0, 0.6]], [[True, True], [True, False]]
    assert average(losses, 'present', present, class_weight=[0.0, 2.0]) == pytest.approx(0.4)


@pytest.mark.parametrize('rows', [0, 2])
def test_zero_attached_to_the_graph_if_nothing_counts(rows):
    losses = torch.rand(rows, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    nothing = torch.zeros(rows, 3, dtype=torch.bool)
    loss = class_average(losses, nothing, nothing.any(1), 'all')
    loss.backward()
    assert loss.item() == 0
    assert losses.grad.eq(0).all()


@pytest.mark.parametrize('classes', ['present', [0, 2]], ids=str)
def test_a_class_that_does_not_count_may_be_nan(classes):
    losses = torch.tensor([[0.1, math.nan, 0.7]], requires_grad=True)
    loss = class_average(losses, torch.tensor([[True, False, True]]), torch.tensor([True]), classes)
    loss.backward()
    assert loss.item() == pytest.approx(0.4)
    assert losses.grad.tolist() == [[0.5, 0, 0.5]]


def test_a_nan_of_a_class_that_counts_is_not_hidden():
    assert math.isnan(average([[0.1, math.nan]]))


def test_never_above_the_largest_loss_whatever_the_weights():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        losses = torch.rand(3, 4, generator=generator).double()
        present = torch.rand(3, 4, generator=generator) < 0.6
        weight = torch.rand(4, generator=generator).double().mul(20).exp()
        for classes in ('present', 'all', [1, 3]):
            counted = losses[present] if classes == 'present' else losses if classes == 'all' else losses[:, classes]
            mean = class_average(losses, present, torch.ones(3, dtype=torch.bool), classes, weight)
            assert counted.min() - 1e-12 <= mean <= counted.max() + 1e-12


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
def test_keeps_the_dtype(dtype):
    losses, present = torch.ones(1, 2, dtype=dtype), torch.ones(1, 2, dtype=torch.bool)
    assert class_average(losses, present, present.any(1), 'all', torch.ones(2).double()).dtype == dtype


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (lambda: average([[0.1, 0.2]], [0, 2]), '`classes`.*below 2.*Found 2'),
        (lambda: average([[0.1, 0.2]], class_weight=[1.0]), '`class_weight`.*2 classes.*Found 1'),
        (lambda: average([[0.1, 0.2]], class_weight=[1.0, 1.0, 1.0]), '`class_weight`.*2 classes.*Found 3'),
    ],
)
def test_settings_that_do_not_fit_the_classes(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize('classes', ['present', 'all', [0], [3, 1], (0, 5)], ids=str)
def test_classes_that_are_fine(classes):
    check_classes(classes)


@pytest.mark.parametrize(
    ('classes', 'error', 'found'),
    [
        ('absent', ValueError, "'absent'"),
        ('', ValueError, "''"),
        ([], ValueError, r'\[\]'),
        ([-1], ValueError, r'\[-1\]'),
        ([1, 1], ValueError, r'\[1, 1\]'),
        (None, TypeError, 'None'),
        (3, TypeError, '3'),
        ([0.5], TypeError, r'\[0.5\]'),
        ([True], TypeError, r'\[True\]'),
        (['0'], TypeError, r"\['0'\]"),
        ({0, 1}, TypeError, r'\{0, 1\}'),
    ],
)
def test_classes_that_are_not(classes, error, found):
    with pytest.raises(error, match=f'`classes`.*Found {found}'):
        check_classes(classes)


def test_weights_of_classes_are_a_tensor_or_none():
    assert class_weights(None) is None
    for values in ([0, 1.5], (0.0, 1.5), torch.tensor([0, 1.5])):
        assert class_weights(values).tolist() == [0, 1.5]


@pytest.mark.parametrize(
    ('values', 'error', 'found'),
    [
        ([1.0, -0.5], ValueError, r'\[1.0, -0.5\]'),
        ([1.0, math.nan], ValueError, r'\[1.0, nan\]'),
        ([[1.0, 2.0]], ValueError, r'\[\[1.0, 2.0\]\]'),
        (2.0, ValueError, '2.0'),
        ('weights.npy', TypeError, "'weights.npy'"),
    ],
)
def test_weights_that_are_none(values, error, found):
    with pytest.raises(error, match=f'`class_weight`.*Found {found}'):
        class_weights(values)

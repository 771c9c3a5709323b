import math

import pytest
import torch

from mmseg_nondecomp.functional.items import can_be_read, class_items, number_of_classes, one_of_two, valid_items


def valid(labels, n_labels=3, ignore_index=None, weight=None, dtype=torch.long):
    labels = torch.tensor(labels, dtype=dtype)
    weight = None if weight is None else torch.tensor(weight)
    return valid_items(torch.zeros(len(labels), n_labels), labels, weight, ignore_index, n_labels).tolist()


def items(scores, target, valid=None, weight=None, zero_is_class=False):
    valid = torch.ones(scores.shape[0], *scores.shape[2:], dtype=torch.bool) if valid is None else valid
    return class_items(scores, target, valid, weight, zero_is_class)


def test_labels_and_weights_take_items_out():
    assert valid([0, 255, 2]) == [True, False, True]
    assert valid([0, 1, 2], ignore_index=1) == [True, False, True]
    assert valid([0, 1, 255], weight=[0.0, 1e-30, 1.0]) == [False, True, False]


def test_an_item_with_weight_zero_may_carry_any_label():
    assert valid([0, -7, 99], weight=[1.0, 0.0, 0.0]) == [True, False, False]


@pytest.mark.parametrize(('n_labels', 'is_class'), [(254, False), (255, False), (256, True), (1000, True)])
def test_255_is_ignored_where_it_cannot_be_a_class(n_labels, is_class):
    assert valid([0, 255], n_labels) == [True, is_class]
    assert valid([0, 255], n_labels, ignore_index=255) == [True, False]


@pytest.mark.parametrize('dtype', [torch.uint8, torch.int16, torch.int32])
def test_small_integers_do_not_wrap(dtype):
    assert valid([0, 200], 300, dtype=dtype) == [True, True]
    assert valid([0, 156], 300, ignore_index=-100, dtype=dtype) == [True, True]


def test_probabilities_are_never_ignored_by_their_value():
    pred = torch.zeros(2, 3)
    assert valid_items(pred, torch.ones(2, 3), None, 1, 3).all()
    assert valid_items(pred, torch.rand(2, 3), torch.tensor([0.0, 1.0]), None, 3).tolist() == [False, True]


@pytest.mark.parametrize(('label', 'n_labels'), [(-1, 3), (3, 3), (254, 3), (256, 256)])
def test_a_label_that_is_no_class(label, n_labels):
    with pytest.raises(ValueError, match=rf'`target` .*\[0, {n_labels - 1}\].* Found {label} \(in 1 items\)'):
        valid([0, label], n_labels)


@pytest.mark.parametrize(
    ('pred', 'target', 'weight', 'error', 'message'),
    [
        (torch.zeros(4, 2).long(), torch.zeros(4).long(), None, TypeError, '`pred`.*int64'),
        (torch.zeros(4), torch.zeros(4).long(), None, ValueError, r'`pred`.*\[N, C, \*\].*\(4,\)'),
        (torch.zeros(4, 2), torch.zeros(3).long(), None, ValueError, r'`target`.*\(4,\).*\(3,\)'),
        (torch.zeros(4, 2, 5), torch.zeros(4, 2).long(), None, ValueError, r'`target`.*\(4, 5\).*\(4, 2\)'),
        (torch.zeros(4, 2), torch.zeros(4), None, ValueError, '`target`.*class indices.*float32'),
        (torch.zeros(4, 2), torch.zeros(4, 3), None, ValueError, r'`target`.*\(4, 2\).*\(4, 3\)'),
        (torch.zeros(4, 2), torch.zeros(4, 2).long(), None, ValueError, '`target`.*int64'),
        (torch.zeros(4, 2), torch.zeros(4).long(), torch.ones(4, 2), ValueError, r'`weight`.*\(4,\).*\(4, 2\)'),
        (torch.zeros(2, 2), torch.zeros(2).long(), torch.tensor([1, -0.5]), ValueError, '`weight`.*negative.*-0.5'),
        ([[0.0, 0.0]], torch.zeros(1).long(), None, TypeError, '`pred`.*a tensor.*list'),
        (torch.zeros(1, 2), [0], None, TypeError, '`target`.*a tensor.*list'),
        (torch.zeros(1, 2), None, None, TypeError, '`target`.*a tensor.*None'),
        (torch.zeros(1, 2), torch.zeros(1).long(), [1.0], TypeError, '`weight`.*a tensor.*list'),
        (torch.zeros(1, 2) + 0j, torch.zeros(1).long(), None, TypeError, '`pred`.*real.*complex64'),
        (torch.zeros(1, 2), torch.zeros(1) + 0j, None, TypeError, '`target`.*real.*complex64'),
    ],
)
def test_tensors_that_do_not_fit(pred, target, weight, error, message):
    with pytest.raises(error, match=message):
        valid_items(pred, target, weight, None, 2)


def test_the_user_s_name_of_the_prediction_is_in_the_message():
    with pytest.raises(TypeError, match='`logits`'):
        valid_items(torch.zeros(4, 2).long(), torch.zeros(4).long(), None, None, 2, 'logits')


@pytest.mark.parametrize('space', [(6,), (2, 3), (1, 2, 3)], ids=str)
def test_images_are_flattened(space):
    scores, target = torch.arange(36.0).view(2, 3, *space), torch.arange(12).view(2, *space) % 3
    found = items(scores, target)
    assert torch.equal(found.scores, scores.view(2, 3, 6))
    assert torch.equal(found.target, target.view(2, 6))
    assert found.mass.dtype == torch.int32
    assert found.mass.eq(1).all()


def test_items_without_a_position_are_one_set():
    scores, target, shares = torch.rand(5, 3), torch.tensor([0, 1, 2, 1, 0]), torch.rand(5, 3)
    weight = torch.rand(5)
    found = items(scores, target, weight=weight)
    assert torch.equal(found.scores, scores.t()[None])
    assert torch.equal(found.target, target[None])
    assert found.mass.dtype == torch.float64
    assert torch.equal(found.mass, weight.double()[None])
    assert torch.equal(items(scores, shares).target, shares.t()[None])


@pytest.mark.parametrize(('zero_is_class', 'expected'), [(False, [1, 0, 1]), (True, [0, 1, 0])])
def test_the_label_of_the_only_class(zero_is_class, expected):
    found = items(torch.zeros(1, 1, 3), torch.tensor([[0, 1, 0]]), zero_is_class=zero_is_class)
    assert found.target.tolist() == [expected]


def test_ignored_items_have_no_mass_and_no_class():
    valid = torch.tensor([[True, False, True]])
    weight = torch.tensor([[0.5, math.nan, 2.0]])
    found = items(torch.zeros(1, 2, 3), torch.tensor([[1, 255, 0]]), valid, weight)
    assert found.mass.tolist() == [[0.5, 0.0, 2.0]]
    assert found.target.tolist() == [[1, 2, 0]]
    shares = torch.tensor([[[0.3, math.nan, 1.0], [0.7, -9.0, 0.0]]])
    assert (
        items(torch.zeros(1, 2, 3), shares, valid).target.tolist()
        == torch.tensor([[[0.3, 0, 1], [0.7, 0, 0]]]).tolist()
    )


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_scores_and_shares_are_float32_or_better(dtype):
    found = items(torch.zeros(1, 2, 3, dtype=dtype), torch.zeros(1, 2, 3, dtype=torch.float16))
    assert found.scores.dtype == found.target.dtype == torch.promote_types(dtype, torch.float32)


@pytest.mark.parametrize('share', [-0.1, 1.1])
def test_shares_that_are_none(share):
    pred, shares = torch.zeros(1, 1, 2), torch.tensor([[[0.5, share]]])
    with pytest.raises(ValueError, match=rf'`target`.*\[0, 1\].* {share}'):
        valid_items(pred, shares, None, None, 1)
    assert valid_items(pred, shares, torch.tensor([[1.0, 0.0]]), None, 1).tolist() == [[True, False]]


@pytest.mark.parametrize('label', ['void', 0.5, True, torch.tensor(3)])
def test_an_ignored_label_that_is_no_integer(label):
    with pytest.raises(TypeError, match=r'`ignore_index`.*an integer'):
        valid([0, 1], ignore_index=label)


def test_two_channels_are_one_decision_where_labels_say_so():
    pred, labels = torch.randn(2, 2, 3).half(), torch.zeros(2, 3).long()
    found = one_of_two(pred, labels)
    assert found.dtype == torch.float32
    assert torch.equal(found, pred[:, 1:].float() - pred[:, :1].float())
    assert one_of_two(pred, torch.zeros(2, 2, 3)).shape == pred.shape
    assert one_of_two(torch.zeros(2, 3, 3), labels).shape == (2, 3, 3)


def test_the_number_of_classes():
    assert number_of_classes(torch.zeros(2, 5, 3)) == 5
    assert number_of_classes(torch.zeros(2)) == 0
    with pytest.raises(TypeError, match=r'`probs`.*a tensor'):
        number_of_classes([1.0], 'probs')


def test_values_are_looked_at_only_where_that_is_free():
    assert can_be_read(torch.zeros(1))
    assert not can_be_read(torch.zeros(1, device='meta'))

import pytest
import torch

from mmseg_nondecomp.losses.base import SetLoss, valid_items


def loss(loss_weight=1.0, loss_name='loss_set', scope='image', **leaked):
    return SetLoss(loss_weight, loss_name, scope, leaked)


def valid(labels, n_labels=3, ignore_index=None, weight=None, dtype=torch.long):
    labels = torch.tensor(labels, dtype=dtype)
    weight = None if weight is None else torch.tensor(weight)
    return valid_items(torch.zeros(len(labels), n_labels), labels, weight, ignore_index, n_labels).tolist()


def test_keeps_the_arguments_of_the_config():
    found = loss(0.4, 'aux_loss', 'world')
    assert (found.loss_weight, found.loss_name, found.scope) == (0.4, 'aux_loss', 'world')
    assert found.state_dict() == {}


@pytest.mark.parametrize('name', ['acc_seg', '', None, 3])
def test_a_name_on_which_mmengine_would_not_train(name):
    with pytest.raises(ValueError, match=f'`loss_name`.*{name!r}'):
        loss(loss_name=name)


def test_leaked_arguments_are_all_named_with_the_cure():
    with pytest.raises(TypeError, match=r"`use_sigmoid`, `avg_non_ignore`.*`_delete_=True`.*type='SetLoss'"):
        loss(use_sigmoid=False, avg_non_ignore=True)


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
    assert valid_items(pred, torch.full((2, 3), 255.0), None, 255, 3).all()
    assert valid_items(pred, torch.rand(2, 3), torch.tensor([0.0, 1.0]), None, 3).tolist() == [False, True]


@pytest.mark.parametrize(('label', 'n_labels'), [(-1, 3), (3, 3), (254, 3), (256, 256)])
def test_a_label_that_is_no_class(label, n_labels):
    with pytest.raises(ValueError, match=rf'`target` .*\[0, {n_labels - 1}\].* Found {label} \(in 1 items\)'):
        valid([0, label], n_labels)

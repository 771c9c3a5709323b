import pytest

from mmseg_nondecomp.losses.base import SetLoss


def loss(loss_weight=1.0, loss_name='loss_set', scope='image', **leaked):
    return SetLoss(loss_weight, loss_name, scope, leaked)


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

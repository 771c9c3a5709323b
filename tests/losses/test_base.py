import pytest
import torch

from mmseg_nondecomp.losses import _base
from mmseg_nondecomp.losses._base import (
    SetLoss,
    Value,
    is_traced_in_training,
    log_scalar,
    training_iteration,
)


class MeanScore(SetLoss):
    """The mean of the scores, with every hook of the base class recorded."""

    default_name = 'loss_mean'
    shown = ('scope',)

    def __init__(self, **common):
        super().__init__(**common)
        self.calls = []

    def value(self, inputs, **_):
        return Value(inputs.scores.mean(), 'statistics')

    def terms(self, inputs):
        return inputs.scores.mean(1) / inputs.valid.numel()

    def tick(self):
        self.calls.append('tick')

    def observe(self, inputs, statistics):
        self.calls.append(statistics)

    def measures(self, inputs, statistics):
        return {'largest': inputs.scores.max()}


SCORES, LABELS = torch.arange(24.0).view(2, 3, 4), torch.zeros(2, 4).long()


def test_the_arguments_of_the_config_are_kept():
    found = MeanScore(loss_weight=0.4, loss_name='aux_loss', scope='world')
    assert (found.loss_weight, found.loss_name, found.scope) == (0.4, 'aux_loss', 'world')
    assert found.state_dict() == {}
    assert str(found) == "MeanScore(scope='world')"
    assert (MeanScore().loss_name, MeanScore().scope) == ('loss_mean', 'batch')


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        *((dict(loss_name=name), ValueError, f'`loss_name`.*{name!r}') for name in ('acc_seg', '', 3)),
        (
            dict(use_sigmoid=False, avg_non_ignore=True),
            TypeError,
            r"`avg_non_ignore`, `use_sigmoid`.*`_delete_=True`.*'",
        ),
    ],
)
def test_arguments_out_of_range_and_unexpected_ones_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        MeanScore(**arguments)


def test_the_state_changes_only_in_calls_that_train():
    loss = MeanScore()
    loss(SCORES, LABELS, reduction_override='none')
    with torch.no_grad():
        loss(SCORES, LABELS)
    loss.eval()(SCORES, LABELS)
    assert loss.calls == []
    loss.train()(SCORES, LABELS)
    assert loss.calls == ['tick', 'statistics']


def test_the_factor_applies_to_the_value_and_to_the_terms_which_a_loss_without_them_refuses():
    class OfAll(MeanScore):
        has_terms = False

    loss = MeanScore(loss_weight=0.5)
    assert loss(SCORES, LABELS) == SCORES.mean() / 2
    terms = loss(SCORES, LABELS, reduction_override='none')
    assert terms.shape == LABELS.shape
    torch.testing.assert_close(terms.sum(), SCORES.mean() / 2)
    with pytest.raises(ValueError, match=r'`reduction_override` should not be "none" for OfAll'):
        OfAll()(SCORES, LABELS, reduction_override='none')
    with pytest.raises(
        ValueError, match=r'`reduction_override` should be None, "none", "mean" or "sum". Found \'all\''
    ):
        loss(SCORES, LABELS, reduction_override='all')


@pytest.mark.parametrize('stage', [None, 'val', 'test'])
def test_nothing_is_logged_unless_a_runner_trains(hub, stage):
    hub.update_info('iter', 3)
    hub.update_info('loop_stage', stage)
    if stage is None:
        hub.runtime_info.pop('loop_stage')
    log_scalar('loss_support', torch.tensor(0.5))
    MeanScore()(SCORES, LABELS)
    assert training_iteration() is None
    assert not hub.log_scalars


def test_measures_are_logged_beside_the_losses_while_a_runner_trains(hub):
    hub.update_info('iter', 3)
    for value in (0.25, 0.75):
        log_scalar('loss_support', torch.tensor(value, requires_grad=True))
    MeanScore(loss_name='loss_of_a_head')(SCORES, LABELS)
    assert training_iteration() == 3
    assert hub.get_scalar('train/loss_support').data[0].tolist() == [0.25, 0.75]
    assert hub.get_scalar('train/loss_of_a_head_largest').data[0].tolist() == [23.0]


def test_nothing_is_logged_in_a_compiled_graph_or_without_mmengine(hub, monkeypatch):
    @torch.compile(fullgraph=True, backend='eager')
    def double_and_log(x):
        log_scalar('loss_support', x)
        return x * 2

    assert double_and_log(torch.tensor(2.0)) == 4
    monkeypatch.setattr(_base, 'HAS_MMENGINE', False)
    log_scalar('loss_support', torch.tensor(0.5))
    assert not hub.log_scalars
    assert not is_traced_in_training()


def test_a_graph_is_traced_again_when_a_runner_begins_to_train(hub):
    @torch.compile(fullgraph=True, backend='eager')
    def add_one_in_training(x):
        return x + is_traced_in_training()

    for stage, expected in (('val', 0), ('train', 1), ('val', 0), ('train', 1)):
        hub.update_info('loop_stage', stage)
        assert add_one_in_training(torch.tensor(0)) == expected
    assert not is_traced_in_training()

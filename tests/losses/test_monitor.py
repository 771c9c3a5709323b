import needs_openmmlab  # noqa: F401  isort: skip

from uuid import uuid4

import pytest
import torch
from mmengine.logging import MessageHub

from mmseg_nondecomp.losses import monitor
from mmseg_nondecomp.losses.monitor import is_traced_in_training, log_scalar


@pytest.fixture
def hub():
    """The current hub, as MMEngine's RuntimeInfoHook leaves it before anything has run."""
    return MessageHub.get_instance(str(uuid4()))


@pytest.mark.parametrize('stage', [None, 'val', 'test'])
def test_logs_nothing_unless_a_runner_trains(hub, stage):
    hub.update_info('iter', 3)
    if stage is not None:
        hub.update_info('loop_stage', stage)
    log_scalar('loss_support', torch.tensor(0.5))
    assert not hub.log_scalars


def test_logs_beside_the_losses_while_a_runner_trains(hub):
    hub.update_info('loop_stage', 'train')
    for value in (0.25, 0.75):
        log_scalar('loss_support', torch.tensor(value, requires_grad=True))
    assert hub.get_scalar('train/loss_support').data[0].tolist() == [0.25, 0.75]


def test_does_nothing_without_mmengine(hub, monkeypatch):
    hub.update_info('loop_stage', 'train')
    monkeypatch.setattr(monitor, 'HAS_MMENGINE', False)
    log_scalar('loss_support', torch.tensor(0.5))
    assert not hub.log_scalars


def test_does_nothing_in_a_compiled_graph(hub):
    hub.update_info('loop_stage', 'train')

    @torch.compile(fullgraph=True, backend='eager')
    def double_and_log(x):
        log_scalar('loss_support', x)
        return x * 2

    assert double_and_log(torch.tensor(2.0)) == 4
    assert not hub.log_scalars


def test_a_graph_knows_whether_a_runner_trains(hub):
    @torch.compile(fullgraph=True, backend='eager')
    def add_if_it_does(x):
        return x + is_traced_in_training()

    zero = torch.tensor(0)
    assert add_if_it_does(zero) == 0
    for stage, expected in (('train', 1), ('val', 0), ('train', 1)):
        hub.update_info('loop_stage', stage)
        assert add_if_it_does(zero) == expected
    assert not is_traced_in_training()

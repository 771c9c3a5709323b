import pytest
from comparison.schedule import SCHEDULES, stretch
from mmengine.config import Config
from mmengine.optim import _ParamScheduler
from mmengine.registry import PARAM_SCHEDULERS
from torch import nn, optim

SCHEDULERS = [
    dict(type='PolyLR', eta_min=1e-4, power=0.9, begin=0, end=40, by_epoch=False),
    [
        dict(type='LinearLR', start_factor=0.1, begin=0, end=10, by_epoch=False),
        dict(type='MultiStepLR', milestones=[20, 30], gamma=0.1, begin=10, end=40, by_epoch=False),
    ],
    dict(type='CosineAnnealingLR', T_max=40, eta_min=0.0, by_epoch=False),
    dict(type='StepLR', step_size=8, gamma=0.5, by_epoch=False),
]


def learning_rates(schedulers, n):
    optimizer = optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    settings = schedulers if isinstance(schedulers, list) else [schedulers]
    built = [PARAM_SCHEDULERS.build({**dict(each), 'optimizer': optimizer}) for each in settings]
    assert all(isinstance(each, _ParamScheduler) for each in built)
    rates = []
    for _ in range(n):
        rates.append(optimizer.param_groups[0]['lr'])
        optimizer.step()
        for each in built:
            each.step()
    return rates


@pytest.mark.parametrize('schedulers', SCHEDULERS, ids=str)
def test_the_learning_rate_is_that_of_the_same_share_of_the_training(schedulers):
    cfg = Config(dict(train_cfg=dict(type='IterBasedTrainLoop', max_iters=40), param_scheduler=schedulers))
    short = learning_rates(cfg.param_scheduler, 40)
    stretch(cfg, 5)
    assert cfg.train_cfg.max_iters == 200
    one_step = 0.1  # of the warm-up, whose last step is at its end and not after it
    assert learning_rates(cfg.param_scheduler, 200)[::5] == pytest.approx(short, abs=one_step)


def test_epochs_are_counted_too():
    cfg = Config(dict(train_cfg=dict(type='EpochBasedTrainLoop', max_epochs=12)))
    stretch(cfg, SCHEDULES['long'])
    assert cfg.train_cfg.max_epochs == 60


def test_short_is_the_config_as_it_is():
    cfg = Config(dict(train_cfg=dict(max_iters=7), param_scheduler=[dict(type='PolyLR', end=7)]))
    before = cfg.to_dict()
    stretch(cfg, SCHEDULES['short'])
    assert cfg.to_dict() == before

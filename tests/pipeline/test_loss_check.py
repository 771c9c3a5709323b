"""tools/train.py and tools/compare.py report mistakes that raise no error."""

import pytest

pytest.importorskip('mmseg')

from comparison import training
from comparison.job import Job

from mmseg_nondecomp import LossCheckHook

SHAPES = 'configs/long_tail_shapes'
HINGE = f'{SHAPES}/tiny-unet_lovasz-hinge-bar_lts.py'
SHORT = ['train_cfg.max_iters=2', 'train_cfg.val_interval=2', 'default_hooks.checkpoint.interval=2']


@pytest.mark.parametrize('config', [f'{SHAPES}/tiny-unet_ce-lovasz-equibatch_lts.py', HINGE])
def test_a_right_config_is_not_reported(tool, tmp_path, config):
    printed = tool('train.py', config, '--work-dir', tmp_path, options=SHORT)
    for phrase in ('WARNING - The config sets', 'Not called up to', 'WARNING - `model', 'Set `', 'Add `dict'):
        assert phrase not in printed


@pytest.mark.parametrize('hooks', [[], [dict(type='LossCheckHook')]], ids=['added', 'in the config'])
def test_a_mistake_is_reported_once(tool, tmp_path, pytestconfig, hooks):
    config = tmp_path / 'mine.py'
    config.write_text(
        f'_base_ = [{str(pytestconfig.rootpath / HINGE)!r}]\ncustom_hooks = {hooks}\n'
        'model = dict(decode_head=dict(threshold=None))\n'
    )
    printed = tool('train.py', config, '--work-dir', tmp_path, options=SHORT)
    assert printed.count('WARNING - `model.decode_head` decides at a probability of 0.3') == 1


class Started:
    """A Runner that does not train."""

    def __init__(self):
        self.hooks = []
        self.register_hook = self.hooks.append

    def train(self):
        raise KeyboardInterrupt


def test_a_training_of_a_comparison_is_checked(tmp_path, monkeypatch, pytestconfig):
    monkeypatch.chdir(pytestconfig.rootpath)
    runner = Started()
    monkeypatch.setattr(training.Runner, 'from_cfg', lambda cfg: runner)
    with pytest.raises(KeyboardInterrupt):
        training.train_and_score(Job(HINGE, 0, tmp_path), print)
    assert [type(hook) for hook in runner.hooks].count(LossCheckHook) == 1

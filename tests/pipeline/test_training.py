"""The scripts of tools/: training, resuming, fine-tuning, testing, several processes, mistakes."""

import json
import re

import pytest
import torch
from stopped_training import stop_at

LMP = 'configs/long_tail_shapes/tiny-unet_lmp_lts.py'


def schedule(iters, every):
    loop = [f'train_cfg.{setting}={iters}' for setting in ('max_iters', 'val_interval')]
    return [*loop, f'default_hooks.checkpoint.interval={every}']


def weights(path):
    return torch.load(path, map_location='cpu', weights_only=False)['state_dict']


def assert_same(first, second):
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    return tmp_path_factory.mktemp('trained')


def test_n_and_n_equals_n_save_resume_n(tool, trained, tmp_path, repeatable):
    options = [*schedule(8, 4), *repeatable]
    log = tool('train.py', LMP, '--work-dir', trained, options=options, in_new_process=True)
    assert 'loss_lmp_support' in log
    assert 'mIoU' in log
    stopped = tmp_path / 'stopped'
    stop_at(4, trained, stopped)
    log = tool('train.py', LMP, '--work-dir', stopped, '--resume', options=options)
    assert 'resumed from' in log or 'resume' in log.lower()
    assert not re.search(r'Iter\(train\) +\[4/8\]', log), 'it began anew'
    assert_same(weights(stopped / 'iter_8.pth'), weights(trained / 'iter_8.pth'))
    with pytest.raises(AssertionError):
        assert_same(weights(trained / 'iter_4.pth'), weights(trained / 'iter_8.pth'))


@pytest.mark.parametrize(
    ('config', 'options'), [('lovasz', ['model.decode_head.loss_decode.memory=3']), ('ce-then-lovasz', [])]
)
def test_state_beyond_a_batch_survives_a_stop(tool, tmp_path, repeatable, config, options):
    """The memory of a loss, and a schedule of its weight."""
    path = f'configs/long_tail_shapes/tiny-unet_{config}_lts.py'
    through, stopped = tmp_path / 'through', tmp_path / 'stopped'
    settings = [*schedule(6, 2), *repeatable, *options]
    log = tool('train.py', path, '--work-dir', through, options=settings)
    assert 'loss_lovasz_miou' in log
    stop_at(2, through, stopped)
    tool('train.py', path, '--work-dir', stopped, '--resume', options=settings)
    assert_same(weights(stopped / 'iter_6.pth'), weights(through / 'iter_6.pth'))
    if options:
        assert any('memory' in name and value.numel() for name, value in weights(through / 'iter_6.pth').items())


def test_test_py_repeats_the_validation(tool, trained, tmp_path):
    log = tool('test.py', LMP, trained / 'iter_8.pth', '--work-dir', tmp_path, '--show-dir', tmp_path / 'shown')
    tested = float(re.findall(r'mIoU: ([\d.]+)', log)[-1])
    [scalars] = trained.glob('*/vis_data/scalars.json')
    validated = [json.loads(line) for line in scalars.read_text().splitlines() if 'mIoU' in line]
    assert tested == pytest.approx(validated[-1]['mIoU'])
    assert len(list((tmp_path / 'shown').rglob('*.png'))) == 4


def test_load_from_starts_with_the_weights_and_a_new_schedule(tool, trained, tmp_path):
    start = [*schedule(1, 1), f'load_from={trained / "iter_8.pth"}', 'optim_wrapper.optimizer.lr=0.0']
    tool('train.py', LMP, '--work-dir', tmp_path, options=start)
    begun, source = weights(tmp_path / 'iter_1.pth'), weights(trained / 'iter_8.pth')
    learned = [name for name in source if name.endswith('.weight')]
    assert_same({name: begun[name] for name in learned}, {name: source[name] for name in learned})


def test_mixed_precision(tool, tmp_path):
    """AmpOptimWrapper refuses the CPU. The refusal shows that --amp selects it."""
    on_gpu = torch.cuda.is_available()
    log = tool('train.py', LMP, '--work-dir', tmp_path, '--amp', options=schedule(2, 2), fails=not on_gpu)
    assert ('AmpOptimWrapper' if on_gpu else 'only available training on gpu') in log


def test_two_processes(tool, tmp_path):
    options = [*schedule(2, 2), 'model.decode_head.loss_decode.scope=world']
    assert 'mIoU' in tool('dist_train.sh', LMP, 2, '--work-dir', tmp_path, options=options)


def test_a_leaked_argument_names_the_cure(tool, tmp_path):
    ce = 'configs/long_tail_shapes/tiny-unet_ce_lts.py'
    options = ['model.decode_head.loss_decode.type=LossMaxPooling']
    assert '_delete_=True' in tool('train.py', ce, '--work-dir', tmp_path, options=options, fails=True)

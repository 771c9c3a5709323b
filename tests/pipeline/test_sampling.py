"""Class-driven sampling in the stock training loops: stop and resume, workers, processes, batch samplers, epochs."""

import itertools
import json
import re

import numpy as np
import pytest
import torch
from stopped_training import stop_at

from mmseg_nondecomp import EquiBatchSampler
from mmseg_nondecomp.datasets import LongTailShapes
from mmseg_nondecomp.hooks.train_iou_hook import KEY

CONFIG = 'configs/long_tail_shapes/tiny-unet_{}_lts.py'
SCHEDULE = ['train_cfg.max_iters=8', 'train_cfg.val_interval=8', 'default_hooks.checkpoint.interval=4']
OFTEN = ['custom_hooks.0.interval=1', 'custom_hooks.0.momentum=0.5']


def checkpoint(folder, name='iter_8.pth'):
    return torch.load(folder / name, map_location='cpu', weights_only=False)


def train_iou(folder):
    return checkpoint(folder)['message_hub']['runtime_info'][KEY]


def workers(n):
    return [f'train_dataloader.num_workers={n}', f'train_dataloader.persistent_workers={n > 0}']


@pytest.mark.parametrize(('config', 'options'), [('lovasz-equibatch', []), ('lmp-iou', OFTEN)])
def test_n_and_n_equals_n_save_resume_n(tool, tmp_path, repeatable, config, options):
    path, options = CONFIG.format(config), [*SCHEDULE, *repeatable, *options]
    through, stopped = tmp_path / 'through', tmp_path / 'stopped'
    tool('train.py', path, '--work-dir', through, options=options)
    stop_at(4, through, stopped)
    log = tool('train.py', path, '--work-dir', stopped, '--resume', options=options)
    assert not re.search(r'Iter\(train\) +\[4/8\]', log), 'it began anew'
    torch.testing.assert_close(
        checkpoint(stopped)['state_dict'], checkpoint(through)['state_dict'], rtol=0, atol=0, msg=config
    )
    if config == 'lmp-iou':
        torch.testing.assert_close(train_iou(stopped), train_iou(through), rtol=0, atol=0)
        assert len(train_iou(through)['samplers'][0]['since']) == 9


def test_statistics_are_restored_with_workers(tool, tmp_path):
    """Draws are the same too. Random crops and flips of workers are not, so that the weights differ."""
    n = 2
    path, options = CONFIG.format('lmp-iou'), [*SCHEDULE, *OFTEN, *workers(n)]
    through, stopped = tmp_path / 'through', tmp_path / 'stopped'
    tool('train.py', path, '--work-dir', through, options=options)
    before = checkpoint(through, 'iter_4.pth')['message_hub']['runtime_info'][KEY]
    stop_at(4, through, stopped)
    tool('train.py', path, '--work-dir', stopped, '--resume', options=options)
    after = train_iou(stopped)
    assert after['samplers'][0]['since'] == train_iou(through)['samplers'][0]['since']
    torch.testing.assert_close(after['samplers'][0]['iou'][:5], before['samplers'][0]['iou'], rtol=0, atol=0)
    drawn_ahead = 2 * n * 2
    assert after['samplers'][0]['since'] == [0, *range(2 + drawn_ahead, 2 * 9 + drawn_ahead, 2)]


def test_one_of_two_processes_builds_the_index(tool, tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    log = tool('dist_train.sh', CONFIG.format('ce-iou'), 2, '--work-dir', tmp_path, options=[*SCHEDULE, *workers(2)])
    assert 'mIoU' in log
    assert log.count('counting classes') == 1


def test_iou_of_training_and_of_validation_are_shown_apart(tool, tmp_path):
    tool('train.py', CONFIG.format('ce-iou'), '--work-dir', tmp_path, options=[*SCHEDULE, *OFTEN])
    [file] = tmp_path.glob('*/vis_data/scalars.json')
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [0 <= row['train/mIoU'] <= 1 for row in rows if 'loss' in row] == [True] * 8
    assert [('train/mIoU' in row, 'loss' in row) for row in rows if 'mIoU' in row] == [(False, False)]
    assert {'train/IoU.plain', 'train/IoU.disk'} <= set().union(*rows)


def test_first_start_and_second_are_the_same(tool, tmp_path, monkeypatch):
    """The first start counts the classes, the second reads them."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    for name in ('first', 'second'):
        log = tool('train.py', CONFIG.format('ce-equibatch'), '--work-dir', tmp_path / name, options=SCHEDULE)
        assert ('counting classes' in log) == (name == 'first')
    states = [checkpoint(tmp_path / name)['state_dict'] for name in ('first', 'second')]
    torch.testing.assert_close(*states, rtol=0, atol=0)


def test_as_batch_sampler(tool, tmp_path):
    """The same images in the same batches, so the same weights."""
    path = CONFIG.format('ce-equibatch')
    tool('train.py', path, '--work-dir', tmp_path / 'sampler', options=SCHEDULE)
    options = [
        *SCHEDULE,
        'train_dataloader.sampler.type=InfiniteSampler',
        'train_dataloader.batch_sampler.type=EquiBatchSampler',
    ]
    tool('train.py', path, '--work-dir', tmp_path / 'batches', options=options)
    states = [checkpoint(tmp_path / name)['state_dict'] for name in ('sampler', 'batches')]
    torch.testing.assert_close(*states, rtol=0, atol=0)


@pytest.mark.parametrize('resize', [[], [dict(type='mmseg.RandomResize', scale=(128, 128), ratio_range=(0.5, 2.0))]])
def test_class_is_in_the_crop(scenes, resize):
    """In every sample; with the stock crop in about half of them."""
    found = {}
    for crop in ('mmseg.RandomCrop', 'RandomCropOnClass'):
        pipeline = [
            dict(type='mmseg.LoadImageFromFile'),
            dict(type='mmseg.LoadAnnotations'),
            *resize,
            dict(type=crop, crop_size=(64, 64), cat_max_ratio=0.75),
        ]
        data = LongTailShapes(data_root=scenes, num_images=64, pipeline=pipeline)
        np.random.seed(0)
        draws = list(itertools.islice(EquiBatchSampler(data, seed=0), 320))
        found[crop] = np.mean([(data[index]['gt_seg_map'] == index.cls).any() for index in draws])
    assert found['RandomCropOnClass'] == 1
    assert found['mmseg.RandomCrop'] < 0.7


def test_epochs(tool, tmp_path):
    options = [
        'train_cfg._delete_=True',
        'train_cfg.type=EpochBasedTrainLoop',
        'train_cfg.max_epochs=2',
        'train_dataloader.sampler.infinite=False',
        'default_hooks.checkpoint.by_epoch=True',
        'default_hooks.checkpoint.interval=1',
        'default_hooks.logger.log_metric_by_epoch=True',
        'log_processor.by_epoch=True',
        *OFTEN,
    ]
    log = tool('train.py', CONFIG.format('ce-iou'), '--work-dir', tmp_path, options=options)
    assert re.search(r'Epoch\(train\) +\[2\]\[4/4\]', log)
    assert checkpoint(tmp_path, 'epoch_2.pth')['meta']['iter'] == 8

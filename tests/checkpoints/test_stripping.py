"""A resumed checkpoint runs no code and deletes no file of others."""

import uuid
from collections import OrderedDict

import pytest
import torch

pytest.importorskip('mmengine')

from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import CheckpointLoader, Runner

from mmseg_nondecomp.checkpoints._stripping import strip_instructions

pytestmark = pytest.mark.skipif(
    torch.__version__ < '2.6', reason='older versions do not restrict `torch.load` by default'
)


class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, inputs, data_samples=None, mode='tensor'):
        return {'loss': self.weight.square().sum()} if mode == 'loss' else [self.weight]


class Score(Hook):
    """A score that grows, so that each validation has a new best checkpoint."""

    def after_val_epoch(self, runner, metrics=None):
        metrics['score'] = runner.iter


class Nothing(Evaluator):
    def evaluate(self, size):
        return {}


def runner_of(folder, iterations, **settings):
    data = dict(dataset=[{'inputs': torch.ones(1)}] * 4, batch_size=1, sampler=dict(type='DefaultSampler'))
    return Runner(
        Model(),
        str(folder),
        train_dataloader=data,
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=iterations, val_interval=2),
        val_dataloader=data,
        val_cfg=dict(),
        val_evaluator=Nothing([]),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
        default_hooks=dict(
            checkpoint=dict(type='CheckpointHook', interval=2, by_epoch=False, save_best='score', rule='greater')
        ),
        custom_hooks=[dict(type=Score)],
        experiment_name=uuid.uuid4().hex,
        log_level='ERROR',
        **settings,
    )


@pytest.fixture
def checkpoint(tmp_path):
    """The path of a checkpoint, and what is in it."""
    runner_of(tmp_path / 'first', 2).train()
    path = tmp_path / 'first' / 'iter_2.pth'
    return path, torch.load(path, weights_only=False)


def test_no_text_of_a_checkpoint_is_run(checkpoint, tmp_path):
    path, content = checkpoint
    trace = tmp_path / 'trace'
    content['meta']['config'] = f'open({str(trace)!r}, "w")'
    torch.save(content, path)
    runner = runner_of(tmp_path / 'second', 4, resume=True, load_from=str(path))
    runner.train()
    assert runner.iter == 4
    assert not trace.exists()


def test_no_file_of_others_is_deleted(checkpoint, tmp_path):
    path, content = checkpoint
    precious = tmp_path / 'best_of_others.txt'
    precious.write_text('precious')
    content['message_hub']['runtime_info']['best_ckpt'] = str(precious)
    torch.save(content, path)
    runner_of(tmp_path / 'second', 4, resume=True, load_from=str(path)).train()
    assert precious.exists()
    assert (tmp_path / 'second' / 'best_score_iter_4.pth').exists()


def test_a_training_that_goes_on_still_replaces_its_best_checkpoint(checkpoint):
    path, _ = checkpoint
    best = path.parent / 'best_score_iter_2.pth'
    assert best.exists()
    runner_of(path.parent, 4, resume=True, load_from=str(path)).train()
    assert (path.parent / 'best_score_iter_4.pth').exists()
    assert not best.exists()


@pytest.mark.parametrize(
    'given',
    ['../best_a.pth', '/best_a.pth', 'a.pth', 'best_a.pth/../../best_b.pth', '', 3, None, ['best_a.pth'], 'best_\0'],
)
def test_paths_elsewhere_are_forgotten(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'a.pth').touch()
    for name in ('best_ckpt', 'best_ckpt_mIoU'):
        info = {name: given, 'best_score': 1.0}
        strip_instructions({'message_hub': {'runtime_info': info}}, 'a.pth')
        assert info == {'best_score': 1.0}


def test_own_paths_are_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'a.pth').touch()
    (tmp_path / 'link').symlink_to(tmp_path)
    info = {'best_ckpt': 'best_a.pth', 'best_ckpt_mIoU': f'{tmp_path}/link/best_b.pth', 'keep_ckpt_ids': [1, 2]}
    before = dict(info)
    strip_instructions({'message_hub': {'runtime_info': info}}, 'a.pth')
    assert info == before


def test_what_was_downloaded_has_no_paths(tmp_path):
    info = {'best_ckpt': str(tmp_path / 'best_a.pth')}
    strip_instructions({'message_hub': {'runtime_info': info}}, 'https://example.com/a.pth')
    assert info == {}


@pytest.mark.parametrize('given', [['../../a'], 'abc', [1.5], None])
def test_checkpoints_to_delete_are_numbers(given):
    info = {'keep_ckpt_ids': given}
    strip_instructions({'message_hub': {'runtime_info': info}}, 'a.pth')
    assert info == {}


def test_an_ordered_dict_with_methods_of_its_own(tmp_path):
    meta = OrderedDict(config='1 / 0')
    vars(meta).update(pop=set, get=set, __delitem__=set)
    torch.save({'meta': meta, 'state_dict': {}}, tmp_path / 'a.pth')
    assert 'config' not in CheckpointLoader.load_checkpoint(str(tmp_path / 'a.pth'), logger='silent')['meta']


@pytest.mark.parametrize('given', [None, [], torch.ones(2), {'meta': None}, {'meta': 'config'}, {'message_hub': [1]}])
def test_what_is_no_checkpoint_is_handed_on(given):
    assert strip_instructions(given, 'a.pth') is given

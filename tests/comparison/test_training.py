"""The folder of a training of a comparison."""

import json
from types import SimpleNamespace

import pytest
import torch
from comparison.job import Job
from comparison.training import RESULT, STARTED, keep_final_weights, prepare, train_and_score
from mmengine.runner import load_checkpoint
from torch import nn

CONFIG = 'configs/long_tail_shapes/tiny-unet_ce_lts.py'


@pytest.fixture
def job(tmp_path, monkeypatch, pytestconfig):
    monkeypatch.chdir(pytestconfig.rootpath)
    return Job(CONFIG, 0, tmp_path)


def test_files_of_the_same_training_are_kept(job):
    assert prepare(job)['starts'] == 1
    (job.work_dir / 'last_checkpoint').touch()
    assert prepare(job)['starts'] == 2
    assert (job.work_dir / 'last_checkpoint').exists()


def test_a_finished_training_is_left_as_it_is(job):
    job.work_dir.mkdir(parents=True)
    (job.work_dir / RESULT).write_text(json.dumps({'fingerprint': job.fingerprint()}))
    train_and_score(job, pytest.fail)
    assert [path.name for path in job.work_dir.iterdir()] == [RESULT]


def of_other_settings(job):
    job.work_dir.mkdir(parents=True)
    (job.work_dir / STARTED).write_text(json.dumps({'fingerprint': 'other', 'starts': 7}))
    (job.work_dir / 'last_checkpoint').touch()


def test_files_of_a_training_with_other_settings_are_removed(job):
    of_other_settings(job)
    assert prepare(job)['starts'] == 1
    assert [path.name for path in job.work_dir.iterdir()] == [STARTED]
    assert [path.name for path in job.work_dir.parent.iterdir()] == [job.work_dir.name]


def test_a_removal_that_is_killed_leaves_no_checkpoint_to_resume_from(job, monkeypatch):
    of_other_settings(job)

    def kill(path, ignore_errors=False):
        if not ignore_errors:
            raise KeyboardInterrupt

    monkeypatch.setattr('comparison.training.shutil', SimpleNamespace(rmtree=kill))
    with pytest.raises(KeyboardInterrupt):
        prepare(job)
    assert not job.work_dir.exists()
    assert prepare(job)['starts'] == 1


def test_of_a_finished_training_the_final_weights_are_left(tmp_path):
    networks = [nn.Linear(3, 2), nn.Linear(3, 2)]
    for iteration, network in enumerate(networks, 1):
        state = dict(meta=dict(iter=iteration), state_dict=network.state_dict(), optimizer=dict(state=torch.ones(99)))
        torch.save(state, tmp_path / f'iter_{iteration}.pth')
    torch.save({}, tmp_path / 'best_mIoU_iter_1.pth')
    (tmp_path / 'last_checkpoint').write_text('/moved/iter_2.pth')
    keep_final_weights(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ['best_mIoU_iter_1.pth', 'iter_2.pth', 'last_checkpoint']
    assert set(torch.load(tmp_path / 'iter_2.pth')) == {'meta', 'state_dict'}
    loaded = nn.Linear(3, 2)
    load_checkpoint(loaded, str(tmp_path / 'iter_2.pth'), logger='silent')
    assert torch.equal(loaded.weight, networks[1].weight)

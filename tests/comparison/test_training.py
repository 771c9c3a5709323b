"""The folder of a training of a comparison."""

import json
from types import SimpleNamespace

import pytest
from comparison.job import Job
from comparison.training import STARTED, prepare

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

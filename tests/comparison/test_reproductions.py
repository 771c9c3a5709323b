"""Tables 1 and 2 of the loss max-pooling paper, from trainings that have ended."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from comparison.job import Job
from comparison.training import RESULT
from mmengine.registry import MODELS, init_default_scope
from reproductions import lmp_sweep, lmp_table2


@pytest.fixture
def trained(monkeypatch, tmp_path, write_training, pytestconfig):
    """No training: results that are higher for a later way, a higher p and a higher seed."""
    monkeypatch.chdir(pytestconfig.rootpath)

    def score(job):
        ways = [lmp_table2.config_of(way) for way in lmp_table2.WAYS]
        options = {key.split('.')[-1]: value for key, value in job.options.items()}
        p, ratio = options.get('p', 1.3), options.get('ratio', 0.25)
        return 40 + 2 * ways.index(job.config) + min(p, 9) + ratio + job.seed

    def train(jobs, _):
        return [result_of(job) for job in jobs]

    def result_of(job):
        if not (job.work_dir / RESULT).exists():
            areas = [[[score(job), score(job) / 2], [100, 100]]] * 2
            made = write_training(f'{job.name}-{len(made_so_far)}', job.seed, areas, job.schedule)
            made_so_far.append(job)
            made.result['name'] = job.name
            job.work_dir.parent.mkdir(parents=True, exist_ok=True)
            config = Path(job.config).name
            made.result['config'] = job.config
            made.work_dir.rename(job.work_dir)
            (job.work_dir / config).write_text('# a config')
            (job.work_dir / RESULT).write_text(json.dumps(made.result))
        return json.loads((job.work_dir / RESULT).read_text())

    made_so_far = []
    for module in (lmp_sweep, lmp_table2):
        monkeypatch.setattr(module, 'train_missing', train)
        monkeypatch.setattr(module, 'OUT', tmp_path / module.__name__)
    monkeypatch.setattr(lmp_sweep, 'result_of', result_of)
    return made_so_far


def test_tables_have_all_rows_and_share_their_trainings(trained):
    done = lmp_table2.reproduce([0, 1])
    assert len(trained) == 8 * 2 * 2
    assert [row['config'] for row in done.rows] == list(lmp_table2.WAYS.values())
    assert list(done.results) == ['short', 'long']
    assert done.found.count(', best first: Lovász-Softmax, equibatch ') == 2
    assert (lmp_table2.OUT / 'report.html').exists()
    titles = [axis.get_title() for axis in done.figure.axes[:5]]
    assert titles == ['image', 'label', 'BASE', 'LMP', 'Lovász-Softmax, equibatch']

    n_before = len(trained)
    done = lmp_sweep.reproduce([0, 1])
    assert len(trained) - n_before == 2 * (len(lmp_sweep.SETTINGS) - 1 + 2)
    base, *rows, limit, mean = done.rows
    assert [row[''] for row in (base, limit, mean)] == [lmp_sweep.BASE_PLUS, lmp_sweep.LIMIT, lmp_sweep.MEAN]
    assert [row['p'] for row in rows] == ['1', '1.1', '1.3', '1.3', '1.3', '1.7', '2.3', '4', '∞']
    gains = [float(row['against BASE+'].split()[0]) for row in rows if row['share'] == '25 %']
    assert gains == sorted(gains)
    assert f'{gains[-1]:+.1f} at p = ∞' in done.found
    json.dumps(done.results, allow_nan=False)


def test_p_and_share_reach_the_loss(trained):
    loss = lmp_sweep.job_of((math.inf, 0.5), 0).settings().model.decode_head.loss_decode
    assert (loss.type, loss.p, loss.ratio) == ('LossMaxPooling', math.inf, 0.5)
    assert not lmp_sweep.job_of((lmp_sweep.P, lmp_sweep.RATIO), 0).options


def test_the_last_two_rows_have_the_same_loss(trained):
    """At infinity the pooled loss over the batch is the mean over the pixels that are not ignored."""
    init_default_scope('mmseg')
    limit, mean = (
        MODELS.build(lmp_sweep.job_of(key, 0).settings().model.decode_head.loss_decode)
        for key in (lmp_sweep.LIMIT, lmp_sweep.MEAN)
    )
    logits, label = torch.randn(2, 5, 8, 8).double(), torch.randint(0, 5, (2, 8, 8))
    label[0, :3] = 255
    # The stock loss adds float32's epsilon to the number of pixels.
    assert limit(logits, label).item() == pytest.approx(mean(logits, label, ignore_index=255).item(), rel=1e-8)


def test_it_is_the_sampling_of_base_plus(pytestconfig, monkeypatch):
    monkeypatch.chdir(pytestconfig.rootpath)
    base, ours = (Job(lmp_table2.config_of(way), 0, Path()).settings() for way in ('ce-iou', 'lmp-iou'))
    assert ours.train_dataloader == base.train_dataloader
    assert ours.custom_hooks == base.custom_hooks
    assert np.array_equal(ours.crop_size, base.crop_size)

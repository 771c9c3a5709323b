"""One run of a comparison and its scores."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loss_check import check_losses
from mmengine.registry import init_default_scope
from mmengine.runner import Runner
from resuming import SAVED, name_a_whole_checkpoint
from whole_file import whole_file, write_whole

import mmseg_nondecomp  # noqa: F401  registers the losses and makes checkpoints loadable
from comparison.job import Job
from comparison.watch import CURVE, LAST, Watch
from mmseg_nondecomp.checkpoints import load_from_local

RESULT, STARTED = 'result.json', 'started.json'


def result_of(job: Job) -> dict[str, Any] | None:
    """Return the result of a finished run with exactly these settings, if there is one."""
    path = job.work_dir / RESULT
    found = json.loads(path.read_text()) if path.exists() else None
    return found if found and found['fingerprint'] == job.fingerprint() else None


def train_and_score(job: Job, report: Callable[[float], None]) -> None:
    """Train, resuming from the last checkpoint of an interrupted run with the same settings, and save the result.

    A run that has its result is left as it is: its checkpoint contains only the weights.
    """
    if result_of(job):
        return
    started = prepare(job)
    cfg = job.settings()
    cfg.resume = (job.work_dir / 'last_checkpoint').exists()
    if cfg.resume:
        cfg.load_from = None  # initial weights
        name_a_whole_checkpoint(job.work_dir)
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    start = time.monotonic()
    runner = Runner.from_cfg(cfg)
    runner.register_hook(Watch(job.work_dir, report))
    check_losses(runner)
    runner.train()
    seconds = time.monotonic() - start
    write_whole(job.work_dir / RESULT, json.dumps(summary(job, started, runner, seconds), indent=1))
    keep_final_weights(job.work_dir)


def prepare(job: Job) -> dict[str, Any]:
    """Prepare the folder of a run, empty or with the files of the same run; return how often it was started."""
    path, fingerprint = job.work_dir / STARTED, job.fingerprint()
    started = json.loads(path.read_text()) if path.exists() else {}
    if started and started['fingerprint'] != fingerprint:
        aside = job.work_dir.with_name(f'.{job.work_dir.name}-of-other-settings')
        shutil.rmtree(aside, ignore_errors=True)
        job.work_dir.rename(aside)  # atomically: a half-removed folder looks like one to resume from
        shutil.rmtree(aside)
    if not started or started['fingerprint'] != fingerprint:
        started = {'fingerprint': fingerprint, 'starts': 0}
    started['starts'] += 1
    job.work_dir.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(started, indent=1))
    return started


def summary(job: Job, started: dict[str, Any], runner: Runner, seconds: float) -> dict[str, Any]:
    """Return the result of a run, without its pictures and the areas of each image."""
    curve = json.loads((job.work_dir / CURVE).read_text())
    classes = runner.val_dataloader.dataset.metainfo['classes']
    with np.load(job.work_dir / LAST) as last:
        pixels = last['pixels'].tolist()
    return {
        'config': job.config,
        'name': job.name,
        'schedule': job.schedule,
        'seed': job.seed,
        'lr': job.lr,
        'options': dict(job.options),
        **started,
        'iterations': runner.iter,
        'seconds': round(seconds, 1),
        'mIoU': curve[-1]['data set'],
        'image mIoU': curve[-1]['image'],
        'IoU': dict(zip(classes, curve[-1]['classes'], strict=True)),
        'pixels': dict(zip(classes, pixels, strict=True)),
        'curve': [{key: point[key] for key in ('iteration', 'data set', 'image')} for point in curve],
    }


def keep_final_weights(work_dir: Path) -> None:
    """Reduce the checkpoints of a finished run, from which nothing resumes, to the final weights."""
    last = work_dir / Path((work_dir / 'last_checkpoint').read_text()).name
    saved = load_from_local(str(last), map_location='cpu')
    with whole_file(last) as path:
        torch.save({name: saved[name] for name in ('meta', 'state_dict')}, path)
    for other in work_dir.glob('*.pth'):
        if other != last and SAVED.fullmatch(other.name):
            other.unlink()

"""Runs of the detectors of aerial trees, one process each, and the boxes that they detect."""

import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from numpy.typing import NDArray
from whole_file import write_whole

CONFIG = 'configs/aerial_trees/lite0-retinanet_{way}_aerial-trees.py'
AT_A_TIME = 2
OUTPUT = 'output.txt'


class Detected(NamedTuple):
    """Detections in one tile, in descending order of their scores."""

    boxes: NDArray[np.float32]
    """Edges left, top, right, bottom [n, 4]."""
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class Training:
    """Run of a config, and the split in whose tiles trees are detected at its end."""

    way: str
    rate: float
    seed: int
    split: str
    out: Path
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def work_dir(self) -> Path:
        """Folder of the run."""
        return self.out / f'{self.way}-lr{self.rate:g}-seed{self.seed}'

    @property
    def path(self) -> Path:
        """File of the result."""
        return self.work_dir / f'{self.split}.json'

    def settings(self) -> Config:
        """Return the complete config, without validation and checkpoints on the way."""
        cfg = Config.fromfile(CONFIG.format(way=self.way))
        cfg.merge_from_dict({'optim_wrapper.optimizer.lr': self.rate, 'randomness.seed': self.seed, **self.options})
        cfg.merge_from_dict({'test_dataloader.dataset.split': self.split, 'default_hooks.checkpoint': None})
        cfg.update(val_cfg=None, val_dataloader=None, val_evaluator=None, work_dir=str(self.work_dir))
        return cfg

    def fingerprint(self) -> str:
        """Return a fingerprint of all settings."""
        settings = self.settings().to_dict()
        del settings['work_dir']
        return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()

    def result(self) -> list[Detected] | None:
        """Return the detections of a finished run with these settings, if there is one."""
        found = json.loads(self.path.read_text()) if self.path.exists() else {}
        if found.get('fingerprint') != self.fingerprint():
            return None
        return [
            Detected(np.array(tile['boxes'], np.float32).reshape(-1, 4), np.array(tile['scores'], np.float32))
            for tile in found['tiles']
        ]


def train_missing(trainings: Sequence[Training]) -> list[list[Detected]]:
    """Return the detections of all runs; run those without a result."""
    todo = [training for training in trainings if training.result() is None]
    context = multiprocessing.get_context('spawn')
    n_at_a_time = min(AT_A_TIME, os.cpu_count() or 1)
    # A process for each run: MMEngine keeps its logger and default scope.
    with context.Pool(n_at_a_time, torch.set_num_threads, (1,), maxtasksperchild=1) as pool:
        for done, training in enumerate(pool.imap_unordered(run, todo, chunksize=1), 1):
            print(f'{done} of {len(todo)}: {training.path}', file=sys.stderr, flush=True)
    return [found for training in trainings if (found := training.result()) is not None]


def run(training: Training) -> Training:
    """Train, detect, and write the result; the output of MMEngine goes to a file."""
    training.work_dir.mkdir(parents=True, exist_ok=True)
    with (training.work_dir / OUTPUT).open('a') as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
        start = time.monotonic()
        tiles = train_and_detect(training.settings())
        seconds = round(time.monotonic() - start, 1)
    result = {'fingerprint': training.fingerprint(), 'seconds': seconds, 'tiles': tiles}
    write_whole(training.path, json.dumps(result))
    return training


def train_and_detect(cfg: Config) -> list[dict[str, Any]]:
    """Return boxes and scores in each tile of the test split of a config."""
    from mmdet.utils import register_all_modules  # no other reproduction needs MMDetection

    register_all_modules(init_default_scope=True)
    runner = Runner.from_cfg(cfg)
    runner.train()
    model = runner.model.eval()
    tiles = []
    for data in Runner.build_dataloader(cfg.test_dataloader):
        with torch.no_grad():
            [sample] = model.test_step(data)
        found = sample.pred_instances
        # A training that diverged has no finite boxes.
        is_finite = found.bboxes.isfinite().all(1) & found.scores.isfinite()
        order = found.scores[is_finite].argsort(descending=True, stable=True)
        boxes, scores = (part[is_finite][order].double().numpy() for part in (found.bboxes, found.scores))
        tiles.append({'boxes': boxes.round(2).tolist(), 'scores': scores.tolist()})
    return tiles

"""Description of one run of a comparison: config, length and seed."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmengine.config import Config

from comparison.schedule import SCHEDULES, stretch

N_POINTS = 10
"""Number of validations and of checkpoints during a run, by default."""


@dataclass(frozen=True)
class Job:
    """One run and its output folder."""

    config: str
    seed: int
    out: Path
    schedule: str = 'short'
    lr: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    n_points: int = N_POINTS
    """Number of evenly spaced points of validation; the last one is at the end."""
    first_point: int = 1
    """Point of the first validation."""
    n_checkpoints: int = N_POINTS
    """Number of evenly spaced checkpoints to resume from; each takes about a second."""

    @property
    def name(self) -> str:
        """Name of the config, with the learning rate if it was set."""
        return Path(self.config).stem + ('' if self.lr is None else f' lr {self.lr:g}')

    @property
    def work_dir(self) -> Path:
        """Folder of the run."""
        lr = 'lr' if self.lr is None else f'lr{self.lr:g}'
        return self.out / self.schedule / Path(self.config).stem / lr / f'seed{self.seed}'

    def settings(self) -> Config:
        """Return the complete config of the run."""
        cfg = Config.fromfile(self.config)
        lr = {} if self.lr is None else {'optim_wrapper.optimizer.lr': self.lr}
        cfg.merge_from_dict({**self.options, **lr, 'randomness.seed': self.seed})
        stretch(cfg, SCHEDULES[self.schedule])
        self.validate_on_the_way(cfg)
        cfg.work_dir = str(self.work_dir)
        return cfg

    def fingerprint(self) -> str:
        """Return a fingerprint of all settings of a run."""
        settings = self.settings().to_dict()
        del settings['work_dir']
        return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()

    def validate_on_the_way(self, cfg: Config) -> None:
        """Set validations and checkpoints. Two checkpoints are kept: one is complete while the next is written."""
        loop = cfg.train_cfg
        length = loop.get('max_iters', loop.get('max_epochs'))
        interval = max(1, length // self.n_points)
        loop.update(val_begin=1 + (self.first_point - 1) * interval, val_interval=interval)
        loop.pop('dynamic_intervals', None)
        checkpoint = dict(type='CheckpointHook', by_epoch='max_epochs' in loop)
        checkpoint.update(cfg.get('default_hooks', {}).get('checkpoint', {}))
        checkpoint.update(interval=max(1, length // self.n_checkpoints), max_keep_ckpts=2)
        cfg.merge_from_dict({'default_hooks.checkpoint': checkpoint})

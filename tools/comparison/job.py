"""One training of a comparison: which config, how long, from which seed."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmengine.config import Config

from comparison.schedule import SCHEDULES, stretch

N_POINTS = 10
"""How often a training is validated."""


@dataclass(frozen=True)
class Job:
    """What is to be trained, and where it leaves what it finds."""

    config: str
    seed: int
    out: Path
    schedule: str = 'short'
    lr: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The config, and the learning rate where it was set."""
        return Path(self.config).stem + ('' if self.lr is None else f' lr {self.lr:g}')

    @property
    def work_dir(self) -> Path:
        """A folder of its own."""
        lr = 'lr' if self.lr is None else f'lr{self.lr:g}'
        return self.out / self.schedule / Path(self.config).stem / lr / f'seed{self.seed}'

    def settings(self) -> Config:
        """The whole config of the training."""
        cfg = Config.fromfile(self.config)
        lr = {} if self.lr is None else {'optim_wrapper.optimizer.lr': self.lr}
        cfg.merge_from_dict({**self.options, **lr, 'randomness.seed': self.seed})
        stretch(cfg, SCHEDULES[self.schedule])
        validate_on_the_way(cfg)
        cfg.work_dir = str(self.work_dir)
        return cfg

    def fingerprint(self) -> str:
        """Changes with every setting: a training of other settings is another one."""
        settings = self.settings().to_dict()
        del settings['work_dir']
        return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


def validate_on_the_way(cfg: Config) -> None:
    """Have the training validated at ten points, with a checkpoint at each. Two stay: one while the next is written."""
    loop = cfg.train_cfg
    interval = max(1, loop.get('max_iters', loop.get('max_epochs')) // N_POINTS)
    loop.update(val_begin=1, val_interval=interval)
    loop.pop('dynamic_intervals', None)
    checkpoint = dict(type='CheckpointHook', by_epoch='max_epochs' in loop)
    checkpoint.update(cfg.get('default_hooks', {}).get('checkpoint', {}), interval=interval, max_keep_ckpts=2)
    cfg.merge_from_dict({'default_hooks.checkpoint': checkpoint})

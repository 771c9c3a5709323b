"""A model of a config, trained once and kept."""

from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmengine.runner import Runner

import mmseg_nondecomp  # noqa: F401  registers the losses, and lets checkpoints load

WORK_DIRS = Path('work_dirs/reproduce')


def trained(config: Path, seed: int, options: dict[str, Any] | None = None) -> Path:
    """The last checkpoint of the training with this seed, which takes place unless it is there.

    Args:
        config: The config file.
        seed: Of the training.
        options: Settings that override the config. A checkpoint of other settings is not told from this one.
    """
    cfg = Config.fromfile(config)
    cfg.merge_from_dict(options or {})
    work_dir = WORK_DIRS / config.stem / f'seed-{seed}'
    checkpoint = work_dir / f'iter_{cfg.train_cfg.max_iters}.pth'
    if not checkpoint.exists():
        cfg.work_dir, cfg.randomness = str(work_dir), dict(seed=seed)
        cfg.experiment_name = f'{config.stem}-{seed}'  # MMEngine keeps what it has built by this name
        init_default_scope(cfg.default_scope)
        Runner.from_cfg(cfg).train()
    return checkpoint

"""Training length of a config."""

from typing import Any

from mmengine.config import Config

SCHEDULES = {'short': 1, 'long': 5}
"""Multiples of the length in the config."""

COUNTED = ('begin', 'end', 'T_max', 'T_0', 'step_size', 'milestones', 'total_steps', 'restarts', 'periods')
"""Settings of MMEngine's schedulers that count iterations or epochs."""


def stretch(cfg: Config, factor: int) -> None:
    """Train ``factor`` times as long, and stretch the learning-rate schedule by the same factor."""
    if factor == 1:
        return
    for length in ('max_iters', 'max_epochs'):
        if length in cfg.train_cfg:
            cfg.train_cfg[length] *= factor
    schedulers = cfg.get('param_scheduler') or []
    for scheduler in schedulers if isinstance(schedulers, list) else [schedulers]:
        for key in set(COUNTED) & set(scheduler):
            scheduler[key] = _times(scheduler[key], factor)


def _times(value: Any, factor: int) -> Any:
    return [_times(item, factor) for item in value] if isinstance(value, (list, tuple)) else value * factor

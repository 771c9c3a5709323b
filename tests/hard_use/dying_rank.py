"""Failures of one process of several in a training."""

import os
import signal
import time

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from torch import Tensor

WAYS = ('killed', 'wrong label', 'hangs')


def happens(way: str, labels: Tensor) -> None:
    """Kill this process, spoil its labels, or sleep without end."""
    if way == 'killed':
        os.kill(os.getpid(), signal.SIGKILL)
    elif way == 'wrong label':
        labels[:] = 200
    else:
        time.sleep(3600)


@HOOKS.register_module()
class DyingRank(Hook):
    """Has it happen to the process of rank 1, in the third iteration."""

    def __init__(self, way: str) -> None:
        self.way = way

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        if runner.rank == 1 and runner.iter == 2:
            for sample in data_batch['data_samples']:
                happens(self.way, sample.gt_sem_seg.data)

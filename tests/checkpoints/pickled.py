"""Checkpoints with pickles of any calls."""

from functools import partial

import torch
from mmengine.runner import CheckpointLoader

load = partial(CheckpointLoader.load_checkpoint, logger='silent')


class Call:
    """Pickled as the call of a function, followed by `__setstate__(state)` if there is one."""

    def __init__(self, function, *args, state=None):
        self.reduced = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.reduced


def save(path, content):
    torch.save({'state_dict': {'weight': torch.ones(2)}, 'extra': content}, path)
    return str(path)

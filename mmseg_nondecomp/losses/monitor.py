"""Numbers that belong beside a loss in the training log."""

import torch
from torch import Tensor

from mmseg_nondecomp.registry import HAS_MMENGINE


def log_scalar(name: str, value: Tensor) -> None:
    """Show a number as ``train/<name>`` in MMEngine's log and visualisers while a Runner trains; else do nothing."""
    if not HAS_MMENGINE or torch.compiler.is_compiling():
        return
    from mmengine.logging import MessageHub

    hub = MessageHub.get_current_instance()
    if hub.get_info('loop_stage') == 'train':
        hub.update_scalar(f'train/{name}', value.detach())

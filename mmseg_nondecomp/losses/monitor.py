"""Numbers that belong beside a loss in the training log."""

from torch import Tensor

from mmseg_nondecomp._utils.versions import is_compiling
from mmseg_nondecomp.registry import HAS_MMENGINE


def is_logged() -> bool:
    """Whether a Runner of MMEngine trains, so that what a loss says is written down."""
    if not HAS_MMENGINE or is_compiling():
        return False
    from mmengine.logging import MessageHub

    return MessageHub.get_current_instance().get_info('loop_stage') == 'train'


def is_traced_in_training() -> bool:
    """Whether a graph is being traced while a Runner trains; the graph is for as long as that is so."""
    if not HAS_MMENGINE or not is_compiling():
        return False
    from mmengine.logging import MessageHub

    hubs = MessageHub._instance_dict  # what it has to find the current one takes a lock, which cannot be traced
    return bool(hubs) and hubs[next(reversed(hubs))].runtime_info.get('loop_stage') == 'train'


def training_iteration() -> int | None:
    """The iteration of the Runner that trains; None where there is none."""
    if not is_logged():
        return None
    from mmengine.logging import MessageHub

    return MessageHub.get_current_instance().get_info('iter')


def log_scalar(name: str, value: Tensor) -> None:
    """Show a number as ``train/<name>`` in MMEngine's log and visualisers while a Runner trains; else do nothing."""
    if not is_logged():
        return
    from mmengine.logging import MessageHub

    MessageHub.get_current_instance().update_scalar(f'train/{name}', value.detach())

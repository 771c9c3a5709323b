"""Numbers that belong beside a loss in the training log."""

from torch import Tensor

from mmseg_nondecomp.compat import is_compiling
from mmseg_nondecomp.registry import HAS_MMENGINE


def is_logged() -> bool:
    """Whether a Runner of MMEngine trains, so that what a loss says is written down."""
    if not HAS_MMENGINE or is_compiling():
        return False
    from mmengine.logging import MessageHub

    return MessageHub.get_current_instance().get_info('loop_stage') == 'train'


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

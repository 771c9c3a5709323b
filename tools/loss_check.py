"""Check of a training for mistakes that raise no error."""

from mmengine.runner import Runner

from mmseg_nondecomp import LossCheckHook


def check_losses(runner: Runner) -> None:
    """Register `LossCheckHook`, unless the config has it already."""
    if not any(isinstance(hook, LossCheckHook) for hook in runner.hooks):
        runner.register_hook(LossCheckHook())

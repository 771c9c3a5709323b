"""Losses of this package in Lightning: steps of S-measures, and measures of the training in the log."""

from functools import partial
from typing import Any

import torch

from mmseg_nondecomp.losses import SMeasureLoss
from mmseg_nondecomp.losses._base import RegisteredLoss

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback


class LossCallback(Callback):
    """Callback that steps each `SMeasureLoss` of a module, and logs the measures of its losses.

    A loss steps once after each batch in which an optimizer has stepped; with ``accumulate_grad_batches``, it uses the
    items of all accumulated batches. Measures of a training call, such as the mIoU of the batch, are logged under the
    names that MMEngine gives them: ``train/<loss_name>_<measure>``. A Trainer of ``lightning`` and of
    ``pytorch_lightning`` takes this callback.

    Args:
        log_measures: Whether to log the measures.

    Example:
        >>> from lightning.pytorch import Trainer  # doctest: +SKIP
        >>> Trainer(callbacks=[LossCallback()])  # doctest: +SKIP
    """

    def __init__(self, log_measures: bool = True) -> None:
        self.log_measures = log_measures  # Lightning sets an attribute `log`
        self.global_step = 0

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Find the losses, and log the measures of each call that a gradient is taken of."""
        self.losses = [module for module in pl_module.modules() if isinstance(module, RegisteredLoss)]
        if not self.losses:
            raise ValueError(
                'LossCallback needs a module that holds a loss of mmseg_nondecomp, such as '
                f'`self.loss = LovaszSoftmaxLoss()` in its constructor. Found none in {type(pl_module).__name__}.'
            )
        for loss in self.losses if self.log_measures else []:
            loss.observe = partial(_log, pl_module, loss, loss.observe)  # type: ignore[method-assign]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Read the number of optimizer steps, which is above 0 in a training that is resumed."""
        self.global_step = trainer.global_step

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Step the losses if an optimizer has stepped."""
        if trainer.global_step > self.global_step:
            for loss in self.losses:
                if isinstance(loss, SMeasureLoss):
                    loss.step()
        self.global_step = trainer.global_step

    def on_fit_end(self, *_: Any) -> None:
        """Leave the losses as they were."""
        for loss in self.losses:
            vars(loss).pop('observe', None)

    def on_exception(self, *_: Any) -> None:
        """Leave the losses as they were."""
        self.on_fit_end()


def _log(module: Any, loss: RegisteredLoss, observe: Any, inputs: Any, statistics: Any) -> None:
    """Log the measures of a call, and observe it."""
    with torch.no_grad():
        for name, number in loss.measures(inputs, statistics).items():
            module.log(f'train/{loss.loss_name}_{name}', number)
    observe(inputs, statistics)

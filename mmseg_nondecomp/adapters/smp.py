"""Losses of this package in the place of `segmentation_models_pytorch.losses`."""

from typing import Any

from torch import Tensor, nn

from mmseg_nondecomp.adapters._loss import as_loss_with, logits_of
from mmseg_nondecomp.functional._inputs import MODES, check_flag, check_option


class SMPLoss(nn.Module):
    """A loss with the layouts and the argument names of segmentation_models_pytorch.

    Args:
        loss: A loss class, such as `LovaszSoftmaxLoss`, the name of a measure, such as ``'miou'``, or a loss with the
            settings below.
        mode: ``'multiclass'``, ``'binary'`` or ``'multilabel'``, the constants of ``smp.losses``.
        from_logits: False if predictions are probabilities.
        ignore_index: The label that removes a pixel; not in mode ``'multilabel'``, where targets are no labels.
        **options: Further arguments of the loss, such as ``classes``.

    Example:
        >>> import torch
        >>> from mmseg_nondecomp import SoftIoULoss
        >>> SMPLoss(SoftIoULoss, mode='multiclass')(torch.zeros(2, 4, 8, 8), torch.zeros(2, 8, 8, dtype=torch.long))
        tensor(0.7500)
    """

    def __init__(
        self,
        loss: nn.Module | type[nn.Module] | str,
        mode: str,
        from_logits: bool = True,
        ignore_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        check_option('mode', mode, MODES)
        check_flag('from_logits', from_logits)
        if mode == 'multilabel' and ignore_index is not None:
            raise ValueError(
                "Parameter `ignore_index` should be None with `mode='multilabel'`: the targets of a pixel are several "
                f'labels of 0 and 1. Found {ignore_index}.'
            )
        self.mode, self.from_logits = mode, from_logits
        self.loss = as_loss_with(loss, mode=mode, ignore_index=ignore_index, **options)
        self._checked: dict[Any, int] = {}

    def forward(self, y_pred: Tensor, y_true: Tensor) -> Tensor:
        """Compute the loss of predictions [N, C, *] and targets [N, *], [N, 1, *] or [N, C, *]."""
        if not self.from_logits:
            y_pred = logits_of(y_pred, self.mode, 'y_pred', 'logits need `from_logits=True`.', self._checked)
        return self.loss(y_pred, y_true)

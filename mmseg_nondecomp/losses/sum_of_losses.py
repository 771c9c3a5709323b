"""Several losses in the place of one."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from mmseg_nondecomp.functional._inputs import check_ignore_index
from mmseg_nondecomp.losses._base import RegisteredLoss, log_scalar
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class SumOfLosses(RegisteredLoss):
    """Sum of losses that are called with the same arguments, for heads that give each place in a list its own logits.

    ``loss_decode`` of DDRHead is the list of the losses of its two branches, that of PIDHead the list of four losses:
    a second loss of one branch belongs into its place. While MMEngine trains, each value is logged as
    ``train/<loss_name>_<name of the part>``.

    Args:
        losses: The configs of the losses, of any package, or the losses themselves.
        ignore_index: The label to ignore, for heads that hand none to their losses, as these two do.
        loss_weight: The factor of the sum in the objective.
        loss_name: The key in the log.
        **unexpected: Arguments left over in a merged config: an error.

    Example:
        In the config of a DDRNet, with ``custom_imports = dict(imports=['mmseg_nondecomp'])``::

            both = dict(type='SumOfLosses', ignore_index=255, losses=[
                dict(type='CrossEntropyLoss'), dict(type='LovaszSoftmaxLoss', loss_weight=3.0)])
            model = dict(decode_head=dict(loss_decode=[both, dict(type='CrossEntropyLoss')]))
    """

    default_name = 'loss_sum'

    def __init__(
        self,
        losses: Sequence[Any],
        ignore_index: int | None = None,
        loss_weight: float = 1.0,
        loss_name: str | None = None,
        **unexpected: Any,
    ) -> None:
        super().__init__(loss_weight, loss_name, **unexpected)
        check_ignore_index(ignore_index)
        if not isinstance(losses, (list, tuple)) or not losses:
            raise TypeError(f'Parameter `losses` should be a list of losses or their configs. Found {losses!r}.')
        self.losses = nn.ModuleList(loss if isinstance(loss, nn.Module) else MODELS.build(loss) for loss in losses)
        self.ignore_index = ignore_index

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Call each loss and return the sum of their values."""
        if self.ignore_index is not None and kwargs.get('ignore_index') is None:
            kwargs['ignore_index'] = self.ignore_index
        values = self.values(*args, **kwargs)
        for loss, value in zip(self.losses, values, strict=True):
            log_scalar(f'{self.loss_name}_{getattr(loss, "loss_name", type(loss).__name__)}', value.mean())
        return self.loss_weight * sum(values[1:], values[0])

    def values(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Return the value of each loss."""
        return [loss(*args, **kwargs) for loss in self.losses]

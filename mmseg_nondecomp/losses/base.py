"""What all losses share: the arguments of a config."""

from typing import Any

from torch import nn

from mmseg_nondecomp.losses.scope import check_scope


class SetLoss(nn.Module):
    """A loss of a set of items.

    Args:
        loss_weight: The factor of this loss in the objective.
        loss_name: The key in the log, by custom with the prefix `loss_`.
        scope: Which items form one set.
        leaked: Arguments that no loss knows, such as what a merged config left behind: an error.
    """

    def __init__(self, loss_weight: float, loss_name: str, scope: str, leaked: dict[str, Any]) -> None:
        super().__init__()
        if leaked:
            raise TypeError(
                f'{type(self).__name__} has no argument {", ".join(f"`{name}`" for name in leaked)}. If it comes from '
                'the config that yours inherits from, MMEngine has merged the two dicts: add `_delete_=True` to '
                f'yours, as in `loss_decode=dict(_delete_=True, type={type(self).__name__!r}, ...)`.'
            )
        if not isinstance(loss_name, str) or 'loss' not in loss_name:
            raise ValueError(
                'Parameter `loss_name` should be a string that contains "loss", or MMEngine does not train on it. '
                f'Found {loss_name!r}.'
            )
        if not isinstance(loss_weight, (int, float)):
            raise TypeError(f'Parameter `loss_weight` should be a number. Found {loss_weight!r}.')
        check_scope(scope)
        self.loss_weight = loss_weight
        self.scope = scope
        self._loss_name = loss_name

    @property
    def loss_name(self) -> str:
        """The key of this loss in the log."""
        return self._loss_name


def check_reduction(reduction_override: str | None) -> None:
    """Raise ValueError unless the reduction is one that the toolboxes know."""
    if reduction_override not in (None, 'none', 'mean', 'sum'):
        raise ValueError(
            f'Parameter `reduction_override` should be None, "none", "mean" or "sum". Found {reduction_override!r}.'
        )

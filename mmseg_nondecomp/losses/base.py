"""What all losses share: the arguments of a config."""

from typing import Any

from torch import Tensor, nn

from mmseg_nondecomp.losses.scope import check_scope


class SetLoss(nn.Module):
    """A loss of a set of items.

    Args:
        loss_weight: The factor of this loss in the objective.
        loss_name: The key in the log, by custom with the prefix `loss_`.
        scope: Which items form one set.
        leaked: Arguments that no loss knows, such as what a merged config left behind: an error.
    """

    has_terms = True
    """Whether the loss is a sum with a term for each item."""

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

    def forward(
        self,
        pred: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | None = None,
        reduction_override: str | None = None,
        ignore_index: int | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Compute the loss, in the call form of any of the three toolboxes.

        Args:
            pred: Logits, or the scores of items, of shape [N, C, *].
            target: Class indices [N, *], or a soft label for each item [N, C, *].
            weight: A factor for each item [N, *]; 0 removes it from the set.
            avg_factor: Accepted and not used: the loss of a set is a mean or a ratio by definition.
            reduction_override: With ``'none'``, the terms of the loss, one for each item, of shape [N, *]. They add up
                to the loss; of top-k losses they are averaged, or summed with ``'sum'``. A measure of all items
                together has no terms.
            ignore_index: The label that removes an item from the set. By default 255, where it cannot be a class.
            **kwargs: Arguments that a head passes to losses of other kinds.

        Returns:
            A scalar; 0, attached to the graph, if nothing counts.

        Raises:
            TypeError: If a dtype does not fit.
            ValueError: If a shape does not fit, a label is no class, or there are no terms.
        """
        if reduction_override not in (None, 'none', 'mean', 'sum'):
            raise ValueError(
                f'Parameter `reduction_override` should be None, "none", "mean" or "sum". Found {reduction_override!r}.'
            )
        if reduction_override == 'none' and not self.has_terms:
            raise ValueError(
                f'Parameter `reduction_override` should not be "none" for {type(self).__name__}: the measure is one of '
                'all items together. Heads that need the loss of each item, as PAAHead does, take an elementwise loss '
                'such as FocalLoss; ATSSHead and FCOSHead take this one. Found "none".'
            )
        reduction = reduction_override or 'mean'
        return self.loss_weight * self.value(pred, target, weight, ignore_index, reduction, **kwargs)

    def value(
        self, pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, reduction: str, **_: Any
    ) -> Tensor:
        """Compute the loss without its factor, or its terms with ``reduction='none'``."""
        raise NotImplementedError

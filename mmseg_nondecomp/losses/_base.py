"""Base classes of the registered losses: one `forward` for the call forms of all toolboxes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mmseg_nondecomp._utils.versions import is_compiling
from mmseg_nondecomp.functional._inputs import (
    Inputs,
    Reduce,
    check_number,
    check_option,
    one_of_two,
    read_class_weight,
    read_inputs,
)
from mmseg_nondecomp.losses._distributed import SCOPES, sum_over
from mmseg_nondecomp.registry import HAS_MMENGINE


class Value(NamedTuple):
    """Loss of a set of items."""

    loss: Tensor  # a scalar
    statistics: Any = None  # intermediate results for `RegisteredLoss.observe` and `RegisteredLoss.measures`


class RegisteredLoss(nn.Module):
    """A loss in the call forms of MMSegmentation, MMDetection and MMPretrain.

    Subclasses define `value`, and `terms` if the loss is a sum over items. The arguments are documented in `SetLoss`.
    """

    default_name: str  # key in the log unless another is given
    shown: tuple[str, ...] = ()  # settings in ``print(model)``
    has_terms = True  # whether the loss is a sum with a term for each item
    averages_terms = False  # whether the loss is the mean of its terms, and ``reduction_override='sum'`` their sum
    one_vs_rest = False  # whether each channel is a decision of its own
    two_channels_decide = False  # whether two channels with labels are one decision
    use_sigmoid = False  # whether, with a single channel, label 0 is its class, as in MMDetection

    def __init__(self, loss_weight: float = 1.0, loss_name: str | None = None, **unexpected: Any) -> None:
        super().__init__()
        if unexpected:
            raise TypeError(
                f'{type(self).__name__} has no argument {", ".join(f"`{name}`" for name in unexpected)}. If it comes '
                'from the config that yours inherits from, MMEngine has merged the two dicts: add `_delete_=True` to '
                f'yours, as in `loss_decode=dict(_delete_=True, type={type(self).__name__!r}, ...)`.'
            )
        loss_name = self.default_name if loss_name is None else loss_name
        if not isinstance(loss_name, str) or 'loss' not in loss_name:
            raise ValueError(
                'Parameter `loss_name` should be a string that contains "loss", or MMEngine does not train on it. '
                f'Found {loss_name!r}.'
            )
        check_number('loss_weight', loss_weight, '(-inf, inf)')
        self.loss_weight = loss_weight
        self._loss_name = loss_name

    @property
    def loss_name(self) -> str:
        """Key of this loss in the log."""
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
        """Compute the loss, in the call form of any toolbox: a scalar; 0, attached to the graph, if no item counts.

        Args:
            pred: Logits, or the scores of items, of shape [N, C, *].
            target: Class indices [N, *], or a soft label for each item [N, C, *].
            weight: A factor for each item [N, *]; 0 removes it from the set.
            avg_factor: Accepted and not used: the loss of a set is a mean or a ratio by definition.
            reduction_override: With ``'none'``, the terms of the loss, one for each item, of shape [N, *]. They add up
                to the loss, those of `SoftIoULoss` to a linear function with its gradient; of top-k losses they are
                averaged, or summed with ``'sum'``. A measure of all items together has no terms.
            ignore_index: The label that removes an item from the set. By default 255, where it cannot be a class.
            **kwargs: Arguments that a head passes to losses of other kinds.
        """
        self._check_reduction(reduction_override)
        inputs = self.read(pred, target, weight, ignore_index)
        if reduction_override == 'none':
            return self.loss_weight * self.terms(inputs).view(inputs.shape)
        observes = self.training and torch.is_grad_enabled()
        if observes:
            self.tick()
        if reduction_override == 'sum' and self.averages_terms:
            value = Value(self.terms(inputs).sum())
        else:
            value = self.value(inputs, **kwargs)
        if observes:
            self.observe(inputs, value.statistics)
        if is_logged():
            with torch.no_grad():
                for name, number in self.measures(inputs, value.statistics).items():
                    log_scalar(f'{self.loss_name}_{name}', number)
        return self.loss_weight * value.loss

    def read(self, pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None) -> Inputs:
        """Return the tensors of a call in the common layout."""
        if self.two_channels_decide:
            pred = one_of_two(pred, target)
        return read_inputs(pred, target, weight, ignore_index, self.one_vs_rest, self.use_sigmoid)

    def value(self, inputs: Inputs, **_: Any) -> Value:
        """Compute the loss, without side effects."""
        raise NotImplementedError

    def terms(self, inputs: Inputs) -> Tensor:
        """Compute the term of each item, of shape [N, P], without side effects."""
        raise NotImplementedError

    def tick(self) -> None:
        """Follow the training before a call that a gradient is taken of."""

    def observe(self, inputs: Inputs, statistics: Any) -> None:
        """Update the state of the loss after a call that a gradient is taken of."""

    def measures(self, inputs: Inputs, statistics: Any) -> dict[str, Tensor]:
        """Return the true measures of the items by name, for MMEngine's log."""
        return {}

    def extra_repr(self) -> str:
        """Return the settings, as ``print(model)`` shows them."""
        return ', '.join(f'{name}={getattr(self, name)!r}' for name in self.shown)

    def _check_reduction(self, reduction: str | None) -> None:
        if reduction not in (None, 'none', 'mean', 'sum'):
            raise ValueError(
                f'Parameter `reduction_override` should be None, "none", "mean" or "sum". Found {reduction!r}.'
            )
        if reduction == 'none' and not self.has_terms:
            raise ValueError(
                f'Parameter `reduction_override` should not be "none" for {type(self).__name__}: the measure is one of '
                'all items together. Heads that need the loss of each item, as PAAHead does, take an elementwise loss '
                'such as FocalLoss; ATSSHead and FCOSHead take this one. Found "none".'
            )


class SetLoss(RegisteredLoss):
    """A loss of a set of items.

    Args:
        scope: The items that form a set: ``'image'`` (the mean over images), ``'batch'`` (the mini-batch of this
            process), or ``'world'`` (the mini-batches of all processes: each of them has to call the loss in each step,
            or the others wait for it).
        class_weight: A factor for each class in the mean over classes.
        use_sigmoid: True where each channel is a decision of its own. MMDetection's dense heads read it from the config
            to choose their number of channels; label C is then the background, and with a single class label 0 is the
            object.
        loss_weight: The factor of this loss in the objective.
        loss_name: The key in the log; by default the name of the loss.
        **unexpected: Arguments that no loss has, such as those left over in a merged config: an error.
    """

    default_scope = 'batch'
    class_weight: Tensor | None

    def __init__(
        self,
        scope: str | None = None,
        class_weight: Sequence[float] | None = None,
        use_sigmoid: bool | None = None,
        loss_weight: float = 1.0,
        loss_name: str | None = None,
        **unexpected: Any,
    ) -> None:
        if use_sigmoid is not None and use_sigmoid is not True:
            unexpected['use_sigmoid'] = use_sigmoid
        super().__init__(loss_weight, loss_name, **unexpected)
        self.scope = self.default_scope if scope is None else scope
        check_option('scope', self.scope, SCOPES)
        self.use_sigmoid = bool(use_sigmoid)
        self.register_buffer('class_weight', read_class_weight(class_weight), persistent=False)

    @property
    def reduce(self) -> Reduce:
        """Sum over the processes that share a set."""
        return sum_over(self.scope)


def is_logged() -> bool:
    """Return whether a Runner of MMEngine trains, so that measures of a loss are logged."""
    return HAS_MMENGINE and not is_compiling() and _message_hub().get_info('loop_stage') == 'train'


def is_traced_in_training() -> bool:
    """Return whether a graph is traced while a Runner trains; the graph is valid for as long as that is so."""
    if not HAS_MMENGINE or not is_compiling():
        return False
    from mmengine.logging import MessageHub

    hubs = MessageHub._instance_dict  # `get_current_instance` takes a lock, which cannot be traced
    return bool(hubs) and hubs[next(reversed(hubs))].runtime_info.get('loop_stage') == 'train'


def training_iteration() -> int | None:
    """Return the iteration of the Runner that trains; None where there is none."""
    return _message_hub().get_info('iter') if is_logged() else None


def log_scalar(name: str, value: Tensor) -> None:
    """Log a number as ``train/<name>`` in MMEngine's log and visualisers while a Runner trains; else do nothing."""
    if is_logged():
        _message_hub().update_scalar(f'train/{name}', value.detach())


def _message_hub() -> Any:
    from mmengine.logging import MessageHub

    return MessageHub.get_current_instance()

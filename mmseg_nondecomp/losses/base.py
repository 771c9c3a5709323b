"""What all losses share: the arguments of a config, and the call forms of the three toolboxes."""

from typing import Any

import torch
from torch import Tensor, nn

from mmseg_nondecomp.losses.scope import check_scope

IGNORED_BY_DEFAULT = 255


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


def valid_items(pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, n_labels: int) -> Tensor:
    """Check a call's tensors against each other; which items count, bool, of shape [N, *].

    Args:
        pred: [N, C, *], floating point.
        target: Class indices [N, *], or a probability for each class [N, C, *].
        weight: A factor for each item [N, *], or None; 0 removes the item.
        ignore_index: The label that removes an item. None: 255, where it cannot be a class.
        n_labels: How many labels mean something, from 0.

    Raises:
        TypeError: If a dtype does not fit.
        ValueError: If a shape does not fit, or a label is no class (found on the CPU only; CUDA's own check is late).
    """
    if not pred.is_floating_point():
        raise TypeError(f'Parameter `pred` should be a floating-point tensor. Found {pred.dtype}.')
    if pred.dim() < 2:
        raise ValueError(f'Parameter `pred` should be of shape [N, C, *]. Found {tuple(pred.shape)}.')
    items = (pred.shape[0], *pred.shape[2:])
    if weight is not None and weight.shape != items:
        raise ValueError(
            f'Parameter `weight` should be of shape {items}, one for each item. Found {tuple(weight.shape)}.'
        )
    if weight is not None and can_be_read(weight) and (weight < 0).any():
        raise ValueError(f'Parameter `weight` should not be negative. Found {weight.min().item()}.')
    counted = torch.ones(items, dtype=torch.bool, device=pred.device) if weight is None else weight != 0
    if target.is_floating_point() and target.shape == pred.shape:
        return counted
    if target.is_floating_point() or target.shape != items:
        raise ValueError(
            f'Parameter `target` should hold class indices of shape {items} or probabilities of shape '
            f'{tuple(pred.shape)}. Found {target.dtype} of shape {tuple(target.shape)}.'
        )
    target = target.long()  # uint8 and int8 wrap what they are compared with
    if ignore_index is None and n_labels <= IGNORED_BY_DEFAULT:
        ignore_index = IGNORED_BY_DEFAULT
    valid = counted if ignore_index is None else counted & (target != ignore_index)
    _check_labels(target, valid, n_labels)
    return valid


def _check_labels(target: Tensor, valid: Tensor, n_labels: int) -> None:
    """Name a wrong label where reading it costs nothing."""
    if not can_be_read(target):
        return
    wrong = valid & ((target < 0) | (target >= n_labels))
    if wrong.any():
        raise ValueError(
            f'Parameter `target` should hold labels in [0, {n_labels - 1}] or the ignored one. '
            f'Found {target[wrong][0].item()} (in {int(wrong.sum())} items).'
        )


def can_be_read(tensor: Tensor) -> bool:
    """Whether looking at values costs nothing: on the CPU, and not while a graph is traced."""
    return tensor.device.type == 'cpu' and type(tensor) is Tensor and not torch.compiler.is_compiling()


def check_reduction(reduction_override: str | None) -> None:
    """Raise ValueError unless the reduction is one that the toolboxes know."""
    if reduction_override not in (None, 'none', 'mean', 'sum'):
        raise ValueError(
            f'Parameter `reduction_override` should be None, "none", "mean" or "sum". Found {reduction_override!r}.'
        )

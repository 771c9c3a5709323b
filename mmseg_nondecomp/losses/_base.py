"""Base classes of the registered losses: one `forward` for the call forms of all toolboxes."""

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mmseg_nondecomp._utils.versions import is_compiling
from mmseg_nondecomp.functional._inputs import (
    MODES,
    Inputs,
    Reading,
    Reduce,
    check_ignore_index,
    check_number,
    check_option,
    check_tensor,
    look_like_probabilities,
    read_class_weight,
    read_inputs,
)
from mmseg_nondecomp.losses._distributed import SCOPES, sum_over
from mmseg_nondecomp.registry import HAS_MMENGINE

INSTEAD = {
    'per_image': "`scope='image'` or `scope='batch'`",
    'from_logits': 'nothing, losses take logits',
    'reduction': 'nothing, the loss of a set is a number',
    'weight': '`class_weight`',
    'weights': '`class_weight`',
    'class_weights': '`class_weight`',
    'ignore_label': '`ignore_index`',
    'multi_class': "`mode='multiclass'`",
}
"""Arguments of losses elsewhere, and what to write here."""


class Value(NamedTuple):
    """Loss of a set of items."""

    loss: Tensor  # a scalar
    statistics: Any = None  # intermediate results for `RegisteredLoss.observe` and `RegisteredLoss.measures`
    weight_of_cross_entropy: Tensor | None = None  # in a mean of both, if it follows the loss


class RegisteredLoss(nn.Module):
    """A loss in the call forms of MMSegmentation, MMDetection and MMPretrain.

    Subclasses define `value`, and `terms` if the loss is a sum over items. The arguments are documented in `SetLoss`.
    """

    default_name: str  # key in the log unless another is given
    shown: tuple[str, ...] = ()  # settings in ``print(model)``
    modes: tuple[str, ...] = MODES
    has_terms = True  # whether the loss is a sum with a term for each item
    averages_terms = False  # whether the loss is the mean of its terms, and ``reduction_override='sum'`` their sum
    one_vs_rest = False  # whether each channel is a decision of its own
    two_channels_decide = False  # whether two channels with labels are one decision
    use_sigmoid = False  # read by heads of MMDetection: whether there is no channel for the background
    states_channels = False  # whether the configuration states how channels are read

    def __init__(
        self,
        loss_weight: float = 1.0,
        loss_name: str | None = None,
        mode: str | None = None,
        ignore_index: int | None = None,
        **unexpected: Any,
    ) -> None:
        super().__init__()
        if unexpected:
            raise TypeError(unexpected_arguments(type(self), unexpected))
        if mode is not None:
            check_option('mode', mode, self.modes)
        check_ignore_index(ignore_index)
        self.mode = self.layout = mode
        self.ignore_index = ignore_index
        self.states_channels = mode is not None
        loss_name = self.default_name if loss_name is None else loss_name
        if not isinstance(loss_name, str) or 'loss' not in loss_name:
            raise ValueError(
                'Parameter `loss_name` should be a string that contains "loss", or MMEngine does not train on it. '
                f'Found {loss_name!r}.'
            )
        check_number('loss_weight', loss_weight, '(-inf, inf)')
        self.loss_weight = loss_weight
        self._loss_name = loss_name
        self._checked: dict[Any, int] = {}  # number of checked calls on a device, by their layout
        self._suspicion = 0.0  # that scores are probabilities; from 1 on it is settled

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
            reduction_override: With ``'none'``, the terms of the loss, one for each item, of shape [N, *]; in a box
                head with ``use_sigmoid=True`` one for each channel, [N, C]. They add up to the loss, those of
                `SoftIoULoss` to a linear function with its gradient; of top-k losses they are averaged, or summed with
                ``'sum'``. A measure of all items together has no terms.
            ignore_index: The label that removes an item from the set. By default that of the constructor, or 255 where
                it cannot be a class.
            **kwargs: Arguments that a head passes to losses of other kinds.
        """
        return self.evaluate(pred, target, weight, avg_factor, reduction_override, ignore_index, **kwargs).loss

    def evaluate(
        self,
        pred: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | None = None,
        reduction_override: str | None = None,
        ignore_index: int | None = None,
        **kwargs: Any,
    ) -> Value:
        """Compute what `forward` returns, with the intermediate results of the loss."""
        self._check_reduction(reduction_override)
        reading = self.reading(pred, target, weight, avg_factor)
        inputs = self.read(pred, target, weight, ignore_index, reading)
        if self._suspicion < 1 - 1e-9 and self._are_probabilities(inputs.scores):
            warnings.warn(
                f'{type(self).__name__} expects logits, and all scores look like probabilities: they are in [0, 1]. '
                'Pass the scores from before the softmax or the sigmoid.',
                stacklevel=5,
            )
        if reduction_override == 'none':
            terms = self.loss_weight * self.terms(inputs).view(inputs.shape)
            if self.use_sigmoid and pred.dim() == 2 and is_box_head(pred, weight, avg_factor):
                terms = (terms / pred.shape[1]).unsqueeze(1).expand_as(pred)  # as MMDetection's own losses
            return Value(terms)
        observes = self.training and torch.is_grad_enabled()
        if observes:
            self.tick()
        if reduction_override == 'sum' and self.averages_terms:
            value = Value(self.terms(inputs).sum())
        else:
            value = self.value(inputs, **kwargs)
        if observes:
            self.observe(inputs, value.statistics)
        log_measures(self, self.measures, inputs, value.statistics)
        return value._replace(loss=self.loss_weight * value.loss)

    def read(
        self,
        pred: Tensor,
        target: Any,
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        reading: Reading | None = None,
    ) -> Inputs:
        """Return the tensors of a call in the common layout, as docs/layouts.md describes."""
        if isinstance(target, (tuple, list)) and all(isinstance(part, Tensor) for part in target):
            target = self._shares_of_quality(pred, target)
        target = target.detach() if isinstance(target, Tensor) and target.requires_grad else target
        ignore_index = self.ignore_index if ignore_index is None else ignore_index
        reading = self.reading(pred, target, weight, None) if reading is None else reading
        return read_inputs(pred, target, weight, ignore_index, reading, checked=self._checked)

    def reading(self, pred: Tensor, target: Any, weight: Tensor | None, avg_factor: Any) -> Reading:
        """Return how a call is read, which depends on the toolbox that calls where shapes have two readings."""
        check_tensor('pred', pred)
        n_channels = pred.shape[1] if pred.dim() == 2 else 0
        if pred.dim() == 1 and avg_factor is not None:
            raise ValueError(
                'Parameter `pred` should be of shape [N, C, *] beside `avg_factor`. Found masks in one dimension, '
                f'{tuple(pred.shape)}: use `MaskLoss(loss=dict(type={type(self).__name__!r}, ...))`.'
            )
        pair = self.two_channels_decide and self.layout != 'multilabel'
        has_labels = not isinstance(target, Tensor) or target.dim() == 1  # a pair of labels and qualities, or labels
        # `avg_factor` is looked at only where it tells two readings apart, as a compiled graph is valid for its type.
        of_boxes = has_labels and (n_channels == 1 or (pair and n_channels == 2))
        of_boxes = of_boxes and is_box_head(pred, weight, avg_factor)
        is_stated = self.states_channels
        if n_channels > 1 and self.one_vs_rest and not (has_labels or is_stated):
            is_stated = avg_factor is not None and not is_box_head(pred, weight, avg_factor)
        pair = pair and not (of_boxes and self.use_sigmoid)
        return Reading(self.layout, self.one_vs_rest, self.one_vs_rest, is_stated, pair, of_boxes)

    def _are_probabilities(self, scores: Tensor) -> bool:
        """Return whether the scores of the calls so far are probabilities."""
        if not can_be_compared(scores):
            return False
        found = look_like_probabilities(scores, not self.one_vs_rest and scores.shape[1] > 1)
        self._suspicion = self._suspicion + found if found else math.inf
        return 1 - 1e-9 < self._suspicion < math.inf

    def _shares_of_quality(self, pred: Tensor, target: Any) -> Tensor:
        """Return the pair of labels [N] and qualities [N] of MMDetection's GFLHead as several labels [N, C]."""
        if not self.one_vs_rest or len(target) != 2 or pred.dim() != 2:
            raise TypeError(
                'Parameter `target` should be a tensor. Found labels and their qualities, which MMDetection passes to '
                f'QualityFocalLoss: {type(self).__name__} cannot take its place in this head.'
            )
        label, quality = target
        shares = quality.new_zeros(len(pred), pred.shape[1] + 1)
        return shares.scatter_(1, label.long().unsqueeze(1), quality.unsqueeze(1))[:, :-1]

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
            or the others wait for it). The Jaccard losses also have ``'class'``: each image is a set, and each class is
            averaged over the images that contain it before the classes are averaged.
        class_weight: A factor for each class in the mean over classes.
        use_sigmoid: True where each channel is a decision of its own; label C is then the background. MMDetection's
            dense heads read it from the config to choose their number of channels.
        loss_weight: The factor of this loss in the objective.
        loss_name: The key in the log; by default the name of the loss.
        mode: ``'multiclass'``, ``'binary'`` or ``'multilabel'``, as in segmentation-models-pytorch. By default a call
            is read if its shapes have a single reading; see docs/layouts.md.
        ignore_index: The label that removes an item from the set, unless the call has one.
        **unexpected: Arguments that no loss has, such as those left over in a merged config: an error.
    """

    default_scope = 'batch'
    scopes: tuple[str, ...] = SCOPES
    has_value_of_images = True  # whether `value` has an argument `each_set`
    takes_shares = True  # whether items may belong to a class in part
    class_weight: Tensor | None

    def __init__(
        self,
        scope: str | None = None,
        class_weight: Sequence[float] | None = None,
        use_sigmoid: bool | None = None,
        loss_weight: float = 1.0,
        loss_name: str | None = None,
        mode: str | None = None,
        ignore_index: int | None = None,
        **unexpected: Any,
    ) -> None:
        if use_sigmoid is not None and use_sigmoid is not True:
            unexpected['use_sigmoid'] = use_sigmoid
        super().__init__(loss_weight, loss_name, mode, ignore_index, **unexpected)
        self.scope = self.default_scope if scope is None else scope
        check_option('scope', self.scope, self.scopes)
        self.use_sigmoid = bool(use_sigmoid)
        self.states_channels = self.use_sigmoid or self.states_channels
        self.register_buffer('class_weight', read_class_weight(class_weight), persistent=False)

    @property
    def reduce(self) -> Reduce:
        """Sum over the processes that share a set."""
        return sum_over(self.scope)


def unexpected_arguments(of: type, unexpected: dict[str, Any]) -> str:
    """Return the message for arguments that a loss does not have."""
    classes = [each for each in of.__mro__ if '__init__' in vars(each) and each.__module__.startswith(__package__)]
    names = [name for each in classes for name in inspect.signature(vars(each)['__init__']).parameters]
    known = [name for name in dict.fromkeys(names) if name not in ('self', 'common', 'unexpected')]
    hints = []
    for name in unexpected:
        meant = INSTEAD.get(name) or ' or '.join(f'`{other}`' for other in get_close_matches(name, known, 1))
        hints += [f' Instead of `{name}`: {meant}.'] if meant else []
    return (
        f'{of.__name__} has no argument {", ".join(f"`{name}`" for name in unexpected)}.{"".join(hints)} It has '
        f'{", ".join(f"`{name}`" for name in known)}. If it comes from the config that yours inherits from, MMEngine '
        'has merged the two dicts: add `_delete_=True` to yours, as in '
        f'`loss_decode=dict(_delete_=True, type={of.__name__!r}, ...)`.'
    )


def is_box_head(pred: Tensor, weight: Tensor | None, avg_factor: Any) -> bool:
    """Return whether a box head of MMDetection calls with predictions [N, C].

    It averages over weights or positives, MMPretrain over the images of its call.
    """
    return avg_factor is not None and not (weight is None and type(avg_factor) is int and avg_factor == len(pred))


def can_be_compared(scores: Tensor) -> bool:
    """Return whether the scores of the first calls are read: not in a graph, and not if there are no values."""
    return not is_compiling() and type(scores) is Tensor and scores.device.type != 'meta'


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


def log_measures(loss: RegisteredLoss, measures: Callable[..., dict[str, Tensor]], *of_call: Any) -> None:
    """Log the measures of a call under the name of a loss while a Runner trains."""
    if is_logged():
        with torch.no_grad():
            for name, number in measures(*of_call).items():
                log_scalar(f'{loss.loss_name}_{name}', number)


def log_scalar(name: str, value: Tensor) -> None:
    """Log a number as ``train/<name>`` in MMEngine's log and visualisers while a Runner trains; else do nothing."""
    if is_logged():
        _message_hub().update_scalar(f'train/{name}', value.detach())


def _message_hub() -> Any:
    from mmengine.logging import MessageHub

    return MessageHub.get_current_instance()

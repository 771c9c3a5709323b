"""Losses of this package in the place of `monai.losses`."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss

from mmseg_nondecomp.adapters._loss import as_loss_with, logits_of, parts_of
from mmseg_nondecomp.functional._inputs import check_flag, check_option, check_tensor
from mmseg_nondecomp.losses._base import SetLoss
from mmseg_nondecomp.losses._jaccard import JaccardLoss


class MonaiLoss(_Loss):
    """A loss with the layouts and the argument names of MONAI: inputs [B, C, *], and targets with a channel.

    Without ``softmax`` and ``sigmoid`` the input is probabilities. Each channel is then a decision of its own, as with
    ``sigmoid``.

    Args:
        loss: A loss class, such as `LovaszSoftmaxLoss`, the name of a measure, such as ``'miou'``, or a loss with
            ``mode='multiclass'`` for ``softmax`` and ``mode='multilabel'`` otherwise.
        include_background: False leaves class 0 out of the average over classes; cross-entropy beside it counts it.
        to_onehot_y: True for labels [B, 1, *], False for targets with the shape of the input.
        sigmoid: True if the input is logits, and each channel is a decision of its own.
        softmax: True if the input is logits, and the channels are classes.
        batch: True if the batch is one set, False if each image is. By default False for a class, as in MONAI; the name
            of a measure, such as ``'image_miou'``, states it.
        reduction: ``'mean'`` only: the loss of a set is a number.
        weight: A factor for each class in the weighted mean over classes, without class 0 if that is left out.
        **options: Further arguments of the loss, such as ``classes='all'`` or ``ignore_index``.

    Example:
        >>> from mmseg_nondecomp import SoftIoULoss
        >>> dice = MonaiLoss(SoftIoULoss, alpha=0.5, beta=0.5, softmax=True, to_onehot_y=True)
        >>> dice(torch.zeros(2, 4, 8, 8, 8), torch.zeros(2, 1, 8, 8, 8))
        tensor(0.6000)
    """

    def __init__(
        self,
        loss: nn.Module | type[nn.Module] | str,
        include_background: bool = True,
        to_onehot_y: bool = False,
        sigmoid: bool = False,
        softmax: bool = False,
        batch: bool | None = None,
        reduction: str = 'mean',
        weight: Sequence[float] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        flags = dict(include_background=include_background, to_onehot_y=to_onehot_y, sigmoid=sigmoid, softmax=softmax)
        for name, flag in flags.items():
            check_flag(name, flag)
        check_flag('batch', batch, optional=True)
        check_option('reduction', reduction, ('mean',))
        if sigmoid and softmax:
            raise ValueError('Parameters `sigmoid` and `softmax` should not both be True. Found True and True.')
        _check_settings(loss, include_background, batch, weight, options)
        if batch is not None or (isinstance(loss, type) and issubclass(loss, SetLoss)):
            options.setdefault('scope', 'batch' if batch else 'image')
        if weight is not None:
            options['class_weight'] = [*weight] if include_background else [0, *weight]
        self.include_background, self.to_onehot_y, self.activated = include_background, to_onehot_y, sigmoid or softmax
        self.softmax = softmax
        self.loss = as_loss_with(loss, mode='multiclass' if softmax else 'multilabel', **options)
        self.averages = [part for part in parts_of(self.loss) if isinstance(part, JaccardLoss)]
        if not include_background and not self.averages:
            raise ValueError(
                'Parameter `include_background` should be True unless classes are averaged, as in LovaszSoftmaxLoss '
                f'and SoftIoULoss. Found False for {loss!r}.'
            )
        self._checked: dict[Any, int] = {}

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of an input [B, C, *] and a target [B, C, *], or [B, 1, *] with ``to_onehot_y``."""
        input, target = plain('input', input), plain('target', target)
        self._check_shapes(input, target)
        if not self.activated:
            hint = 'logits need `softmax=True` or `sigmoid=True`.'
            input = logits_of(input, 'multilabel', 'input', hint, self._checked)
        if not self.include_background:
            for part in self.averages:
                if part.class_weight is None:
                    part.class_weight = torch.arange(input.shape[1], device=input.device).clamp(max=1).float()
        return self.loss(input, target.squeeze(1) if self.to_onehot_y else target)

    def _check_shapes(self, input: Tensor, target: Tensor) -> None:
        n_channels = input.shape[1] if input.dim() > 1 else 0
        if n_channels < 2 and (self.softmax or self.to_onehot_y or not self.include_background):
            raise ValueError(
                'Parameter `input` should have a channel for each class with `softmax=True`, `to_onehot_y=True` or '
                f'`include_background=False`. Found {tuple(input.shape)}; a single channel takes `sigmoid=True` alone.'
            )
        labels = (len(input), 1, *input.shape[2:])
        expected = labels if self.to_onehot_y else tuple(input.shape)
        found = tuple(target.shape)
        if found != expected:
            hint = ' Labels need `to_onehot_y=True`.' if found == labels else ''
            hint = ' Add the channel: `target.unsqueeze(1)`.' if found == (*labels[:1], *labels[2:]) else hint
            hint = ' One-hot targets need `to_onehot_y=False`.' if found == tuple(input.shape) else hint
            raise ValueError(
                f'Parameter `target` should be of shape {expected} with `to_onehot_y={self.to_onehot_y}`. '
                f'Found {found}.{hint}'
            )
        ignored = [part.ignore_index for part in self.loss.modules() if getattr(part, 'ignore_index', None) is not None]
        if n_channels > 1 and not self.to_onehot_y and ignored:
            raise ValueError(
                'Parameter `ignore_index` should be None for one-hot targets, where no label can be ignored. '
                f'Found {ignored[0]}; pass labels with `to_onehot_y=True`.'
            )


def _check_settings(
    loss: Any, include_background: bool, batch: bool | None, weight: Any, options: dict[str, Any]
) -> None:
    """Raise if arguments contradict each other or the loss."""
    if isinstance(loss, str) and batch is not None:
        raise ValueError(
            "Parameter `batch` should be None beside the name of a measure, which states the set: 'miou' that of "
            f"the batch, 'image_miou' that of each image. Found {batch} beside {loss!r}."
        )
    if isinstance(loss, nn.Module) and (weight is not None or not include_background):
        raise ValueError(
            'Parameters `weight` and `include_background` should have their defaults beside a loss with settings '
            'of its own. Pass its class, or write `class_weight=[0, 1, ...]` in its constructor.'
        )
    for name, instead in (('class_weight', 'weight'), ('scope', 'batch')):
        if name in options and (name == 'class_weight' or batch is not None):
            raise ValueError(f'Parameter `{name}` should be passed as `{instead}`. Found {options[name]!r}.')
    if not include_background and not isinstance(options.get('classes', 'present'), str):
        raise ValueError(
            "Parameter `classes` should be 'present' or 'all' with `include_background=False`, or list the classes "
            f'without it. Found {options["classes"]!r}.'
        )
    if weight is not None and not isinstance(weight, (list, tuple, Tensor)):
        raise TypeError(f'Parameter `weight` should be a list with a number for each class. Found {weight!r}.')


def plain(name: str, values: Tensor) -> Tensor:
    """Return a tensor, also for a subclass such as `monai.data.MetaTensor`, whose values would not be checked."""
    check_tensor(name, values)
    return values if type(values) is Tensor else values.as_subclass(Tensor)

"""Base of hooks that measure the logits and labels that a head passes to its loss in training."""

from operator import attrgetter
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import Tensor, nn

LOSSES = ('loss_decode', 'loss_module')
"""Attributes of the heads of MMSegmentation and MMPretrain: losses that are called with logits and labels."""


class LossInputsHook(Hook):
    """A hook that is called with the inputs of the losses of a head, without a second forward pass."""

    priority = 'NORMAL'

    def __init__(self, interval: int, head: str, loss: int | None) -> None:
        if not isinstance(interval, int) or interval < 1:
            raise ValueError(f'Parameter `interval` should be a positive integer. Found {interval!r}.')
        if loss is not None and (type(loss) is not int or loss < 0):
            raise ValueError(f'Parameter `loss` should be an integer from 0 on or None. Found {loss!r}.')
        self.interval = interval
        self.head_name = head
        self.loss = loss

    def before_train(self, runner: Runner) -> None:
        """Register forward hooks on the losses of the head."""
        self.head = _head(runner.model, self.head_name)
        self.n_classes = max(self.head.num_classes, 2)
        names = getattr(runner.train_dataloader.dataset, 'metainfo', {}).get('classes') or ()
        self.class_names = [str(name) for name in (names if len(names) == self.n_classes else range(self.n_classes))]
        losses: Any = next(getattr(self.head, name) for name in LOSSES if hasattr(self.head, name))
        losses = list(losses) if isinstance(losses, nn.ModuleList) else [losses]
        if self.loss is not None and self.loss >= len(losses):
            raise ValueError(f'Parameter `loss` should be below {len(losses)} for this head. Found {self.loss}.')
        first, *others = [losses[self.loss]] if self.loss is not None else losses
        self._first_logits: int | None = None
        self._is_called = False
        self._handles = [first.register_forward_pre_hook(self._read, with_kwargs=True)]
        self._handles += [other.register_forward_pre_hook(self._compare, with_kwargs=True) for other in others]

    def after_train(self, runner: Runner) -> None:
        """Remove the forward hooks."""
        for handle in self._handles:
            handle.remove()

    def update(self, logits: Tensor, target: Tensor, ignore_index: int | None) -> None:
        """Process the inputs of a call of the first loss; ``ignore_index`` is None if there is none."""
        raise NotImplementedError

    def check_called(self) -> None:
        """Raise RuntimeError if the loss was not called since the last check."""
        if not self._is_called:
            raise RuntimeError(
                f'{type(self).__name__} received no logits: `{self.head_name}` ({type(self.head).__name__}) does not '
                'pass its logits to its loss in training.'
            )
        self._is_called = False

    def decided(self, logits: Tensor) -> Tensor:
        """Return the classes [N, *] that the head predicts from logits [N, C, *]."""
        if logits.shape[1] == 1:
            return (logits.squeeze(1).sigmoid() > getattr(self.head, 'threshold', 0.5)).long()
        return logits.max(1).indices  # takes a third of the time of argmax on the CPU

    @torch.no_grad()
    def _read(self, loss: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        logits, target = (*args, *kwargs.values())[:2]
        self._first_logits = logits.data_ptr()
        self.update(logits.detach(), target, kwargs.get('ignore_index', getattr(self.head, 'ignore_index', None)))
        self._is_called = True

    def _compare(self, loss: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        """Raise if another loss of the head has other logits."""
        if (*args, *kwargs.values())[0].data_ptr() != self._first_logits:
            raise ValueError(
                f'`{self.head_name}` ({type(self.head).__name__}) hands different logits to its losses. Name the loss '
                f'that is handed those which decide, as in `{type(self).__name__}(loss=1)` for PIDNet.'
            )


def _head(model: nn.Module, name: str) -> Any:
    inner: Any = model.module if is_model_wrapper(model) else model
    try:
        head: Any = attrgetter(name)(inner)
    except AttributeError as error:
        raise ValueError(
            f'Parameter `head` should name a decode head of {type(inner).__name__}. Found {name!r}.'
        ) from error
    head = head[-1] if isinstance(head, nn.ModuleList) else head
    if not hasattr(head, 'num_classes') or not any(hasattr(head, losses) for losses in LOSSES):
        raise ValueError(
            'Parameter `head` should name a head that hands logits of pixels to its `loss_decode`, or of images to its '
            f'`loss_module`. Found {name!r}, a {type(head).__name__}.'
        )
    return head

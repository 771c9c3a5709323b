"""What a head hands to its losses in training, for hooks that measure it: no second forward pass."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from mmengine.model import is_model_wrapper
from torch import Tensor, nn

LOSSES = ('loss_decode', 'loss_module')
"""Where the heads of MMSegmentation and of MMPretrain keep what they call with logits and labels."""


class LossListener:
    """Listens to the losses of a head from its construction until `stop`.

    Args:
        model: The model that is trained, in a wrapper or not.
        head: The head in the model, with dots where it is a part of another. Of a cascade it is the last.
        loss: Which of the head's losses is handed the logits that decide, where they are not all handed the same.
        hear: Is called with logits, target and the label to ignore (None if there is none) each time that the head
            calls its loss; with several losses, once.
        who: The hook that listens, for messages.

    Raises:
        ValueError: If the model has no such head, or the head no such loss.
    """

    def __init__(
        self,
        model: nn.Module,
        head: str,
        loss: int | None,
        hear: Callable[[Tensor, Tensor, int | None], None],
        who: str,
    ) -> None:
        self.head = _head(model, head)
        self.head_name = head
        self.who = who
        self._hear = hear
        self._heard: int | None = None
        losses: Any = next(getattr(self.head, name) for name in LOSSES if hasattr(self.head, name))
        losses = list(losses) if isinstance(losses, nn.ModuleList) else [losses]
        if loss is not None and loss >= len(losses):
            raise ValueError(f'Parameter `loss` should be below {len(losses)} for this head. Found {loss}.')
        chosen = [loss] if loss is not None else range(len(losses))
        listeners = [self._tell, *[self._compare] * (len(chosen) - 1)]
        self._listening = [
            losses[i].register_forward_pre_hook(listener, with_kwargs=True)
            for i, listener in zip(chosen, listeners, strict=True)
        ]

    def stop(self) -> None:
        """Listen no more."""
        for listening in self._listening:
            listening.remove()

    def decided(self, logits: Tensor) -> Tensor:
        """The classes [N, *] that the head decides for by logits [N, C, *]."""
        if logits.shape[1] == 1:
            return (logits.squeeze(1).sigmoid() > getattr(self.head, 'threshold', 0.5)).long()
        return logits.max(1).indices  # a third of the time of argmax on the CPU

    def heard_nothing(self) -> RuntimeError:
        """What to raise if an iteration has passed in silence."""
        return RuntimeError(
            f'{self.who} heard nothing: `{self.head_name}` ({type(self.head).__name__}) does not hand its logits to '
            'its loss in training.'
        )

    @torch.no_grad()
    def _tell(self, loss: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        logits, target = (*args, *kwargs.values())[:2]
        self._heard = logits.data_ptr()
        self._hear(logits.detach(), target, kwargs.get('ignore_index', getattr(self.head, 'ignore_index', None)))

    def _compare(self, loss: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        """Make sure that another loss of the head is handed the same logits."""
        if (*args, *kwargs.values())[0].data_ptr() != self._heard:
            raise ValueError(
                f'`{self.head_name}` ({type(self.head).__name__}) hands different logits to its losses. Name the loss '
                f'that is handed those which decide, as in `{self.who}(loss=1)` for PIDNet.'
            )


def check_listening(interval: int, loss: int | None) -> None:
    """Raise ValueError unless the arguments that hooks which listen have in common are in range."""
    if not isinstance(interval, int) or interval < 1:
        raise ValueError(f'Parameter `interval` should be a positive integer. Found {interval!r}.')
    if loss is not None and (type(loss) is not int or loss < 0):
        raise ValueError(f'Parameter `loss` should be an integer from 0 on or None. Found {loss!r}.')


def class_names(dataset: Any, n_classes: int) -> list[str]:
    """The names of the classes of a data set, or numbers where it does not name as many."""
    names = getattr(dataset, 'metainfo', {}).get('classes') or ()
    return [str(name) for name in (names if len(names) == n_classes else range(n_classes))]


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

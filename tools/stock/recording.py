"""Calls of the losses of a model, and what is checked of them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

SURE = 10.0
"""Score of a certain decision."""


class Call(NamedTuple):
    """A call of a loss."""

    pred: Tensor
    target: Any
    rest: tuple[Any, ...]
    keywords: dict[str, Any]

    def of(self, loss: nn.Module, pred: Tensor) -> Tensor:
        """Return the value of a loss for other predictions."""
        return loss(pred, self.target, *self.rest, **self.keywords)


@contextmanager
def recorded(losses: list[nn.Module]) -> Iterator[list[Call]]:
    """Record the calls of losses that a gradient is taken of."""
    calls: list[Call] = []

    def record(_: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if torch.is_grad_enabled():
            pred, target, *rest = args
            if pred.requires_grad and not pred.is_leaf:
                pred.retain_grad()
            calls.append(Call(pred, target, tuple(rest), keywords))

    handles = [loss.register_forward_pre_hook(record, with_kwargs=True) for loss in losses]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def like(pred: Tensor, values: Tensor) -> Tensor:
    """Return values as a view of the same kind as a prediction, from which `MaskLoss` reads the number of masks."""
    base = pred._base
    if base is None or base.numel() != pred.numel() or pred.dim() > 2:
        return values.clone()
    return values.reshape(base.shape).clone().reshape(pred.shape)


def descent(call: Call, reference: nn.Module, start: float) -> Tensor:
    """Return the signs of the steps that lower a stock loss, from the same score everywhere."""
    pred = torch.full_like(call.pred, start).requires_grad_()
    with torch.enable_grad():
        value = call.of(reference, pred)
        (gradient,) = torch.autograd.grad(value.sum(), pred, allow_unused=True)
    return torch.zeros_like(pred) if gradient is None else -gradient.sign()


def direction_error(
    calls: list[Call], loss: nn.Module, references: list[nn.Module], *, from_logits: bool = True
) -> str | None:
    """Return how a loss disagrees with a stock loss on perfect and on inverted scores; None if it agrees.

    The stock loss, called with the same arguments, tells what the head means by its targets: perfect scores are those
    that it descends to. No rule about the layouts of targets is used, neither that of the package nor another.
    """
    start, size = (0.0, SURE) if from_logits else (0.5, 0.5)
    values, told = [], 0
    for call in calls:
        steps = _steps(call, references, start)
        if steps is None:
            return 'no stock loss takes the arguments of this call'
        told += int(steps.any())
        with torch.no_grad():
            pair = [call.of(loss, like(call.pred, start + sign * size * steps)).sum().item() for sign in (1, -1)]
        values.append(pair)
        if pair[0] > pair[1] + 1e-6:
            return f'perfect scores have the loss {pair[0]:.4f}, inverted ones {pair[1]:.4f}'
    perfect, inverted = map(sum, zip(*values, strict=True))
    if told and not perfect < inverted:
        return f'perfect and inverted scores have the same loss {perfect:.4f}'
    return None if told else 'no call has a target'


def _steps(call: Call, references: list[nn.Module], start: float) -> Tensor | None:
    """Return the descent of the first stock loss that takes the arguments of a call; None if no loss does."""
    for reference in references:
        with suppress(RuntimeError, ValueError, TypeError, IndexError, AssertionError, AttributeError):
            return descent(call, reference, start)
    return None


def gradient_error(calls: list[Call], loss: nn.Module, ignored: int | None) -> str | None:
    """Return what is wrong with the gradients of the predictions; None if nothing is."""
    if all(call.pred.grad is None for call in calls):
        return 'no prediction has a gradient'
    for call in calls:
        if call.pred.grad is not None and not call.pred.grad.isfinite().all():
            return 'the gradient of a prediction is not finite'
        if ignored is not None:
            pred = call.pred.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(call.of(loss, pred), pred)
            if gradient.movedim(1, -1)[call.target == ignored].any():
                return 'ignored pixels have a gradient'
    return None


def masks_of(call: Call, head: str) -> tuple[Tensor, Tensor]:
    """Return the predictions and the targets of the masks of a call, [n, items], as the code of the head has them."""
    pred, target = call.pred, call.target
    if head == 'MaskFormerHead' and pred.dim() == 2 and pred.shape[1] == 1:  # its target is (1 - mask)
        return pred.reshape(len(pred._base), -1), 1 - target.reshape(len(pred._base), -1)
    if pred.dim() == 1:
        return pred.reshape(len(pred._base), -1), target.reshape(len(pred._base), -1)
    if pred.dim() == 4 and call.rest:  # the channel of the class of each mask
        pred = pred[torch.arange(len(pred)), call.rest[0]]
    return pred.flatten(1), target.flatten(1)


def mask_error(calls: list[Call], loss: nn.Module, plain: nn.Module, head: str) -> str | None:
    """Return how the value of a `MaskLoss` differs from the sum of the losses of the masks; None if it does not."""
    for call in calls:
        pred, target = masks_of(call, head)
        if type(plain).__name__.startswith('Direct'):  # these take no shares
            target = target > 0.5
        n_masks = call.keywords.get('avg_factor') or len(pred)
        if call.pred.shape[0] != len(pred) or loss.loss_name == 'loss_mask_ce':  # the head counts points
            n_masks = n_masks / pred.shape[1]
        with torch.no_grad():
            found = call.of(loss, call.pred)
            expected = torch.stack([plain(p.view(1, 1, -1), t.view(1, -1)) for p, t in zip(pred, target, strict=True)])
        if call.keywords.get('reduction_override') != 'none':
            expected = expected.sum() / torch.as_tensor(n_masks).squeeze()
        if found.shape != expected.shape or not torch.allclose(found, expected, rtol=1e-5, atol=1e-5):
            return f'the loss is {found.tolist()}, that of the masks {expected.tolist()}'
    return None

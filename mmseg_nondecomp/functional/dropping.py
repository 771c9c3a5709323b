"""Keep what is not in the set out of the gradient, whatever it holds."""

from typing import Any

import torch
from torch import Tensor


def drop_gradient(pred: Tensor, valid: Tensor) -> Tensor:
    """``pred`` [N, C, *] as it is, but without gradient for the items that are not ``valid`` [N, *].

    A loss that is masked afterwards sends them ``0 * inf = NaN`` where their prediction is NaN or infinite.

    Example:
        >>> pred = torch.tensor([[float('nan')], [1.0]], requires_grad=True)
        >>> drop_gradient(pred, torch.tensor([False, True])).square().sum().backward()
        >>> pred.grad
        tensor([[0.],
                [2.]])
    """
    return _DropGradient.apply(pred, valid)


class _DropGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pred: Tensor, valid: Tensor) -> Tensor:
        ctx.save_for_backward(valid)
        return pred.view_as(pred)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (valid,) = ctx.saved_tensors
        return grad.masked_fill(~valid.unsqueeze(1), 0), None

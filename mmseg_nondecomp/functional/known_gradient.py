"""Losses whose gradient is not that of their value."""

from typing import Any

import torch
from torch import Tensor


def with_gradient(scores: Tensor, losses: Tensor, gradient: Tensor, factor: float = 1) -> Tensor:
    """Return losses [...] of scores [..., n], float32 or better, whose gradient is ``factor * gradient`` [..., n]."""
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return _WithGradient.apply(scores, losses.to(dtype), gradient.to(dtype), factor)


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, losses: Tensor, gradient: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(gradient)
        ctx.dtype, ctx.factor = scores.dtype, factor
        return losses.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * (upstream * ctx.factor).unsqueeze(-1)).to(ctx.dtype), None, None, None

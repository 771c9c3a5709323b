"""Losses whose gradient is not that of their value."""

from typing import Any

import torch
from torch import Tensor


def with_gradient(scores: Tensor, losses: Tensor, gradient: Tensor) -> Tensor:
    """Losses [K] of scores [K, n], in float32 or better, that hand these the given gradient [K, n]."""
    dtype = torch.float32 if scores.dtype in (torch.float16, torch.bfloat16) else scores.dtype
    return _WithGradient.apply(scores, losses.to(dtype), gradient.to(dtype))


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, losses: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        ctx.dtype = scores.dtype
        return losses.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * upstream.unsqueeze(1)).to(ctx.dtype), None, None

"""Parts of all direct losses: the labellings that an update compares, and a loss with a given gradient."""

from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import check_floating_point, check_number, check_option, check_zero_or_one

MODES = ('positive', 'negative', 'hinge', 'perceptron')


def comparison(epsilon: float, mode: str | None) -> tuple[float, float | None, float]:
    """Return the two labellings that an update compares, and the factor of the difference of their gradients.

    A weight w stands for the labelling that maximises F + w L, and None for the true one. Bounds have no epsilon. With
    the mode None, the loss has no gradient.
    """
    weights_and_factors: dict[str | None, tuple[float, float | None, float]] = {
        'positive': (epsilon, 0.0, 1 / epsilon),
        'negative': (-epsilon, 0.0, -1 / epsilon),
        'hinge': (1.0, None, 1.0),
        'perceptron': (0.0, None, 1.0),
        None: (0.0, 0.0, 0.0),
    }
    return weights_and_factors[mode]


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


def one_problem(
    scores: Tensor, target: Tensor, weight: Tensor | None, epsilon: float, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Check a call of a public function; return scores, positives and valid items, of shape [1, n]."""
    check_number('epsilon', epsilon, '(0, inf)')
    check_option('mode', mode, MODES)
    check_floating_point('scores', scores)
    for name, values in (('scores', scores), ('target', target), ('weight', weight)):
        if values is not None and (values.dim() != 1 or values.shape != scores.shape):
            raise ValueError(f'Parameter `{name}` should be of shape [n], as the scores. Found {tuple(values.shape)}.')
    valid = torch.ones_like(target, dtype=torch.bool) if weight is None else weight != 0
    check_zero_or_one('target', target, valid)
    if weight is not None:
        check_zero_or_one('weight', weight)
    return scores.unsqueeze(0), (target == 1).unsqueeze(0), valid.unsqueeze(0)

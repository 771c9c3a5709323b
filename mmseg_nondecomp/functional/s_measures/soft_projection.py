"""The projection of the S-measures with a temperature: section 7.6 of the paper that `problem` cites."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional._inputs import check_number
from mmseg_nondecomp.functional.s_measures.projection import check_tau, project_tau

MAX_STEPS = 200  # upper bound on Newton's steps, far more than a root needs
ROUNDING = 1e-15


def soft_project_tau(tau: Tensor, eps: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    r"""Return the projection on :math:`\{\tau_i \le \varepsilon, \; \varepsilon \ge 0\}` with soft edges.

    :func:`mmseg_nondecomp.functional.project_tau` has the bound o with
    :math:`o - \varepsilon = \sum_i \max(\tau_i - o, 0)`: the bound rises by the sum that the τ are lowered by. Here the
    maximum is replaced by :math:`s(x) = t \log(1 + \exp(x / t))` with the temperature t,

    .. math:: o - \varepsilon = \sum_i s(\tau_i - o), \qquad
       \varepsilon' = s(o), \qquad \tau_i' = \varepsilon' - s(\varepsilon' - \tau_i).

    The left side grows with o and the right side falls, so the root is unique, and it is a smooth function of all
    inputs; :math:`\tau_i' < \varepsilon'` and :math:`\varepsilon' > 0` hold at any temperature. As t → 0 it is the
    projection itself; it is at most :math:`t \log 2 \cdot (n + 1)` away in each coordinate.

    The paper sorts softly, by Sinkhorn iterations, to count the τ that exceed the bound. The equation needs no order: a
    few passes over the values instead of iterations over an n × n table, a gradient in closed form by the implicit
    function theorem, and no step function (the paper's count has one). Both values, of the shapes and types of the
    inputs, are twice differentiable. A row with NaN or with positive infinity is NaN.

    Args:
        tau: Values of shape [..., n].
        eps: Their bound, of shape [...].
        temperature: Width of the edges, above 0, in the unit of τ.

    Example:
        >>> soft_project_tau(torch.tensor([4.0, 4.0, 0.5, -1.0]), torch.tensor(1.0), 0.1)
        (tensor([ 3.0000,  3.0000,  0.5000, -1.0000]), tensor(3.0000))
    """
    check_tau(tau, eps)
    check_number('temperature', temperature, '(0, inf)')
    exact_tau, exact_eps = tau.double(), eps.double()
    bound = _soft_maximum(_SoftBound.apply(exact_tau, exact_eps, temperature), temperature)
    projected = bound.unsqueeze(-1) - _soft_maximum(bound.unsqueeze(-1) - exact_tau, temperature)
    return projected.to(tau.dtype), bound.to(eps.dtype)


def _soft_maximum(x: Tensor, temperature: float) -> Tensor:
    """Return the soft maximum of x and 0."""
    # By default softplus returns x from 20 on, with a jump; at 40 the two are the same number.
    return temperature * F.softplus(x / temperature, threshold=40)


class _SoftBound(torch.autograd.Function):
    """Root o of :math:`o - ε = Σ s(τ_i - o)`."""

    @staticmethod
    def forward(ctx: Any, tau: Tensor, eps: Tensor, temperature: float) -> Tensor:
        # The function o - ε - Σ s(τ - o) is increasing and concave, and not above 0 at ε: Newton's steps from there go
        # up to the root and never beyond. The projection's own bound is on the same side, since s(x) > max(x, 0).
        bound = torch.where(eps < 0, eps, project_tau(tau, eps)[1])
        for _ in range(MAX_STEPS):
            above = tau - bound.unsqueeze(-1)
            lowered, slope = _soft_maximum(above, temperature).sum(-1), 1 + (above / temperature).sigmoid().sum(-1)
            step = (lowered + eps - bound) / slope
            bound = bound + step
            # Stop at the rounding error of the sum, in which ε and the rest may cancel.
            if not bool((step > ROUNDING * (bound.abs() + temperature + (lowered + eps.abs()) / slope)).any()):
                break
        ctx.save_for_backward(tau, bound)
        ctx.temperature = temperature
        return bound

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        tau, bound = ctx.saved_tensors
        slope = ((tau - bound.unsqueeze(-1)) / ctx.temperature).sigmoid()
        grad_eps = grad / (1 + slope.sum(-1))
        return slope * grad_eps.unsqueeze(-1), grad_eps, None

r"""The projection of the reparameterised S-measures with a temperature: differentiable everywhere.

Reference:
    S. N. Ravi, A. Venkatesh, G. M. Fung, V. Singh: Optimizing nondecomposable data dependent regularizers via
    Lagrangian reparameterization offers significant performance and efficiency gains. AAAI 2020, section 7.6.
    https://arxiv.org/abs/1909.12398
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional.project_tau import check_tau, project_tau

MAX_STEPS = 200
"""Far more than a root needs; each takes a pass over the numbers."""

ROUNDING = 1e-15


def soft_project_tau(tau: Tensor, eps: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    r"""The projection on :math:`\{\tau_i \le \varepsilon, \; \varepsilon \ge 0\}` with soft edges.

    :func:`mmseg_nondecomp.functional.project_tau` has the bound o with
    :math:`o - \varepsilon = \sum_i \max(\tau_i - o, 0)`: what the τ give up is what it gains. Here the maximum is
    :math:`s(x) = t \log(1 + \exp(x / t))` with the temperature t,

    .. math:: o - \varepsilon = \sum_i s(\tau_i - o), \qquad
       \varepsilon' = s(o), \qquad \tau_i' = \varepsilon' - s(\varepsilon' - \tau_i).

    The left side grows with o and the right side falls, so the root is unique, and it is a smooth function of all
    inputs; :math:`\tau_i' < \varepsilon'` and :math:`\varepsilon' > 0` hold at any temperature. As t → 0 it is the
    projection itself; it is at most :math:`t \log 2 \cdot (n + 1)` away in each coordinate.

    The paper sorts softly, by Sinkhorn iterations, in order to count how many τ exceed the bound. The equation needs no
    order: a handful of passes over the numbers instead of iterations over a table of n × n, a gradient in closed form
    by the implicit function theorem, no step function left (the paper's count has one), and no dependence on how the
    τ are arranged.

    Args:
        tau: The numbers, of shape [..., n].
        eps: Their bound, of shape [...].
        temperature: How wide the edges are, above 0, in the unit of τ.

    Returns:
        Both projected, of the shapes and types of the inputs. Differentiable, twice too. A row with NaN or with a
        number that is infinitely large is NaN.

    Raises:
        TypeError: If an input is of a wrong type.
        ValueError: If the shapes do not fit, or the temperature is not above 0.

    Example:
        >>> soft_project_tau(torch.tensor([4.0, 4.0, 0.5, -1.0]), torch.tensor(1.0), 0.1)
        (tensor([ 3.0000,  3.0000,  0.5000, -1.0000]), tensor(3.0000))
    """
    check_tau(tau, eps)
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)):
        raise TypeError(f'Parameter `temperature` should be a number. Found {temperature!r}.')
    if not 0 < temperature < math.inf:
        raise ValueError(f'Parameter `temperature` should be above 0 and finite. Found {temperature}.')
    exact_tau, exact_eps = tau.double(), eps.double()
    bound = _soft(_SoftBound.apply(exact_tau, exact_eps, temperature), temperature)
    projected = bound.unsqueeze(-1) - _soft(bound.unsqueeze(-1) - exact_tau, temperature)
    return projected.to(tau.dtype), bound.to(eps.dtype)


def _soft(x: Tensor, temperature: float) -> Tensor:
    """The soft maximum of x and 0."""
    # By default softplus is taken for x from 20 on, with a jump; at 40 the two are the same number.
    return temperature * F.softplus(x / temperature, threshold=40)


class _SoftBound(torch.autograd.Function):
    """The root o of :math:`o - ε = Σ s(τ_i - o)`."""

    @staticmethod
    def forward(ctx: Any, tau: Tensor, eps: Tensor, temperature: float) -> Tensor:
        # The function o - ε - Σ s(τ - o) is increasing and concave, and not above 0 at ε: Newton's steps from there go
        # up to the root and never beyond. The projection's own bound is on the same side, since s(x) > max(x, 0).
        bound = torch.where(eps < 0, eps, project_tau(tau, eps)[1])
        for _ in range(MAX_STEPS):
            above = tau - bound.unsqueeze(-1)
            given, slope = _soft(above, temperature).sum(-1), 1 + (above / temperature).sigmoid().sum(-1)
            step = (given + eps - bound) / slope
            bound = bound + step
            # As near as the rounding of the sum, in which ε and what is given may cancel, lets it come.
            if not bool((step > ROUNDING * (bound.abs() + temperature + (given + eps.abs()) / slope)).any()):
                break
        ctx.save_for_backward(tau, bound)
        ctx.temperature = temperature
        return bound

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        tau, bound = ctx.saved_tensors
        share = ((tau - bound.unsqueeze(-1)) / ctx.temperature).sigmoid()
        grad_eps = grad / (1 + share.sum(-1))
        return share * grad_eps.unsqueeze(-1), grad_eps, None

r"""The Euclidean projection of the reparameterised S-measures: numbers below a common bound that may give way.

Reference:
    S. N. Ravi, A. Venkatesh, G. M. Fung, V. Singh: Optimizing nondecomposable data dependent regularizers via
    Lagrangian reparameterization offers significant performance and efficiency gains. AAAI 2020, section 3.2.
    https://arxiv.org/abs/1909.12398
"""

import torch
from torch import Tensor


def project_tau(tau: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
    r"""The nearest point of :math:`C = \{(\tau, \varepsilon) : \tau_i \le \varepsilon, \; \varepsilon \ge 0\}`.

    .. math:: \operatorname*{arg\,min}_{(t, e) \in C} \; \sum_i (t_i - \tau_i)^2 + (e - \varepsilon)^2

    The bound e takes the mean of ε and of the largest τ that exceed it; those come down to it and the others stay.
    Sorted in descending order, :math:`\tau_{(k)}` is among them as long as it exceeds 0 and the mean of ε with the k -
    1 before it. With one τ it is the rule of the paper: where τ > ε, both take their mean.

    The paper's Algorithms 2 and 4 are wrong as printed: they miscount by one, and clamp ε before the mean is taken.

    Args:
        tau: The numbers, of shape [..., n].
        eps: Their bound, of shape [...]. It may be negative; its projection is not.

    Returns:
        Both projected, of the shapes and types of the inputs. Differentiable wherever the projection is. NaN stays
        where it is.

    Raises:
        TypeError: If an input is not floating point.
        ValueError: If the shapes do not fit.

    Example:
        >>> project_tau(torch.tensor([4.0, 4.0, 0.5, -1.0]), torch.tensor(1.0))
        (tensor([ 3.0000,  3.0000,  0.5000, -1.0000]), tensor(3.))
    """
    check_tau(tau, eps)
    exact = torch.promote_types(torch.promote_types(tau.dtype, eps.dtype), torch.float32)
    largest = tau.to(exact).sort(-1, descending=True).values
    # The mean of ε and of none, one, two, ... of the largest τ; sums of many are taken in float64.
    means = torch.cat([eps.unsqueeze(-1), largest], -1).double().cumsum(-1)
    means = means / torch.arange(1, tau.shape[-1] + 2, device=tau.device)
    n_above = (largest > means[..., :-1].clamp(min=0)).sum(-1, keepdim=True)
    bound = means.gather(-1, n_above).clamp(min=0)
    projected = torch.minimum(tau.double(), bound)
    return projected.to(tau.dtype), bound.squeeze(-1).to(eps.dtype)


def check_tau(tau: Tensor, eps: Tensor) -> None:
    """Raise unless there is a bound for each row of numbers."""
    for name, value in (('tau', tau), ('eps', eps)):
        if not value.is_floating_point():
            raise TypeError(f'Parameter `{name}` should be a floating-point tensor. Found {value.dtype}.')
    if tau.dim() == 0 or eps.shape != tau.shape[:-1]:
        raise ValueError(
            'Parameter `eps` should hold one bound for each row of `tau`, of shape [...] for [..., n]. '
            f'Found {tuple(eps.shape)} for {tuple(tau.shape)}.'
        )

r"""The Lovász extension of the Jaccard loss, exactly: by sorting.

.. math:: \bar\Delta(m) = \sum_i m_i\, g_i(m), \qquad
    g_i(m) = \Delta(\{\pi_1, \dots, \pi_i\}) - \Delta(\{\pi_1, \dots, \pi_{i-1}\}),
    \qquad m_{\pi_1} \ge m_{\pi_2} \ge \dots

It is the tightest convex function of the errors :math:`m \ge 0` that equals the Jaccard loss :math:`\Delta` on every
set of mispredictions, errors of 0 and 1. The vector :math:`g` is its gradient.

Reference:
    M. Berman, A. Rannen Triki, M. B. Blaschko: The Lovász-Softmax loss. CVPR 2018, equations 6 to 9 and Algorithm 1.
    https://arxiv.org/abs/1705.08790
"""

import torch
from torch import Tensor

from mmseg_nondecomp.functional.jaccard_shares import shares_in_order


def lovasz_extension(errors: Tensor, foreground: Tensor) -> Tensor:
    r"""The Lovász extension :math:`\bar\Delta` of the Jaccard loss. Its gradient is :math:`g`.

    Args:
        errors: Non-negative errors of the pixels of a class, of shape [..., P]; each row is a set of its own.
        foreground: Which pixels belong to the class (bool, or 0 and 1), of the same shape.

    Returns:
        The extension, of shape [...]; where no pixel belongs to the class, the largest error.

    Raises:
        TypeError: If ``errors`` is not a floating-point tensor.
        ValueError: If the shapes differ, ``foreground`` is neither 0 nor 1, or an error is negative.

    Example:
        >>> errors = torch.tensor([0.9, 0.2, 0.6, 0.0])
        >>> foreground = torch.tensor([True, True, False, False])
        >>> lovasz_extension(errors, foreground)
        tensor(0.6167)
    """
    if not errors.is_floating_point():
        raise TypeError(f'Parameter `errors` should be a floating-point tensor. Found {errors.dtype}.')
    if errors.dim() == 0 or errors.shape != foreground.shape:
        raise ValueError(
            'Parameters `errors` and `foreground` should have the same shape [..., P]. '
            f'Found {tuple(errors.shape)} and {tuple(foreground.shape)}.'
        )
    if (errors < 0).any():
        raise ValueError(f'Parameter `errors` should not be negative. Found {errors.min().item()}.')
    if foreground.dtype != torch.bool and not bool(((foreground == 0) | (foreground == 1)).all()):
        raise ValueError('Parameter `foreground` should hold 0 and 1 only.')
    if errors.dtype in (torch.float16, torch.bfloat16):
        errors = errors.float()
    return extension_by_sorting(errors, foreground.bool(), torch.ones((), dtype=torch.int32, device=errors.device))


def extension_by_sorting(errors: Tensor, foreground: Tensor, mass: Tensor) -> Tensor:
    """The extension of each row of pixels that count ``mass`` times.

    Args:
        errors: The errors, of shape [..., P].
        foreground: Which pixels belong to the class, bool, of the same shape.
        mass: How much each pixel counts, int32 or float64, broadcast to the same shape; 0 takes it out of the set.

    Returns:
        The extension, of shape [...].
    """
    # What counts for nothing goes to the end, a NaN included.
    descending, order = torch.where(mass > 0, errors, 0).sort(-1, descending=True)
    with torch.no_grad():
        is_foreground = foreground.gather(-1, order)
        mass = mass.expand_as(errors).gather(-1, order) if mass.dim() else mass
        shares = shares_in_order(is_foreground * mass, ~is_foreground * mass).to(errors.dtype)
    return (descending * shares).sum(-1)

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
    foreground = foreground.bool()
    shares = shares_by_sorting(errors.detach(), foreground.int(), (~foreground).int())
    return (errors * shares).sum(-1)


@torch.no_grad()
def shares_by_sorting(errors: Tensor, foreground: Tensor, background: Tensor) -> Tensor:
    """What each pixel has of the step of the Jaccard loss: the gradient of the extension.

    Args:
        errors: Non-negative errors, of shape [..., P]; a NaN may be among them.
        foreground: The mass of the pixels that belong to the class, int32 or float64, of the same shape; 0 elsewhere.
        background: The mass of those that do not.

    Returns:
        The shares, of the shape and dtype of ``errors``.
    """
    if errors.dtype == torch.float64:  # Quotients of integers are float32.
        foreground, background = foreground.double(), background.double()
    order = descending_order(errors)
    shares = shares_in_order(foreground.gather(-1, order), background.gather(-1, order)).to(errors.dtype)
    return torch.empty_like(shares).scatter_(-1, order, shares)


def descending_order(values: Tensor) -> Tensor:
    """The order that sorts non-negative floats from the largest down.

    Their bit patterns sort alike, and a single row of integers is sorted digit by digit, many times faster.
    """
    if values.dim() > 1:
        return values.argsort(-1, descending=True)
    integer, infinity = (torch.int64, 0x7FF << 52) if values.dtype == torch.float64 else (torch.int32, 0xFF << 23)
    values = values.contiguous() + 0  # which makes a negative zero a positive one
    return (infinity - values.view(integer)).argsort()

r"""How a class's Jaccard loss is shared out among its pixels, from the largest error to the smallest.

The Jaccard loss of a set of mispredicted pixels that holds the foreground mass ``a`` and the background mass ``b`` of a
class with the foreground mass ``n`` is

.. math:: \Delta(a, b) = 1 - \frac{n - a}{n + b}, \qquad \Delta(0, b) = 1 \text{ for } n = 0,\ b > 0.

The Lovász extension adds pixels to the set in descending order of their errors, and weighs each error by the step of
:math:`\Delta` that its pixel causes. With the intersection :math:`I` and the union :math:`U` reached before it,

- a foreground pixel of mass :math:`a` causes the step :math:`a / U`,
- a background pixel of mass :math:`b` causes the step :math:`I b / (U (U + b))`.

Written like this, nothing is the difference of two numbers near 1. Where a cell holds many pixels whose order is not
known, its step is shared out along the straight path :math:`(I - a t, U + b t)`, :math:`t \in [0, 1]`, as if all its
pixels entered together, little by little. This is the Aumann-Shapley price of the step: it adds up to the exact
step, and since no subset is charged more than it would cost alone, the shares are a subgradient of the Lovász
extension of any errors that agree within each cell.

Reference:
    M. Berman, A. Rannen Triki, M. B. Blaschko: The Lovász-Softmax loss. CVPR 2018. https://arxiv.org/abs/1705.08790
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def shares_in_order(foreground: Tensor, background: Tensor) -> Tensor:
    """The step that each pixel causes, the pixels being in descending order of their errors.

    Args:
        foreground: The mass of each pixel that belongs to the class, of shape [..., P]; 0 elsewhere.
        background: The mass of each pixel that does not, of shape [..., P]; 0 elsewhere.

    Returns:
        The steps, of shape [..., P], float64 for floating-point masses and float32 for integers, which are exact.
    """
    total = foreground.sum(-1, keepdim=True, dtype=foreground.dtype)
    intersection = total - foreground.cumsum(-1, dtype=foreground.dtype)
    before = total + _before(background)
    union = before + background
    of_foreground = foreground / union
    # With nothing in the union, the first pixel that enters it brings the whole loss.
    of_background = torch.where(before > 0, intersection / before, 1) * (background / union)
    return torch.where(background > 0, of_background, torch.where(foreground > 0, of_foreground, 0))


def shares_of_cells(foreground: Tensor, background: Tensor) -> tuple[Tensor, Tensor]:
    """The step of each cell of a histogram, shared out along the straight path, per unit of mass.

    Args:
        foreground: The mass of the class in each cell, the cells being in ascending order of errors; float64, of
            shape [..., T].
        background: The mass of the other classes in each cell, of the same shape.

    Returns:
        The share of a unit of foreground, and that of a unit of background, each of shape [..., T].
    """
    total = foreground.sum(-1, keepdim=True)
    intersection = (total - _before(foreground.flip(-1)).flip(-1)).clamp(min=0)
    union = total + _before(background.flip(-1)).flip(-1)
    r = background / union
    # log(1+r)/r and (log(1+r) - r/(1+r))/r², by their series where the quotients would cancel.
    small = r < 1e-4
    log = torch.log1p(r)
    phi = torch.where(small, 1 - r / 2, log / r)
    psi = torch.where(small, 0.5 - 2 / 3 * r, (log - r / (1 + r)) / r.square())
    of_foreground = phi / union
    of_background = (intersection / (1 + r) - foreground * psi) / union.square()
    # With nothing in the union, the first cell that enters it brings the whole loss.
    empty = union == 0
    return (
        torch.where(empty, 0, of_foreground),
        torch.where(empty, torch.where(background > 0, 1 / background, 0), of_background),
    )


def _before(mass: Tensor) -> Tensor:
    """The mass before each place; not a difference, in which a small mass would be lost beside a large one."""
    return F.pad(mass[..., :-1].cumsum(-1, dtype=mass.dtype), (1, 0))

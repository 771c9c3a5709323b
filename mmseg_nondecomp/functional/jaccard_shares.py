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

from mmseg_nondecomp._utils.versions import is_compiling

NOTHING = 1e-100
"""A mass that is lost beside any other, and whose square is not."""


CELLS_AT_A_TIME = 1 << 15
"""Number of cells that a CPU processes at a time, so that intermediate results stay in its cache."""


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


def shares_of_cells(mass: Tensor) -> Tensor:
    """Compute the step of each cell of a histogram, shared out along the straight path, per unit of mass.

    Args:
        mass: Mass of the other classes and of the class in each cell, of shape [..., 2, T], errors ascending.

    Returns:
        The share of a unit of background and that of a unit of foreground, float64 of the same shape.
    """
    rows = mass.reshape(-1, *mass.shape[-2:])
    n_rows = max(1, CELLS_AT_A_TIME // mass.shape[-1])
    if mass.device.type != 'cpu' or is_compiling() or len(rows) <= n_rows:
        return _shares_of_cells(mass)
    return torch.cat([_shares_of_cells(part) for part in rows.split(n_rows)]).view(mass.shape)


def _shares_of_cells(mass: Tensor) -> Tensor:
    background, foreground = mass.unbind(-2)
    intersection = foreground.cumsum(-1).double()  # integers are added as integers
    # A class that is absent has as much foreground as makes the first cell that has any pixel bring the whole loss.
    total = intersection[..., -1:]
    intersection += total.clamp(min=NOTHING) - total
    union = intersection[..., -1:] + _before(background.flip(-1)).flip(-1)
    r = (background / union).clamp_(min=1e-300)
    # log(1 + r) / r, and (log(1 + r) - r / (1 + r)) / r², by its series where the difference would cancel.
    phi = torch.log1p(r).div_(r)
    left = (1 + r).reciprocal_()
    psi = torch.where(r < 1e-4, torch.rsub(r, 0.5, alpha=2 / 3), (phi - left).div_(r))
    of_background = torch.addcmul(left.mul_(intersection), foreground, psi, value=-1).div_(union).div_(union)
    return torch.stack([of_background, phi.div_(union)], -2)


def _before(mass: Tensor) -> Tensor:
    """Return the mass before each place; not as a difference, which would lose a small mass beside a large one."""
    return F.pad(mass[..., :-1].cumsum(-1, dtype=mass.dtype), (1, 0))

r"""Gaussian filter over features of many dimensions, in time and memory linear in the pixels.

For pixels with features :math:`f_i \in \mathbb{R}^d` and values :math:`v_i`, it approximates, up to a factor,

.. math:: v'_i = \sum_j \exp\left(-\tfrac{1}{2} \lVert f_i - f_j \rVert^2\right) v_j.

The permutohedral lattice is the projection of :math:`\mathbb{Z}^{d+1}` along :math:`\mathbf{1} = (1, \dots, 1)`. Here a
point of it is represented by the integers :math:`z \in \mathbb{Z}^d` that remain when its last coordinate is subtracted
from the others. The :math:`d + 1` axes are then :math:`e_1, \dots, e_d` and :math:`\mathbf{1}`. The simplex around a
position :math:`x` is found by sorting its fractional parts, :math:`r_{\pi_1} \geq \dots \geq r_{\pi_d}`. Its corners
are :math:`\lfloor x \rfloor, \lfloor x \rfloor + e_{\pi_1}, \lfloor x \rfloor + e_{\pi_1} + e_{\pi_2}, \dots`, and
the barycentric coordinates are :math:`1 - r_{\pi_1}, r_{\pi_1} - r_{\pi_2}, \dots, r_{\pi_d}`.

Values are splatted to the corners of their simplex, blurred by :math:`(\frac14, \frac12, \frac14)` along each axis, and
sliced, that is, interpolated from the corners. The blur has variance :math:`\frac12` along an axis, splatting and
slicing have :math:`\frac1{12}` each, so that the covariance of the filter is
:math:`\frac23 \sum_a a a^\top = \frac23 (I + \mathbf{1}\mathbf{1}^\top)`. Features are multiplied by a root of it.

Only points near pixels are stored. Two changes of the published filter reduce the error that this causes:

- besides the corners, the lattice has the points that are adjacent to two of them, or a value would be lost on its way;
- the blur is the mean over both orders of the axes, which makes the filter symmetric.

Reference:
    A. Adams, J. Baek, M. A. Davis: Fast High-Dimensional Filtering Using the Permutohedral Lattice. Eurographics 2010.
    https://doi.org/10.1111/j.1467-8659.2009.01645.x
"""

from itertools import accumulate
from operator import mul
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Lattice(NamedTuple):
    """Points of the lattice near P pixels, numbered from 0 to M - 1.

    The number M stands for points that are not stored; their values are 0. Indices are int32.
    """

    corners: Tensor  # points at the corners of the simplex of each pixel, [P, d + 1]
    coordinates: Tensor  # barycentric coordinates of each pixel, [P, d + 1]
    pixels: Tensor  # pixel of each corner, with the corners sorted by point, [P (d + 1)]
    shares: Tensor  # barycentric coordinate of each corner, in the same order
    starts: Tensor  # position in this order of the first corner of each point, [M + 1]
    neighbours: Tensor  # points after and before each point along each axis, [d + 1, M + 1, 2]


def permutohedral_lattice(features: Tensor) -> Lattice:
    """Return the lattice of at least one pixel, given features [P, d] in units of their standard deviation."""
    d = features.shape[1]
    root = torch.linalg.cholesky((torch.eye(d, dtype=torch.float64) + 1) * 2 / 3).to(features)
    position = features @ root.T
    base = position.floor()
    fractions, order = (position - base).sort(1, descending=True)
    coordinates = F.pad(fractions, (1, 0), value=1) - F.pad(fractions, (0, 1))

    base = base.long()
    steps = _codes_of_steps(base)
    codes = torch.cat([(base * steps).sum(1, keepdim=True), steps[order]], 1).cumsum(1).flatten()
    axes = torch.cat([steps, steps.sum(0, keepdim=True)])

    codes, order = codes.sort(stable=True)
    occupied, point, counts = codes.unique_consecutive(return_inverse=True, return_counts=True)
    points = _with_common_neighbours(occupied, axes)
    place = torch.searchsorted(points, occupied)
    corners = torch.empty_like(point).scatter_(0, order, place[point])
    n_corners = counts.new_zeros(len(points) + 1).index_copy_(0, place, counts)
    return Lattice(
        corners.view(-1, d + 1).int(),
        coordinates,
        (order // (d + 1)).int(),
        coordinates.flatten()[order],
        (n_corners.cumsum(0) - n_corners).int(),
        _neighbours(points, axes),
    )


def permutohedral_filter(lattice: Lattice, values: Tensor) -> Tensor:
    """Filter values [P, C] of the pixels; the result is a multiple of the Gaussian filter's.

    Sums are gathered, never scattered, so that the result is the same in every run, also on a GPU.
    """
    splatted = F.embedding_bag(lattice.pixels, values, lattice.starts, mode='sum', per_sample_weights=lattice.shares)
    blurred = _blur(splatted, lattice.neighbours) + _blur(splatted, lattice.neighbours.flip(0))
    return F.embedding_bag(lattice.corners, blurred, mode='sum', per_sample_weights=lattice.coordinates)


def _blur(values: Tensor, neighbours: Tensor) -> Tensor:
    """Blur values [M + 1, C] along the axes, one after the other."""
    for along_axis in neighbours:
        values = F.embedding_bag(along_axis, values, mode='mean').lerp_(values, 0.5)
    return values


def _codes_of_steps(base: Tensor) -> Tensor:
    """Return the codes [d] of the unit steps, where the code of a point is linear in its coordinates, modulo 2^64.

    Coordinates are the digits of a number, wide enough for the neighbours of all points. If it has more than 63 bits,
    the steps are random: two of n points have the same code with a probability of about n² / 2^64.
    """
    widths = (base.amax(0) - base.amin(0) + 6).tolist()
    *steps, end = accumulate(widths, mul, initial=1)
    if end >= 2**63:
        random = torch.Generator().manual_seed(0)
        return torch.randint(-(2**62), 2**62, (len(widths),), generator=random).to(base.device)
    return torch.tensor(steps, device=base.device)


def _with_common_neighbours(points: Tensor, axes: Tensor) -> Tensor:
    """Return points and all that are adjacent to at least two of them, as sorted codes."""
    adjacent, counts = (points + torch.cat([axes, -axes]).unsqueeze(1)).unique(return_counts=True)
    return torch.cat([points, adjacent[counts > 1]]).unique()


def _neighbours(points: Tensor, axes: Tensor) -> Tensor:
    """Return the points one step forward and one step back along each axis, M where they are not stored."""
    n_points = len(points)
    found = torch.full((len(axes), n_points + 1, 2), n_points, dtype=torch.int32, device=points.device)
    for axis, step in zip(found, axes, strict=True):
        for side, wanted in enumerate((points + step, points - step)):
            place = torch.searchsorted(points, wanted).clamp_(max=n_points - 1)
            axis[:-1, side] = torch.where(points[place] == wanted, place, n_points)
    return found

r"""Problem C.4 of the Lovász-Softmax paper, the simplest function with the kinks of the Lovász hinge.

.. math:: f(x) = \max(0,\; \nu x_1,\; x_2), \qquad x \in \mathbb{R}^2,\; \nu > 0

It is the support function of the triangle :math:`T` of its three gradients :math:`0`, :math:`\nu e_1` and :math:`e_2`.
By Moreau's identity, the proximal operator subtracts a projection:
:math:`\mathrm{prox}_{f,\lambda}(x) = x - P_T(\lambda x) / \lambda`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from reproductions.descent import COLORS, METHODS, STYLES, Problem, steps_until

START, NUS, ETA = (5.03, 2.96), (0.25, 1.0, 4.0), 0.1
N_STEPS, N_STARTS = 300, 200
TOLERANCE = 1e-6


def two_pieces(nu: Tensor) -> Problem:
    """Return the problem for each ν of shape [...], on points of shape [..., 2]."""

    def value(x: Tensor) -> Tensor:
        return torch.maximum(nu * x[..., 0], x[..., 1]).clamp(min=0)

    def gradient(x: Tensor) -> Tensor:
        first = nu * x[..., 0] >= x[..., 1]
        pieces = torch.stack([nu * first, (~first).to(x.dtype)], -1)
        return pieces * (value(x) > 0).unsqueeze(-1)

    def prox(x: Tensor, lam: Tensor) -> Tensor:
        return x - project_on_triangle(lam * x, nu) / lam

    return Problem(value, gradient, prox, nu.clamp(min=1).unsqueeze(-1))


def project_on_triangle(z: Tensor, nu: Tensor) -> Tensor:
    """Return the nearest point of the triangle with the corners (0, 0), (ν, 0) and (0, 1).

    The triangle lies in the quadrant of non-negative points. If the nearest point of the quadrant is inside the
    triangle, it is also the nearest point of the triangle; otherwise the nearest point is on the third side.
    """
    in_quadrant = z.clamp(min=0)
    along = ((nu * z[..., 0] - z[..., 1] + 1) / (nu**2 + 1)).clamp(0, 1)
    on_third_side = torch.stack([nu * along, 1 - along], -1)
    inside = in_quadrant[..., 0] / nu + in_quadrant[..., 1] <= 1
    return torch.where(inside.unsqueeze(-1), in_quadrant, on_third_side)


def trajectories(nu: float) -> dict[str, Tensor]:
    """Return the iterates of each method from the same point, of shape [steps + 1, 2]."""
    problem = two_pieces(torch.tensor(nu, dtype=torch.float64))
    start, eta = torch.tensor(START, dtype=torch.float64), torch.tensor([ETA], dtype=torch.float64)
    return {name: method(problem, start, eta, N_STEPS) for name, method in METHODS.items()}


def measure(path: Tensor, nu: float, name: str) -> dict[str, Any]:
    """Return how a method approaches the minimum."""
    values = two_pieces(torch.tensor(nu, dtype=torch.float64)).value(path)
    n_steps = int(steps_until(values, TOLERANCE))
    until = path[: n_steps + 1]
    to_edge = nu * until[:, 0] - until[:, 1]
    sides = to_edge[to_edge.abs() > TOLERANCE].sign()
    return {
        'problem C.4': name,
        'ν': nu,
        'steps to the minimum': n_steps,
        'crossings of the edge': int((sides[1:] != sides[:-1]).sum()),
        'path / shortest path': (until.diff(dim=0).norm(dim=1).sum() / path[0].clamp(min=0).norm()).item(),
        'steps that raise f': int((values.diff() > TOLERANCE).sum()),
        'final f': values[-1].item(),
    }


def against_gradient_descent(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Return how often a method takes fewer, as many or more steps, from random starts with random ν and η."""
    draws = [random_steps(torch.Generator().manual_seed(seed)) for seed in seeds]
    steps = {name: torch.cat([draw[name] for draw in draws]).double() for name in METHODS}
    reference, *others = METHODS
    return [
        {
            'problem C.4 from random starts': name,
            'fewer steps than gradient descent': (steps[name] < steps[reference]).double().mean().item(),
            'as many': (steps[name] == steps[reference]).double().mean().item(),
            'more': (steps[name] > steps[reference]).double().mean().item(),
            'median ratio of steps': (steps[name] / steps[reference]).median().item(),
        }
        for name in others
    ]


def found(rows: list[dict[str, Any]]) -> str:
    """Return the comparison of the methods from random starts."""
    parts = [
        f'{name} in {100 * fewer:.1f} % (median ratio {ratio:.2f})'
        for name, fewer, _, _, ratio in map(dict.values, rows)
    ]
    return f'Problem C.4 takes fewer steps than gradient descent with {", ".join(parts)} of the random starts.'


def random_steps(generator: torch.Generator) -> dict[str, Tensor]:
    """Return the number of steps of each method to the minimum; one more than were made if it was not reached."""
    draw = torch.rand(4, N_STARTS, generator=generator, dtype=torch.float64)
    nu = 4 ** (2 * draw[0] - 1)
    start = 0.2 + 2.8 * draw[1:3].T
    eta = (0.05 * 10 ** draw[3] / nu.clamp(min=1)).unsqueeze(-1)
    problem = two_pieces(nu)
    return {
        name: steps_until(problem.value(method(problem, start, eta, N_STEPS)), TOLERANCE)
        for name, method in METHODS.items()
    }


def draw(nu: float, paths: dict[str, Tensor], axis: Axes) -> None:
    """Plot the trajectories over the contours of the objective, as in figure C.1."""
    x, y = torch.meshgrid(torch.linspace(-3, 6, 200), torch.linspace(-3, 4, 200), indexing='xy')
    values = two_pieces(torch.tensor(nu)).value(torch.stack([x, y], -1))
    axis.contourf(x, y, values, levels=12, cmap='Greys', alpha=0.5)
    axis.plot([0, 6], [0, 6 * nu], color='gray', linewidth=1, zorder=1)
    axis.plot([-3, 0, 0], [0, 0, -3], color='gray', linewidth=1, zorder=1)
    for name, path in paths.items():
        axis.plot(
            *path.T, color=COLORS[name], linestyle=STYLES[name], marker='.', markersize=2, linewidth=1, label=name
        )
    axis.set(xlim=(-3, 6), ylim=(-3, 4), xlabel='x₁', ylabel='x₂')
    axis.set_title(f'max(0, ν x₁, x₂), ν = {nu:g}, η = {ETA:g}')

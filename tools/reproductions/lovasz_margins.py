"""Lovász hinge of free margins, one for each pixel, minimised by the methods of appendix C."""

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from mmseg_nondecomp.functional import lovasz_extension, prox_lovasz_hinge
from reproductions import spread_over_seeds
from reproductions.circles import circles, noisy
from reproductions.descent import COLORS, METHODS, STYLES, Problem, steps_until

SIZE, RADII = 16, (4.0, 7.0)
PACES = (20, 5)
"""Number of gradient steps needed if each reduced positive margins by its whole length; determines η."""
TOLERANCE = 1e-3
"""Target loss relative to the initial loss."""


def margins_problem(foreground: Tensor) -> Problem:
    """Return the Lovász hinge as a function of the relative margins 1 - y·F, of shape [P]."""

    def value(margins: Tensor) -> Tensor:
        return lovasz_extension(margins.clamp(min=0), foreground.expand_as(margins))

    def gradient(margins: Tensor) -> Tensor:
        variable = margins.detach().requires_grad_()
        return torch.autograd.grad(value(variable).sum(), variable)[0]

    def prox(margins: Tensor, lam: Tensor) -> Tensor:
        return prox_lovasz_hinge(margins, foreground, lam.item())

    # Gradients are non-negative and sum to at most 1.
    return Problem(value, gradient, prox, torch.ones(1, dtype=torch.float64))


def noisy_margins(seed: int) -> tuple[Tensor, Tensor]:
    """Return the foreground of a circle's image, and the margins of its noisy feature as score, of shape [P]."""
    generator = torch.Generator().manual_seed(seed)
    labels = circles(1, SIZE, RADII, generator)
    sign = torch.where(labels, 1.0, -1.0)
    return labels.flatten(), (1 - sign * noisy(labels, generator)).flatten()


def descents(seed: int, pace: int) -> dict[str, Tensor]:
    """Return the loss at each step of each method."""
    foreground, margins = noisy_margins(seed)
    problem = margins_problem(foreground)
    # Gradients sum to 1, so a step reduces the sum of the margins by η.
    eta = margins.clamp(min=0).sum().unsqueeze(-1) / pace
    return {name: problem.value(method(problem, margins, eta, 3 * pace)) for name, method in METHODS.items()}


def run(seeds: Sequence[int]) -> dict[int, list[dict[str, Tensor]]]:
    """Return the descents of every seed for each step size."""
    return {pace: [descents(seed, pace) for seed in seeds] for pace in PACES}


def measure(runs: list[dict[str, Tensor]], pace: int) -> list[dict[str, Any]]:
    """Return the number of steps of each method, and the distance of its curve from that of gradient descent."""
    reference = next(iter(METHODS))
    return [
        {
            'free margins': name,
            'η / sum of margins': 1 / pace,
            'steps to 0.1 % of the loss': spread_over_seeds(
                [float(steps_until(run[name], TOLERANCE * run[name][0])) for run in runs]
            ),
            'differs from gradient descent by': max(
                ((run[name] - run[reference]).abs().max() / run[name][0]).item() for run in runs
            ),
        }
        for name in METHODS
    ]


def found(rows: list[dict[str, Any]]) -> str:
    """Return the number of steps of the methods."""
    parts = [
        f'{row["free margins"]} {row["steps to 0.1 % of the loss"]["mean"]:.1f}'
        for row in rows
        if row['η / sum of margins'] == 1 / max(PACES)
    ]
    return f'Free margins of the Lovász hinge take, in steps to 0.1 % of the loss: {", ".join(parts)}.'


def draw(losses: dict[str, Tensor], pace: int, axis: Axes) -> None:
    """Plot the loss over the steps."""
    for name, loss in losses.items():
        axis.plot(loss, color=COLORS[name], linestyle=STYLES[name], marker='.', markersize=4)
    axis.set(xlabel='step', ylabel='Lovász hinge', ylim=(0, None))
    axis.set_title(f'Free margins, η = sum of margins / {pace}')

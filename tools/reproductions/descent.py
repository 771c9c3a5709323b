"""Gradient descent, momentum and the proximal algorithm of appendix C of the Lovász-Softmax paper."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

ALPHA = 0.9
"""Momentum coefficient."""
SECANT_STEPS = 30
SHORTEST = 1e-9
"""Length below which a step counts as zero."""


class Problem(NamedTuple):
    """Convex function on points of shape [..., d] with the minimum 0 where no coordinate is positive."""

    value: Callable[[Tensor], Tensor]
    """Value, of shape [...]."""
    gradient: Callable[[Tensor], Tensor]
    """Subgradient, of shape [..., d]."""
    prox: Callable[[Tensor, Tensor], Tensor]
    """Proximal point (definition C.1) for a λ of shape [..., 1]."""
    steepest: Tensor
    """Upper bound on the length of subgradients, of shape [..., 1]."""


def momentum(problem: Problem, x: Tensor, eta: Tensor, n_steps: int, alpha: float = ALPHA) -> Tensor:
    """Return the iterates of C.2 and C.3, of shape [n_steps + 1, ..., d]; gradient descent for ``alpha = 0``."""
    iterates, velocity = [x], torch.zeros_like(x)
    for _ in range(n_steps):
        velocity = alpha * velocity + problem.gradient(iterates[-1])
        iterates.append(iterates[-1] - eta * velocity)
    return torch.stack(iterates)


def momentum_of_equal_speed(problem: Problem, x: Tensor, eta: Tensor, n_steps: int) -> Tensor:
    """Run momentum with the limit speed of gradient descent for a constant gradient."""
    return momentum(problem, x, (1 - ALPHA) * eta, n_steps)


def proximal(problem: Problem, x: Tensor, eta: Tensor, n_steps: int) -> Tensor:
    """Run the proximal algorithm with λ = 1/η, a gradient step where the function is linear."""
    iterates = [x]
    for _ in range(n_steps):
        iterates.append(problem.prox(iterates[-1], 1 / eta))
    return torch.stack(iterates)


def proximal_of_equal_length(problem: Problem, x: Tensor, eta: Tensor, n_steps: int) -> Tensor:
    """Run the proximal algorithm of proposition C.1, with the length of the gradient step from the same point."""
    iterates = [x]
    for _ in range(n_steps):
        length = eta * problem.gradient(iterates[-1]).norm(dim=-1, keepdim=True)
        iterates.append(prox_at_distance(problem, iterates[-1], length))
    return torch.stack(iterates)


def prox_at_distance(problem: Problem, x: Tensor, distance: Tensor) -> Tensor:
    """Return the proximal point at a distance of shape [..., 1], or the nearest minimiser if that is not further away.

    Between the kinks of a piecewise linear function the step is c + d/λ with orthogonal c and d. Its squared length is
    therefore piecewise linear in 1/λ², which suits the secant method. At the initial λ no step is too long.
    """
    minimiser = x.clamp(max=0)
    way = (minimiser - x).norm(dim=-1, keepdim=True)
    reached = way <= distance
    target = torch.where(reached, way / 2, distance).square().clamp(min=SHORTEST**2)
    inverse, before, length_before = target / problem.steepest**2, torch.zeros_like(target), torch.zeros_like(target)
    for _ in range(SECANT_STEPS):
        point = problem.prox(x, inverse.rsqrt())
        length = (point - x).square().sum(-1, keepdim=True)
        found = reached | ((length - target).abs() <= 1e-9 * target)
        if found.all():
            break
        slope = (length - length_before) / (inverse - before)
        further = torch.where(found, inverse, inverse + (target - length) / slope)
        before, length_before, inverse = torch.where(found, before, inverse), length, further
    return torch.where(reached, minimiser, point)


def steps_until(values: Tensor, bound: float | Tensor) -> Tensor:
    """Return the first step with a value of shape [steps + 1, ...] within a bound; one past the last if never."""
    reached = torch.cat([values <= bound, torch.ones_like(values[:1], dtype=torch.bool)])
    return reached.long().argmax(0)


METHODS: dict[str, Callable[[Problem, Tensor, Tensor, int], Tensor]] = {
    'gradient descent': partial(momentum, alpha=0.0),
    'momentum': momentum,
    'momentum, η(1 − α)': momentum_of_equal_speed,
    'proximal, λ = 1/η': proximal,
    'proximal, equal length': proximal_of_equal_length,
}
COLORS = dict(zip(METHODS, ('tab:green', 'tab:orange', 'tab:brown', 'tab:blue', 'tab:red'), strict=True))
STYLES = dict(zip(METHODS, ('--', '-', ':', '-', '-'), strict=True))

"""Gradient descent, momentum and the proximal algorithm: appendix C of the Lovász-Softmax paper."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

ALPHA = 0.9
"""The momentum coefficient."""
SECANT_STEPS = 30
SHORTEST = 1e-9
"""A step that is as good as none."""


class Problem(NamedTuple):
    """A convex function on points of shape [..., d] that is lowest, 0, where no coordinate is positive."""

    value: Callable[[Tensor], Tensor]
    """Of shape [...]."""
    gradient: Callable[[Tensor], Tensor]
    """A subgradient, of shape [..., d]."""
    prox: Callable[[Tensor, Tensor], Tensor]
    """The proximal point (definition C.1) for a λ of shape [..., 1]."""
    steepest: Tensor
    """No subgradient is longer; of shape [..., 1]."""


def momentum(problem: Problem, x: Tensor, eta: Tensor, n_steps: int, alpha: float = ALPHA) -> Tensor:
    """The iterates of C.2 and C.3, of shape [n_steps + 1, ..., d]; with ``alpha = 0`` gradient descent."""
    iterates, velocity = [x], torch.zeros_like(x)
    for _ in range(n_steps):
        velocity = alpha * velocity + problem.gradient(iterates[-1])
        iterates.append(iterates[-1] - eta * velocity)
    return torch.stack(iterates)


def momentum_of_equal_speed(problem: Problem, x: Tensor, eta: Tensor, n_steps: int) -> Tensor:
    """Momentum that, where the gradient is constant, ends up as fast as gradient descent."""
    return momentum(problem, x, (1 - ALPHA) * eta, n_steps)


def proximal(problem: Problem, x: Tensor, eta: Tensor, n_steps: int) -> Tensor:
    """The proximal algorithm with λ = 1/η: where the function is linear, a gradient step."""
    iterates = [x]
    for _ in range(n_steps):
        iterates.append(problem.prox(iterates[-1], 1 / eta))
    return torch.stack(iterates)


def proximal_of_equal_length(problem: Problem, x: Tensor, eta: Tensor, n_steps: int) -> Tensor:
    """The proximal algorithm of proposition C.1: each step as long as the gradient step from the same point."""
    iterates = [x]
    for _ in range(n_steps):
        length = eta * problem.gradient(iterates[-1]).norm(dim=-1, keepdim=True)
        iterates.append(prox_at_distance(problem, iterates[-1], length))
    return torch.stack(iterates)


def prox_at_distance(problem: Problem, x: Tensor, distance: Tensor) -> Tensor:
    """The proximal point at a distance of shape [..., 1], or the nearest minimiser if that is not further away.

    Between the kinks of a piecewise linear function the step is c + d/λ with c and d at a right angle, so its squared
    length is piecewise linear in 1/λ², which suits the secant method. No step is too long at the λ that it starts with.
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
    """The first step at which a value of shape [steps + 1, ...] is within a bound; one more than there are if never."""
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

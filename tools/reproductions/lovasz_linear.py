r"""Lovász hinge of a linear model of the pixels, with the proximal step instead of the gradient of the loss.

Appendix C of the Lovász-Softmax paper trains a network with the direction :math:`m - \mathrm{prox}(m)` at the loss
layer. Here it is :math:`\lambda (m - \mathrm{prox}_\lambda(m))`, so that all methods share one learning rate. This is
the gradient of the Moreau envelope of the loss: for large λ it is the gradient of the loss; a small λ smooths the kinks
and moves the minimum.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from torch import Tensor

from mmseg_nondecomp.functional import lovasz_hinge, prox_lovasz_hinge
from reproductions import spread_over_seeds
from reproductions.circles import circles, noisy
from reproductions.descent import ALPHA, steps_until

N_IMAGES, SIZE, RADII = 2, 12, (3.0, 5.0)
SIGNALS = (1.5, 1.0, 0.5, 0.0)
ETAS, N_STEPS = (0.2, 1.0), 50
CLOSE = 0.01
"""Distance from the lowest loss that counts as converged."""
TAIL = 20
"""Number of final steps over which the loss is averaged."""


class Method(NamedTuple):
    """Direction and momentum of a method."""

    lam: float | None
    """Parameter λ of the proximal direction; None for the gradient."""
    alpha: float
    """Momentum coefficient; the learning rate is η (1 - α)."""
    color: str
    style: str


METHODS = {
    'gradient descent': Method(None, 0.0, 'tab:green', '--'),
    'momentum': Method(None, ALPHA, 'tab:orange', '--'),
    'proximal, λ = 1': Method(1.0, 0.0, 'tab:blue', '-'),
    'proximal, λ = 1, momentum': Method(1.0, ALPHA, 'tab:purple', '-'),
    'proximal, λ = 0.05': Method(0.05, 0.0, 'tab:red', '-'),
}


class Data(NamedTuple):
    """Pixels of a few images."""

    features: Tensor
    """Features of shape [N, P, d], the last one constant."""
    labels: Tensor
    """Boolean labels of shape [N, P]."""


def generate(seed: int) -> Data:
    """Return circles with features of different strength; the last but one is uninformative."""
    generator = torch.Generator().manual_seed(seed)
    labels = circles(N_IMAGES, SIZE, RADII, generator)
    features = [noisy(labels, generator, signal) for signal in SIGNALS]
    return Data(torch.stack([*features, torch.ones_like(features[0])], -1).flatten(1, 2), labels.flatten(1))


def loss(weight: Tensor, data: Data) -> Tensor:
    """Return the Lovász hinge, mean over images."""
    return lovasz_hinge(data.features @ weight, data.labels.long(), per_image=True)


def gradient(weight: Tensor, data: Data) -> Tensor:
    """Return the gradient of the loss by automatic differentiation."""
    variable = weight.detach().requires_grad_()
    return torch.autograd.grad(loss(variable, data), variable)[0]


def proximal_direction(weight: Tensor, data: Data, lam: float) -> Tensor:
    """Return the direction λ (m - prox(m)) at the margins, propagated back to the weight."""
    sign = torch.where(data.labels, 1.0, -1.0)
    margins = 1 - sign * (data.features @ weight)
    proximal = torch.stack([prox_lovasz_hinge(m, label, lam) for m, label in zip(margins, data.labels, strict=True)])
    at_scores = -sign * lam * (margins - proximal)
    return torch.einsum('np,npd->d', at_scores, data.features) / len(margins)


def train(method: Method, data: Data, eta: float) -> Tensor:
    """Return the loss at each step from the weight 0."""
    weight = velocity = torch.zeros(data.features.shape[-1], dtype=torch.float64)
    losses = [loss(weight, data)]
    for _ in range(N_STEPS):
        way = gradient(weight, data) if method.lam is None else proximal_direction(weight, data, method.lam)
        velocity = method.alpha * velocity + way
        weight = weight - eta * (1 - method.alpha) * velocity
        losses.append(loss(weight, data))
    return torch.stack(losses)


def run(seeds: Sequence[int]) -> dict[float, dict[str, list[Tensor]]]:
    """Return the excess of each method over the lowest loss of any method on the same data, at each step."""
    excess: dict[float, dict[str, list[Tensor]]] = {eta: {name: [] for name in METHODS} for eta in ETAS}
    for seed in seeds:
        data = generate(seed)
        runs = {(eta, name): train(method, data, eta) for eta in ETAS for name, method in METHODS.items()}
        lowest = min(losses.min() for losses in runs.values())
        for (eta, name), losses in runs.items():
            excess[eta][name].append(losses - lowest)
    return excess


def measure(excess: dict[float, dict[str, list[Tensor]]]) -> list[dict[str, Any]]:
    """Return how fast each method approaches the lowest loss, and its final distance."""
    return [
        {
            'linear model': name,
            'η': eta,
            'seeds': len(runs),
            f'steps to within {CLOSE:g}': spread_over_seeds([float(steps_until(run, CLOSE)) for run in runs]),
            'excess at the end': spread_over_seeds([run[-TAIL:].mean().item() for run in runs]),
            'share of steps that raise the loss': spread_over_seeds(
                [(run.diff() > 1e-9).double().mean().item() for run in runs]
            ),
        }
        for eta, methods in excess.items()
        for name, runs in methods.items()
    ]


def found(rows: list[dict[str, Any]]) -> str:
    """Return the final distances of the methods from the lowest loss."""
    parts = [f'{row["linear model"]} {row["excess at the end"]["mean"]:.1g}' for row in rows if row['η'] == min(ETAS)]
    return f'A linear model ends above its lowest loss, at η = {min(ETAS):g}, by: {", ".join(parts)}.'


def draw(methods: dict[str, list[Tensor]], eta: float, axis: Axes) -> None:
    """Plot the excess loss over the steps, mean over seeds."""
    for name, runs in methods.items():
        style = METHODS[name]
        axis.plot(torch.stack(runs).mean(0), color=style.color, linestyle=style.style, label=name)
    axis.set(xlabel='step', ylabel='Lovász hinge above the lowest', yscale='log')
    axis.set_title(f'Linear model, η = {eta:g}')
    axis.legend(fontsize=8)

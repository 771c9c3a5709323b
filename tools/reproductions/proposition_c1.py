"""Proposition C.1 of the Lovász-Softmax paper on the Lovász hinge of random margins.

(i) For some λ the proximal step is as long as the gradient step, and (ii) the objective is then at most that after the
gradient step. The paper omits the f in (ii), which compares f at the two points. There is an exception to (i): no
proximal step is longer than the distance to the nearest minimiser.
"""

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes

from reproductions.descent import prox_at_distance
from reproductions.lovasz_margins import margins_problem

SIZES, N_DRAWS = (2, 10, 100), 10
ACCURACY = 1e-5
"""Accuracy guaranteed by ``prox_lovasz_hinge``."""


def compare_steps(seeds: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """Return the draws for each number of pixels."""
    draws: dict[int, list[dict[str, Any]]] = {size: [] for size in SIZES}
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for size in SIZES:
            draws[size] += [step_from_random_margins(size, generator) for _ in range(N_DRAWS)]
    return draws


def step_from_random_margins(size: int, generator: torch.Generator) -> dict[str, Any]:
    """Compare a gradient step of random length from random margins with the proximal step of that length."""
    share, way = torch.rand(2, generator=generator, dtype=torch.float64)
    foreground = torch.rand(size, generator=generator) < 0.1 + 0.8 * share
    margins = 0.5 + torch.randn(size, generator=generator, dtype=torch.float64)
    margins[0] = margins[0].abs()  # otherwise the loss may already be 0
    problem = margins_problem(foreground)
    gradient = problem.gradient(margins)
    to_minimum = margins.clamp(min=0).norm()
    length = (0.01 * 200**way * to_minimum).unsqueeze(-1)
    by_gradient = margins - length * gradient / gradient.norm()
    by_prox = prox_at_distance(problem, margins, length)
    start, after_gradient, after_prox = (problem.value(u).item() for u in (margins, by_gradient, by_prox))
    return {
        'step / way to the minimum': (length / to_minimum).item(),
        'λ exists': bool(length < to_minimum),
        'mismatch of the lengths': ((by_prox - margins).norm() / length - 1).abs().item(),
        'f before': start,
        'f after the gradient step': after_gradient,
        'f after the proximal step': after_prox,
    }


def summary(size: int, draws: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how often the claims hold, and by how much."""
    with_lambda = [one for one in draws if one['λ exists']]
    gaps = [one['f after the gradient step'] - one['f after the proximal step'] for one in with_lambda]
    ratios = torch.tensor([ratio_of_decreases(one) for one in with_lambda])
    return {
        'proposition C.1': f'{size} pixels',
        'draws': len(draws),
        'with a λ': len(with_lambda),
        'f(prox) ≤ f(gradient step)': sum(gap >= -ACCURACY for gap in gaps),
        'lower by more than 1e-5': sum(gap > ACCURACY for gap in gaps),
        'least gap': min(gaps),
        'median decrease, gradient / prox': ratios.median().item(),
        'lengths agree to': max(one['mismatch of the lengths'] for one in with_lambda),
    }


def ratio_of_decreases(one: dict[str, Any]) -> float:
    """Return the gain of the gradient step relative to that of the proximal step: at most 1, negative for a loss."""
    gained = one['f before'] - one['f after the gradient step']
    return gained / (one['f before'] - one['f after the proximal step'])


def found(rows: list[dict[str, Any]]) -> str:
    """Return how often claim (ii) holds."""
    counts = ('draws', 'with a λ', 'f(prox) ≤ f(gradient step)')
    draws, with_lambda, holds = (sum(row[count] for row in rows) for count in counts)
    return (
        f'Of {draws} steps on random margins, {with_lambda} have a λ as in proposition C.1, and in {holds} of them the '
        'proximal step is at least as low as the gradient step.'
    )


def draw(draws: dict[int, list[dict[str, Any]]], axis: Axes) -> None:
    """Plot the ratio of the decreases over the length of the step."""
    for (size, group), marker in zip(draws.items(), 'o^x', strict=True):
        lengths = [one['step / way to the minimum'] for one in group]
        axis.plot(lengths, [ratio_of_decreases(one) for one in group], marker, markersize=4, label=f'{size} pixels')
    axis.axhline(1, color='black', linewidth=1)
    axis.axvline(1, color='gray', linestyle=':', linewidth=1, label='no λ beyond')
    axis.set(xlabel='length of the step / way to the minimum', xscale='log')
    axis.set_ylabel('decrease: gradient step / proximal step')
    axis.set_title('Lovász hinge: one step of equal length')
    axis.legend(fontsize=9)

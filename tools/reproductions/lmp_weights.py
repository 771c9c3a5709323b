r"""Figures 1 and 2 of the loss max-pooling paper: optimal weights of the items.

The loss maximises over weights with :math:`\|w\|_p \le \gamma = n^{-1/q}` and
:math:`\|w\|_\infty \le \tau = \gamma m^{-1/p}`. Figure 1 shows this set for two items, figure 2 the weights of n = 100
losses for several p and m. The paper's losses are "synthetically generated and sorted". Here they are drawn from the
exponential distribution for each seed.

As m falls, τ grows. At m = 1 it equals γ and is implied by the p-norm, since no weight exceeds the norm of all. The
setting m / n = 0 is therefore the limit that is reached at m = 1, with the weights
:math:`w_i = \gamma\,(\ell_i / \|\ell\|_q)^{q-1}`.

Reference:
    S. Rota Bulò, G. Neuhold, P. Kontschieder: Loss Max-Pooling for Semantic Image Segmentation. CVPR 2017, section 2.
    https://arxiv.org/abs/1704.02966
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mmseg_nondecomp.functional import max_pooling_weights
from reproductions import Reproduction, spread_over_seeds

N = 100
NORMS, THIRD = (1, 1.2, 1.4, 1.7, 2, 3, 4, 10, math.inf), 1 / 3
P, SHARES = 1.7, (0, 0.1, 0.2, 0.4, 0.8, 1)
UNIT_NORMS = (1, 1.4, 2, 4, math.inf)
SET_P, SET_TAU = 1.4, 0.6
"""Exponent of the set for two items."""
UNIFORM = 'tab:gray'

Rows = list[dict[str, Any]]


class Setting(NamedTuple):
    """Exponent and share of the pooling."""

    p: float
    share: float
    """m / n."""

    @property
    def m(self) -> float:
        """Minimum number of items with weight."""
        return max(1, self.share * N)

    @property
    def tau(self) -> float:
        """Upper bound on the weights, by ``m``."""
        return N ** (1 / self.p - 1) * self.m ** (-1 / self.p)


LEFT, RIGHT = [Setting(p, THIRD) for p in NORMS], [Setting(P, share) for share in SHARES]


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Compute the weights in all settings for the losses of each seed."""
    drawn = [generate(seed) for seed in seeds]
    rows = [{'p': f'{s.p:g}', 'm / n': f'{s.share:.3g}', **over_seeds(s, drawn)} for s in (*LEFT, *RIGHT)]
    left, right = rows[: len(LEFT)], rows[len(LEFT) :]
    results = {'figure 1': set_of_two(), 'figure 2, left': left, 'figure 2, right': right}
    return Reproduction(results, rows, found(left, right), draw(drawn[0]))


def generate(seed: int) -> Tensor:
    """Return losses in ascending order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.empty(N, dtype=torch.float64).exponential_(generator=generator).sort().values


def weights(losses: Tensor, setting: Setting) -> Tensor:
    """Return the weights of the package."""
    return max_pooling_weights(losses, setting.p, setting.m)


def measure(losses: Tensor, setting: Setting) -> dict[str, float]:
    """Return the concentration of the weights, and the pooled loss."""
    w = weights(losses, setting)
    return {
        'items with weight': (w > 0).sum().item(),
        'items at full weight': (w > setting.tau * (1 - 1e-9)).sum().item(),
        'effective items': (w.sum().square() / w.square().sum()).item(),
        'highest weight · n': N * w.max().item(),
        'lowest weight · n': N * w.min().item(),
        'pooled loss / mean': (w @ losses / losses.mean()).item(),
    }


def over_seeds(setting: Setting, drawn: list[Tensor]) -> dict[str, dict[str, float]]:
    """Return mean and standard deviation of each."""
    measured = [measure(losses, setting) for losses in drawn]
    return {name: spread_over_seeds([float(row[name]) for row in measured]) for name in measured[0]}


def set_of_two() -> dict[str, Any]:
    """Return the set of figure 1, and the intersections of its sphere and box."""
    gamma = 2 ** (1 / SET_P - 1)
    corner = [SET_TAU, (gamma**SET_P - SET_TAU**SET_P) ** (1 / SET_P)]
    return {'p': SET_P, 'τ': SET_TAU, 'γ': gamma, 'm': (gamma / SET_TAU) ** SET_P, 'corner': corner}


def best_of_two() -> tuple[Tensor, Tensor]:
    """Return losses in directions of 1 to 89 degrees, and the optimal weights of that set for them, [89, 2]."""
    angles = torch.arange(1, 90, dtype=torch.float64).deg2rad()
    losses = torch.stack([angles.cos(), angles.sin()], 1)
    return losses, torch.stack([max_pooling_weights(row, SET_P, set_of_two()['m']) for row in losses])


def found(left: Rows, right: Rows) -> str:
    """Return the paper's statements on figure 2 in numbers."""

    def listed(rows: Rows, name: str) -> str:
        return ', '.join(f'{row[name]["mean"]:.3g}' for row in rows)

    def goes(rows: Rows) -> str:
        values = [row['effective items']['mean'] for row in rows]
        return 'always more' if values == sorted(values) else 'not always more'

    effective, pooled = 'effective items', 'pooled loss / mean'
    full = max(row['items at full weight']['mean'] for row in left[:-1])
    return (
        f'Of {N} losses with m = n / 3, the weights are those of {listed(left, effective)} equal items, (Σw)² / Σw², '
        f'at p = {", ".join(row["p"] for row in left)}: {goes(left)} as p grows. With weight there are at least '
        f'{min(row["items with weight"]["mean"] for row in left):.3g} items, with the full one at most {full:.3g} but '
        f'at p = ∞. With p = {P:g} they are {listed(right, effective)} at m / n = '
        f'{", ".join(row["m / n"] for row in right)}: {goes(right)} as m grows. The highest weight there is '
        f'{listed(right, "highest weight · n")} times 1 / n. The pooled loss is {listed(left, pooled)} times the mean '
        f'over these p, {listed(right, pooled)} times over these m.'
    )


def draw(losses: Tensor) -> Figure:
    """Plot the paper's figure 1 above, its figure 2 for some losses below."""
    figure = Figure(figsize=(13, 11), layout='constrained')
    (norms, set_), (left, right) = figure.subplots(2, 2)
    draw_norms(norms)
    draw_set(set_)
    draw_weights(left, losses, LEFT, [f'p = {s.p:g}'.replace('inf', '∞') for s in LEFT])
    left.set_title(f'Figure 2, left: m = n / 3, n = {N}')
    draw_weights(right, losses, RIGHT, [f'm = {s.share:g} n' for s in RIGHT])
    right.set_title(f'Figure 2, right: p = {P:g}, n = {N}')
    return figure


def unit_ball(p: float) -> Tensor:
    """Return points [2, K] with a p-norm of 1 in all directions."""
    angles = torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64)
    points = torch.stack([angles.cos(), angles.sin()])
    return points / torch.linalg.vector_norm(points, p, dim=0)


def draw_norms(axis: Axes) -> None:
    """Plot the unit spheres of p-norms."""
    for p, color in zip(UNIT_NORMS, colors(UNIT_NORMS), strict=True):
        axis.plot(*unit_ball(p), color=color, label=f'p = {p:g}'.replace('inf', '∞'))
    axis.set_title('Figure 1, left: weights of a p-norm of 1')
    axis.legend(loc='center')
    name_axes(axis)


def draw_set(axis: Axes) -> None:
    """Plot the allowed weights, and the optimal ones for some losses."""
    told, (losses, best) = set_of_two(), best_of_two()
    gamma, tau = told['γ'], told['τ']
    ball = gamma * unit_ball(SET_P)
    axis.fill(*ball.clamp(-tau, tau), color='tab:blue', alpha=0.2, label='W')
    axis.plot(*ball, color='tab:blue', linewidth=1, label=f'‖w‖ = γ = {gamma:.2f} (p = {SET_P:g})')
    box = tau * unit_ball(math.inf)
    axis.plot(*box, color='tab:orange', linewidth=1, label=f'largest |w| = τ = {tau:g} (m = {told["m"]:.2f})')
    axis.plot(*best.T, color='tab:red', linewidth=3, label='w* of losses above 0')
    for degrees in (15, 45, 65):
        (x, y), (u, v) = best[degrees - 1].tolist(), losses[degrees - 1].tolist()
        axis.plot(x, y, 'o', color='tab:red')
        axis.annotate('', (x + 0.3 * u, y + 0.3 * v), (x, y), arrowprops=dict(arrowstyle='->'))
        axis.plot([x - 0.3 * v, x + 0.3 * v], [y + 0.3 * u, y - 0.3 * u], color='black', linewidth=0.7, linestyle=':')
        axis.text(x + 0.32 * u, y + 0.32 * v, 'ℓ', ha='center', va='center')
    axis.plot(0.5, 0.5, 's', color=UNIFORM, markersize=5, zorder=3, label='w = 1 / n, and w* of equal losses')
    axis.set_title('Figure 1, right: the set W for two items')
    axis.set(xlim=(-1, 1), ylim=(-1, 1))
    axis.legend(loc='center', fontsize=9)
    name_axes(axis)


def draw_weights(axis: Axes, losses: Tensor, settings: list[Setting], labels: list[str]) -> None:
    """Plot weights over the sorted items, with their losses."""
    items = torch.arange(1, N + 1)
    for setting, label, color in zip(settings, labels, colors(settings), strict=True):
        axis.plot(items, N * weights(losses, setting), color=color, label=label)
    axis.set(xlabel='item, by its loss', ylabel='w* · n', xlim=(1, N), ylim=(0, None))
    axis.grid(alpha=0.3)
    beside = axis.twinx()
    beside.fill_between(items, losses, color='black', alpha=0.08, linewidth=0)
    beside.set(ylabel='loss (gray area)', ylim=(0, None))
    axis.legend(loc='upper left')


def name_axes(axis: Axes) -> None:
    """Label the axes of a plane of weights."""
    axis.set(xlabel='weight of the first item', ylabel='weight of the second', aspect='equal')
    axis.axhline(0, color='black', linewidth=0.5)
    axis.axvline(0, color='black', linewidth=0.5)


def colors(values: Sequence[Any]) -> list[tuple[float, ...]]:
    """Return colors from dark to bright."""
    return [colormaps['viridis'](i / len(values)) for i in range(len(values))]

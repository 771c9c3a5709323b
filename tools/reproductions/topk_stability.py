r"""Table 5 of the smooth top-k paper, extended by the accuracy of the gradients at small temperatures.

The paper calls an algorithm stable if its forward pass does not overflow for the scores of a ResNet-18. Here the
backward pass is tested as well, and the error of the marginals :math:`\partial \log \sigma_k / \partial x_i`,
:math:`x = s / k \tau`, is measured against 60-digit values for the same numbers ``x``. The gradient of the whole loss
is tested in the same way for the scores; its limit must be the gradient of the hard loss.

The scores are generated: N(0, 2²) for 1000 labels, with 10 of them raised by up to 12, like those of a network that
considers a few labels possible. The label to learn is one of the 10 highest.

Algorithm 2 is measured alone and with the approximation of order p = 0.2 k = 1. The paper does not state the relative
difference t of the subtracted terms below which the approximation is used. 1e-5 is the rounding that it assumes for
single precision. The cube root of the rounding unit ε is optimal, since the recursion has an error of about ε / t and
the approximation one of t^(p + 1).

The authors' package does not rely on its algorithms alone: at a small temperature, if the k-th score is far from the
next, it uses the hard loss. This is not included here.

Reference:
    L. Berrada, A. Zisserman, M. P. Kumar: Smooth loss functions for deep top-k classification. ICLR 2018, appendix B.
    https://arxiv.org/abs/1802.07595
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import mpmath  # required by SymPy, which PyTorch requires
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mmseg_nondecomp.functional import hard_topk_loss, log_elementary_symmetric, smooth_topk_loss, topk_marginals
from reproductions import Reproduction
from reproductions.topk_algorithms import UNSTABLE, divide_and_conquer, log_summation, marginals, summation

K, N_LABELS = 5, 1000
ROWS, EXACT_ROWS = 12, 1
"""Items per seed (ten seeds have about as many as the paper), and how many of them are computed with many digits."""
TAUS = (10, 1, 0.1, 0.01, 1e-3, 1e-4, 1e-6, 1e-12, 1e-24, 1e-36)
PRECISIONS = {'float32': torch.float32, 'float64': torch.float64}
DIGITS = 60
SPREAD, N_RAISED, RAISED = 2, 10, 12
WRONG = 0.1
"""Error of a probability above which a gradient counts as wrong."""

LOWEST, HIGHEST, NOT_FINITE = 1e-20, 1e2, 1e5
"""Positions in the figure of vanishing errors, errors above 1, and non-finite gradients."""

Rows = list[dict[str, Any]]


class Batch(NamedTuple):
    """Batch of scores and labels."""

    scores: Tensor
    """Scores [N, n], float32."""
    target: Tensor
    """Labels [N]."""


class Exact(NamedTuple):
    """High-precision values for a set of numbers."""

    sigma: list[mpmath.mpf]
    """Polynomials of degree 0 to k."""
    below: list[mpmath.mpf]
    """Marginals of degree k - 1."""
    marginals: list[mpmath.mpf]
    """Marginals of degree k."""


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Measure everything at each temperature and precision."""
    batches = [generate(seed) for seed in seeds]
    batch = Batch(*(torch.cat(part) for part in zip(*batches, strict=True)))
    # the first rows of each seed
    chosen = torch.arange(len(batch.scores)).view(len(batches), -1)[:, :EXACT_ROWS].flatten()
    forward = [
        {'forward pass': name, 'precision': precision, 'τ': tau, 'finite': is_finite(f, batch, tau, dtype)}
        for name, f in FORWARD.items()
        for precision, dtype in PRECISIONS.items()
        for tau in TAUS
    ]
    gradients = [row for tau in TAUS for row in measure(batch, chosen, tau)]
    rows = [
        *by_temperature(forward, 'forward pass', 'no overflow', lambda row: '✓' if row['finite'] else '✗'),
        *by_temperature(gradients, 'gradient', 'largest error (share that is not finite)', error_cell),
        *by_temperature(gradients, 'gradient', 'sum against what it has to be', sum_cell),
    ]
    results = {'forward pass': forward, 'gradients': gradients}
    return Reproduction(results, rows, found(results), draw(gradients))


def generate(seed: int) -> Batch:
    """Return scores with outliers, and labels."""
    generator = torch.Generator().manual_seed(seed)
    scores = SPREAD * torch.randn(ROWS, N_LABELS, generator=generator)
    raised = torch.rand(ROWS, N_LABELS, generator=generator).topk(N_RAISED).indices
    scores.scatter_add_(1, raised, RAISED * torch.rand(ROWS, N_RAISED, generator=generator))
    rank = torch.randint(10, (ROWS, 1), generator=generator)
    return Batch(scores, scores.topk(10).indices.gather(1, rank).squeeze(1))


def is_finite(log_sigma: Callable[[Tensor, int], Tensor], batch: Batch, tau: float, dtype: torch.dtype) -> bool:
    """Return the results for Table 5."""
    return log_sigma(batch.scores.to(dtype) / (K * tau), K).isfinite().all().item()


def differentiated(log_sigma: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor, int], Tensor]:
    """Return the marginals by automatic differentiation."""

    def gradient(x: Tensor, k: int) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(log_sigma(x, k)[..., k].sum(), x)[0]

    return gradient


def by_algorithm_2(x: Tensor, k: int, order: int | None = None, **options: float) -> Tensor:
    """Return the marginals from the results of Algorithm 1."""
    return marginals(x, divide_and_conquer(x, k + (order or 0)), k, order, **options)[k]


def by_best_threshold(x: Tensor, k: int) -> Tensor:
    """Return the same with p = 1 below the threshold at which recursion and approximation have equal errors."""
    return by_algorithm_2(x, k, 1, unstable=torch.finfo(x.dtype).eps ** (1 / 3))


def exact(x: Sequence[mpmath.mpf], k: int) -> Exact:
    """Return polynomials and marginals by sums of positive terms, which keep all digits."""
    # Numbers this far below the k-th highest do not change the results.
    limit = sorted(x)[-k] - DIGITS * math.log(10)
    near = [i for i, value in enumerate(x) if value > limit]
    numbers = [mpmath.exp(x[i]) for i in near]
    before, sigma = polynomials(numbers, k)
    behind = polynomials(numbers[::-1], k)[0][::-1]
    of_degree = {k - 1: [mpmath.mpf(0)] * len(x), k: [mpmath.mpf(0)] * len(x)}
    for i, number, first, second in zip(near, numbers, before, behind, strict=True):
        for degree, values in of_degree.items():
            others = sum(first[j] * second[degree - 1 - j] for j in range(degree))
            values[i] = number * others / sigma[degree]
    return Exact(sigma, *of_degree.values())


def polynomials(numbers: list[mpmath.mpf], k: int) -> tuple[list[list[mpmath.mpf]], list[mpmath.mpf]]:
    """Return σ_0 to σ_k of the numbers before each, and of all."""
    sigma = [mpmath.mpf(1)] + [mpmath.mpf(0)] * k
    before = []
    for number in numbers:
        before.append(sigma)
        sigma = [sigma[0], *(sigma[j] + number * sigma[j - 1] for j in range(1, k + 1))]
    return before, sigma


def exact_gradient(scores: Sequence[float], label: int, k: int, tau: float, margin: float = 1) -> list[mpmath.mpf]:
    """Return the gradient of the loss, times k.

    With the margin, w is the probability that the label y is not in the set. The gradient of another label is w times
    the difference of its marginals of degree k and k - 1 among the others, and that of y is -w.
    """
    tau = mpmath.mpf(tau)
    x = [mpmath.mpf(score) / (k * tau) for score in scores]
    others = exact(x[:label] + x[label + 1 :], k)
    odds = mpmath.exp(margin / tau - x[label]) * others.sigma[k] / others.sigma[k - 1]
    missed = odds / (1 + odds)
    gradient = [missed * (p - q) for p, q in zip(others.marginals, others.below, strict=True)]
    return [*gradient[:label], -missed, *gradient[label:]]


def measure(batch: Batch, chosen: Tensor, tau: float) -> list[dict[str, Any]]:
    """Return the gradients at one temperature by each algorithm and precision, with their errors in the chosen rows."""
    with mpmath.workdps(DIGITS):
        of_loss = as_tensor(
            exact_gradient(batch.scores[i].tolist(), batch.target[i].item(), K, tau) for i in chosen.tolist()
        )
    rows = []
    for precision, dtype in PRECISIONS.items():
        scores = batch.scores.to(dtype)
        x = scores / (K * tau)
        with mpmath.workdps(DIGITS):
            truth = as_tensor(exact([mpmath.mpf(value) for value in row], K).marginals for row in x[chosen].tolist())
        for name, algorithm in MARGINALS.items():
            quality = judge(algorithm(x, K), truth, chosen, K)
            rows.append({'gradient': name, 'precision': precision, 'τ': tau, **quality})
        gradient = K * gradient_of(smooth_topk_loss, scores, batch.target, tau=tau)
        hard = K * gradient_of(hard_topk_loss, scores, batch.target)
        quality = judge(gradient, of_loss, chosen, 0)
        from_hard = (gradient - hard).abs().max().item()
        rows.append(
            {'gradient': LOSS, 'precision': precision, 'τ': tau, **quality, 'from that of the hard loss': from_hard}
        )
    return rows


def as_tensor(rows: Iterable[list[mpmath.mpf]]) -> Tensor:
    """Return the high-precision values, rounded once."""
    return torch.tensor([[float(value) for value in row] for row in rows], dtype=torch.float64)


def gradient_of(loss: Callable[..., Tensor], scores: Tensor, target: Tensor, **options: float) -> Tensor:
    """Return the gradient of the sum of the losses."""
    scores = scores.detach().requires_grad_()
    loss(scores, target, K, reduction='sum', **options).backward()
    return scores.grad


def judge(gradient: Tensor, truth: Tensor, chosen: Tensor, total: float) -> dict[str, float | None]:
    """Return the error of a gradient in the chosen rows, and the error of its sums in all rows."""
    gradient = gradient.double()
    finite = gradient.isfinite()
    errors = (gradient[chosen] - truth)[finite[chosen]].abs()
    deviations = (gradient[finite.all(1)].sum(1) - total).abs()
    return {
        'largest error': errors.max().item() if len(errors) else None,
        'share that is not finite': 1 - finite.double().mean().item(),
        'largest deviation of a sum': deviations.max().item() if len(deviations) else None,
    }


def by_temperature(rows: Rows, kind: str, title: str, cell: Callable[[dict[str, Any]], str]) -> Rows:
    """Return one row for each algorithm and precision, one column for each temperature."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        line = lines.setdefault((row[kind], row['precision']), {title: row[kind], 'precision': row['precision']})
        line[f'τ = {row["τ"]:g}'] = cell(row)
    return list(lines.values())


def error_cell(row: dict[str, Any]) -> str:
    """Return the largest error, and the share that is not finite."""
    error = '' if row['largest error'] is None else f'{row["largest error"]:.1e}'
    share = row['share that is not finite']
    return f'{error} ({100 * share:.3g} %)'.strip() if share else error


def sum_cell(row: dict[str, Any]) -> str:
    """Return the largest deviation of a sum, if there is one."""
    deviation = row['largest deviation of a sum']
    return '' if deviation is None else f'{deviation:.1e}'


def found(results: dict[str, Rows]) -> str:
    """Return the temperatures down to which each algorithm works."""
    overflows = {
        name: [row for row in results['forward pass'] if row['forward pass'] == name and not row['finite']]
        for name in FORWARD
    }
    gradients = {name: [row for row in results['gradients'] if row['gradient'] == name] for name in (*MARGINALS, LOSS)}
    wrong = {name: [row for row in rows if is_wrong(row)] for name, rows in gradients.items()}
    right = [f'{name} (at most {largest_errors(rows)})' for name, rows in gradients.items() if not wrong[name]]
    from_hard = max(row['from that of the hard loss'] for row in gradients[LOSS] if row['τ'] == min(TAUS))
    return (
        f'In {" | ".join(PRECISIONS)} the forward pass overflows with {highest_temperatures(overflows)} '
        '(Table 5: with SA from τ = 0.1 | 0.01). '
        f'Gradients are off by more than {WRONG:g} or not finite with {highest_temperatures(wrong)}; '
        f'never with {", ".join(right)}. At τ = {min(TAUS):g} that of the loss is the gradient of the hard loss to '
        f'{from_hard:.1g}.'
    )


def is_wrong(row: dict[str, Any]) -> bool:
    """Return whether a gradient is useless."""
    return row['share that is not finite'] > 0 or row['largest error'] > WRONG


def highest_temperatures(failures: dict[str, Rows]) -> str:
    """Return the names of failing algorithms, and the highest temperature at which they fail in each precision."""
    told = []
    for name, rows in failures.items():
        taus = [max((row['τ'] for row in rows if row['precision'] == precision), default=0) for precision in PRECISIONS]
        if rows:
            told.append(f'{name} from τ = {" | ".join(f"{tau:g}" if tau else "(never)" for tau in taus)}')
    return ', '.join(told) or 'none'


def largest_errors(rows: Rows) -> str:
    """Return the largest error of all temperatures, in each precision."""
    errors = [max(row['largest error'] for row in rows if row['precision'] == precision) for precision in PRECISIONS]
    return ' | '.join(f'{error:.0e}' for error in errors)


def draw(rows: Rows) -> Figure:
    """Plot the largest error over the temperature, with separate bands for wrong and for non-finite gradients."""
    figure = Figure(figsize=(13, 5), layout='constrained')
    axes = figure.subplots(1, len(PRECISIONS), sharey=True)
    for axis, precision in zip(axes, PRECISIONS, strict=True):
        for name in (*MARGINALS, LOSS):
            draw_line(axis, name, [row for row in rows if (row['gradient'], row['precision']) == (name, precision)])
        top = NOT_FINITE * 3 ** len(STYLES)
        axis.axhspan(2, top, color='tab:red', alpha=0.08, linewidth=0)
        axis.set_yscale('log')
        powers = range(-17, 1, 3)
        axis.set_yticks(
            [LOWEST, *(10.0**i for i in powers), HIGHEST, 9 * NOT_FINITE],
            ['≈ 0', *(f'$10^{{{i}}}$' for i in powers), '> 1', 'not finite'],
        )
        axis.minorticks_off()
        axis.set_ylim(LOWEST / 10, top)
        axis.set_xticks(range(len(TAUS)), [f'$10^{{{round(math.log10(tau))}}}$' for tau in TAUS])
        axis.set_xlabel('τ (not to scale below $10^{-4}$)')
        axis.set_title(precision)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel('largest error of the gradient')
    figure.legend(*axes[0].get_legend_handles_labels(), loc='outside right center', frameon=False)
    return figure


def draw_line(axis: Axes, name: str, rows: Rows) -> None:
    """Plot the errors of an algorithm."""

    def height(row: dict[str, Any]) -> float:
        if row['share that is not finite']:
            # side by side instead of overlapping
            return NOT_FINITE * 3 ** list(STYLES).index(name)
        return HIGHEST if row['largest error'] > 1 else max(row['largest error'], LOWEST)

    axis.plot(range(len(rows)), [height(row) for row in rows], label=name, **STYLES[name])


OWN, LOSS = 'topk_marginals', 'gradient · k of smooth_topk_loss'
FORWARD: dict[str, Callable[[Tensor, int], Tensor]] = {
    'SA (Algorithm 3)': lambda x, k: summation(x.exp(), k),
    'DC log (Algorithm 1)': divide_and_conquer,
    'log_elementary_symmetric': log_elementary_symmetric,
}
MARGINALS: dict[str, Callable[[Tensor, int], Tensor]] = {
    'Algorithm 3, differentiated': differentiated(lambda x, k: summation(x.exp(), k).log()),
    'Algorithm 3 of logarithms, differentiated': differentiated(log_summation),
    'Algorithm 1, differentiated': differentiated(divide_and_conquer),
    'Algorithm 2': by_algorithm_2,
    f'Algorithm 2, p = 1 below {UNSTABLE:g}': lambda x, k: by_algorithm_2(x, k, 1),
    'Algorithm 2, p = 1 below ε^(1/3)': by_best_threshold,
    OWN: lambda x, k: topk_marginals(x, k, normalize=False),
}
STYLES: dict[str, dict[str, Any]] = {
    name: dict(color=color, linestyle=line, marker=marker, markersize=size, linewidth=1.3)
    for name, (color, line, marker, size) in zip(
        (*MARGINALS, LOSS),
        (
            ('tab:gray', '-', 'x', 7),
            ('tab:cyan', '-', 's', 8),
            ('tab:green', '-', 'D', 5.5),
            ('tab:orange', '-', 'v', 8),
            ('tab:purple', '-', '^', 7),
            ('tab:brown', '-', '<', 6),
            ('tab:red', '-', 'o', 5),
            ('black', '--', '.', 6),
        ),
        strict=True,
    )
}

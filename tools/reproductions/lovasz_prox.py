"""Appendix C of the Lovász-Softmax paper: proximal steps of the Lovász hinge compared with gradient steps.

Three experiments: the paper's problem C.4 in the plane (``two_pieces``), the steps compared by proposition C.1
(``proposition_c1``), and whole descents on the Lovász hinge of free margins (``lovasz_margins``) and of a linear model
(``lovasz_linear``).

Reference:
    M. Berman, A. Rannen Triki, M. B. Blaschko: The Lovász-Softmax loss. CVPR 2018, appendix C.
    https://arxiv.org/abs/1705.08790
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from reproductions import Reproduction, lovasz_linear, lovasz_margins, proposition_c1, two_pieces

Rows = list[dict[str, Any]]


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Run all experiments."""
    paths = {nu: two_pieces.trajectories(nu) for nu in two_pieces.NUS}
    draws = proposition_c1.compare_steps(seeds)
    margins = lovasz_margins.run(seeds)
    linear = lovasz_linear.run(seeds[:5])  # The slowest part.
    results = {
        'problem C.4': [two_pieces.measure(path, nu, name) for nu in paths for name, path in paths[nu].items()],
        'problem C.4 from random starts': two_pieces.against_gradient_descent(seeds),
        'proposition C.1': [proposition_c1.summary(size, group) for size, group in draws.items()],
        'free margins': [row for pace, runs in margins.items() for row in lovasz_margins.measure(runs, pace)],
        'linear model': lovasz_linear.measure(linear),
    }
    rows = [row for group in results.values() for row in group]
    return Reproduction(results, rows, found(results), draw(paths, draws, margins, linear))


def found(results: dict[str, Rows]) -> str:
    """Return the findings on the claims."""
    return ' '.join(
        [
            two_pieces.found(results['problem C.4 from random starts']),
            proposition_c1.found(results['proposition C.1']),
            lovasz_margins.found(results['free margins']),
            lovasz_linear.found(results['linear model']),
        ]
    )


def draw(paths: dict, draws: dict, margins: dict, linear: dict) -> Figure:
    """Plot the paper's figure C.1 above, the Lovász hinge below."""
    figure = Figure(figsize=(16, 9), layout='constrained')
    above, below = figure.subfigures(2, 1)
    axes = above.subplots(1, len(paths), sharey=True)
    for axis, (nu, methods) in zip(axes, paths.items(), strict=True):
        two_pieces.draw(nu, methods, axis)
    above.legend(*axes[0].get_legend_handles_labels(), loc='outside lower center', ncols=len(methods))
    steps, free, model = below.subplots(1, 3)
    proposition_c1.draw(draws, steps)
    pace = max(margins)
    lovasz_margins.draw(margins[pace][0], pace, free)
    eta = min(linear)
    lovasz_linear.draw(linear[eta], eta, model)
    return figure

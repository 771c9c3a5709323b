r"""Section 4.1 of the Lovász-Softmax paper: minima of surrogates compared with the minimum of the Jaccard loss.

Pixels have one feature :math:`f \sim N(\pm 1/2, 1)`, and a model with one parameter, the bias :math:`b`, predicts
foreground where :math:`f > -b`. Each loss is computed at each bias of a grid.

The paper does not state the scale of the score :math:`s (f + b)` of the surrogates. Here :math:`s = 1`: the feature is
then the log-likelihood ratio of the two classes, and :math:`f + b` is a logit that cross-entropy can fit exactly. Other
scales and circles of a single radius are also tested. For the latter, two minima are known in the limit of many pixels.
With a share :math:`\rho` of foreground, that of cross-entropy is at the log-odds :math:`\log\frac{\rho}{1-\rho}`, and
that of the Jaccard loss, for the best index :math:`J^*`, at :math:`\log\frac{\rho}{1-\rho} - \log J^*`. The worse the
best segmentation is, the larger is the distance.

Reference:
    M. Berman, A. Rannen Triki, M. B. Blaschko: The Lovász-Softmax loss. CVPR 2018, section 4.1 and figure 3.
    https://arxiv.org/abs/1705.08790
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mmseg_nondecomp.functional import lovasz_hinge
from reproductions import Reproduction, spread_over_seeds
from reproductions.circles import circles, noisy

N_IMAGES, SIZE, RADII = 10, 50, (5.0, 22.0)
BIASES = torch.linspace(-4, 4, 161)
COARSE_BIASES = BIASES[::2]
SCALES = (0.5, 1.0, 2.0, 4.0, 8.0)
SINGLE_RADII = (6.0, 10.0, 14.0, 18.0, 22.0, 24.5)


def jaccard_loss(score: Tensor, label: Tensor) -> Tensor:
    """Return 1 - IoU of the pixels with a positive score, mean over images."""
    predicted = score > 0
    intersection, union = predicted & label, predicted | label
    return (1 - intersection.flatten(1).sum(1) / union.flatten(1).sum(1)).mean()


def cross_entropy(score: Tensor, label: Tensor) -> Tensor:
    """Return the cross-entropy, mean over pixels."""
    return F.binary_cross_entropy_with_logits(score, label.to(score.dtype))


def hinge(score: Tensor, label: Tensor) -> Tensor:
    """Return max(1 - y·score, 0), mean over pixels."""
    return torch.where(label, 1 - score, 1 + score).clamp(min=0).mean()


def image_lovasz_hinge(score: Tensor, label: Tensor) -> Tensor:
    """Return the loss of the package, mean over images."""
    return lovasz_hinge(score, label.long(), per_image=True)


JACCARD, LOVASZ = 'Jaccard loss', 'Lovász hinge'
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    JACCARD: jaccard_loss,
    'cross-entropy': cross_entropy,
    'hinge': hinge,
    LOVASZ: image_lovasz_hinge,
}
COLORS = {JACCARD: 'black', 'cross-entropy': 'tab:blue', 'hinge': 'tab:green', LOVASZ: 'tab:red'}
MARKERS = {JACCARD: 'o', 'cross-entropy': 's', 'hinge': '^', LOVASZ: 'D'}


class Images(NamedTuple):
    """Data set."""

    labels: Tensor
    """Boolean labels of shape [N, size, size]."""
    features: Tensor
    """Feature of the same shape."""


class Minima(NamedTuple):
    """Minima of the losses on one data set."""

    bias: dict[str, float]
    """Index on the grid of the minimum of each loss."""
    reached: dict[str, float]
    """Jaccard loss at these minima."""
    share: float
    """Share of foreground pixels."""

    def distance(self, name: str) -> float:
        """Return the distance of the minimum of a loss from that of the Jaccard loss."""
        return abs(self.bias[name] - self.bias[JACCARD])

    def nearest(self) -> str:
        """Return the surrogate with the smallest distance; ties are decided against the Lovász hinge."""
        return min((name for name in LOSSES if name != JACCARD), key=self.distance)


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Run the paper's experiment for each seed, then over the scales of the score and the radii of the circles."""
    sets = [generate(seed, RADII) for seed in seeds]
    curves = [scan(images, BIASES) for images in sets]
    runs = [minima(images, curve, BIASES) for images, curve in zip(sets, curves, strict=True)]
    by_scale = {scale: [coarse_minima(images, scale) for images in sets] for scale in SCALES}
    by_radius = {radius: [coarse_minima(generate(seed, (radius, radius))) for seed in seeds] for radius in SINGLE_RADII}
    results = {
        'setting': {'images': N_IMAGES, 'size': SIZE, 'radii': RADII, 'biases': [BIASES[0].item(), BIASES[-1].item()]},
        'summary': summary(runs),
        'seeds': [run._asdict() for run in runs],
        'by scale of the score': {f'{scale:g}': summary(group) for scale, group in by_scale.items()},
        'by radius': {f'{radius:g}': summary(group) for radius, group in by_radius.items()},
    }
    figure = draw(sets[0], curves[0], by_scale, by_radius)
    return Reproduction(results, table_rows(runs), found(runs, by_scale, by_radius), figure)


def generate(seed: int, radii: tuple[float, float]) -> Images:
    """Return the data of a seed."""
    generator = torch.Generator().manual_seed(seed)
    labels = circles(N_IMAGES, SIZE, radii, generator)
    return Images(labels, noisy(labels, generator))


def scan(images: Images, biases: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
    """Return each loss at each bias."""
    return {
        name: torch.stack([loss(scale * (images.features + bias), images.labels) for bias in biases])
        for name, loss in LOSSES.items()
    }


def minima(images: Images, curves: dict[str, Tensor], biases: Tensor) -> Minima:
    """Return the minimum of each curve, and the Jaccard loss there."""
    lowest = {name: int(curve.argmin()) for name, curve in curves.items()}
    return Minima(
        {name: round(biases[i].item(), 6) for name, i in lowest.items()},
        {name: curves[JACCARD][i].item() for name, i in lowest.items()},
        images.labels.double().mean().item(),
    )


def coarse_minima(images: Images, scale: float = 1.0) -> Minima:
    """Return the minima on the coarser grid."""
    return minima(images, scan(images, COARSE_BIASES, scale), COARSE_BIASES)


def summary(runs: list[Minima]) -> dict[str, Any]:
    """Return the row of each loss over seeds."""
    return {
        name: {
            'argmin b': spread_over_seeds([run.bias[name] for run in runs]),
            'distance to the Jaccard argmin': spread_over_seeds([run.distance(name) for run in runs]),
            'Jaccard loss there': spread_over_seeds([run.reached[name] for run in runs]),
            'nearest surrogate in': '' if name == JACCARD else n_nearest(runs, name),
        }
        for name in LOSSES
    } | {'share of foreground': spread_over_seeds([run.share for run in runs])}


def n_nearest(runs: list[Minima], name: str) -> str:
    """Return the number of seeds in which a surrogate is nearest."""
    return f'{sum(run.nearest() == name for run in runs)} of {len(runs)}'


def table_rows(runs: list[Minima]) -> list[dict[str, Any]]:
    """Return the summary of the paper's experiment."""
    return [{'loss': name, **columns} for name, columns in summary(runs).items() if name in LOSSES]


def found(runs: list[Minima], by_scale: dict[float, list[Minima]], by_radius: dict[float, list[Minima]]) -> str:
    """Return whether the paper's claim holds, and the exceptions."""
    distances = ', '.join(
        f'{statistics.fmean(run.distance(name) for run in runs):.2f} ({name})' for name in surrogates()
    )
    costs = ', '.join(f'{statistics.fmean(cost(run, name) for run in runs):.3f}' for name in surrogates())
    exceptions = [
        f'{kind} {value:g} ({n_nearest(group, LOVASZ)} seeds)'
        for kind, groups in (('scale', by_scale), ('radius', by_radius))
        for value, group in groups.items()
        if any(run.nearest() != LOVASZ for run in group)
    ]
    return (
        'The minimum of the Lovász hinge is the nearest to that of the Jaccard loss in '
        f'{n_nearest(runs, LOVASZ)} seeds; mean distances {distances}; the Jaccard loss at these minima is above its '
        f'least by {costs}. Not always the nearest, or no nearer than another, at: '
        f'{", ".join(exceptions) or "none of the scales and radii tried"}.'
    )


def surrogates() -> list[str]:
    """Return all losses but the Jaccard loss itself."""
    return [name for name in LOSSES if name != JACCARD]


def cost(run: Minima, name: str) -> float:
    """Return the excess of the Jaccard loss at the minimum of a surrogate over its own minimum."""
    return run.reached[name] - run.reached[JACCARD]


def draw(
    images: Images,
    curves: dict[str, Tensor],
    by_scale: dict[float, list[Minima]],
    by_radius: dict[float, list[Minima]],
) -> Figure:
    """Plot the paper's figure 3 for one data set above, the minima of all data sets below."""
    figure = Figure(figsize=(13, 9), layout='constrained')
    above, below = figure.subfigures(2, 1)
    label, feature, relative = above.subplots(1, 3, width_ratios=[1, 1, 2])
    draw_sample(images, label, feature)
    draw_curves(curves, relative)
    radius, scale = below.subplots(1, 2, sharey=True)
    draw_minima(by_radius, radius)
    draw_known_minima(by_radius, radius)
    radius.set(xlabel='radius of all circles (score as is)', ylabel='bias b at the minimum')
    radius.set_title('Circles of one radius')
    draw_minima(by_scale, scale)
    scale.set(xlabel='scale s of the score s·(f + b)', xscale='log', xticks=SCALES)
    scale.set_xticks(SCALES, [f'{s:g}' for s in SCALES])
    scale.minorticks_off()
    scale.set_title('Circles of various radii, other scales of the score')
    scale.legend(loc='lower right', fontsize=9)
    radius.legend(loc='upper left', fontsize=9)
    return figure


def draw_sample(images: Images, label: Axes, feature: Axes) -> None:
    """Plot one label and its features."""
    label.imshow(images.labels[0], cmap='gray', interpolation='nearest')
    label.set_title('Label')
    shown = feature.imshow(images.features[0], cmap='gray', interpolation='nearest')
    feature.set_title('Feature f')
    feature.figure.colorbar(shown, ax=feature, shrink=0.6)
    for axis in (label, feature):
        axis.set(xticks=[], yticks=[])


def draw_curves(curves: dict[str, Tensor], axis: Axes) -> None:
    """Plot the losses, each scaled to its range, with their minima."""
    for name, curve in curves.items():
        relative = (curve - curve.min()) / (curve.max() - curve.min())
        lowest = int(curve.argmin())
        axis.plot(BIASES, relative, color=COLORS[name], label=f'{name}: b = {BIASES[lowest]:.2f}')
        axis.axvline(BIASES[lowest].item(), color=COLORS[name], linestyle=':', linewidth=1)
        axis.plot(BIASES[lowest], 0, color=COLORS[name], marker=MARKERS[name], clip_on=False, zorder=3)
    axis.set(xlabel='bias b', ylabel='relative loss', xlim=(BIASES[0].item(), BIASES[-1].item()), ylim=(0, 1))
    axis.set_title('Losses and their minima')
    axis.legend(loc='upper center', fontsize=9)


def draw_minima(groups: dict[float, list[Minima]], axis: Axes) -> None:
    """Plot mean and standard deviation over seeds."""
    for name in LOSSES:
        over_seeds = [spread_over_seeds([run.bias[name] for run in group]) for group in groups.values()]
        means, stds = [over['mean'] for over in over_seeds], [over['std'] for over in over_seeds]
        line = axis.errorbar(
            list(groups), means, stds, color=COLORS[name], marker=MARKERS[name], linewidth=1, capsize=3
        )
        line.set_label(name)
    axis.grid(alpha=0.3)


def draw_known_minima(groups: dict[float, list[Minima]], axis: Axes) -> None:
    """Plot the limits of the minima, computed from the share of foreground and the best Jaccard index."""
    shares = [statistics.fmean(run.share for run in group) for group in groups.values()]
    best = [1 - statistics.fmean(run.reached[JACCARD] for run in group) for group in groups.values()]
    odds = [math.log(share / (1 - share)) for share in shares]
    raised = [o - math.log(j) for o, j in zip(odds, best, strict=True)]
    for values, name, label in (
        (raised, JACCARD, 'log-odds of foreground − log J*'),
        (odds, 'cross-entropy', 'log-odds of foreground'),
    ):
        axis.plot(list(groups), values, color=COLORS[name], linewidth=7, alpha=0.2, label=label)

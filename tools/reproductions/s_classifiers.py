r"""S-measure losses as classifiers, compared with cross-entropy and a threshold tuned for the constraint.

The S-measures paper trains with F_1 alone and never shows a constraint. Here the losses of all its measures are trained
without a decomposable loss on an imbalanced set: points of a normal distribution in ten dimensions, of which one in 20
is a positive near one of three centers. A linear score, which cannot separate them, and a small network are trained
with Adam on batches of 256. All losses use the same batches and initialisation.

For precision at recall 0.9, recall at precision 0.6 and F_β the baseline is cross-entropy with the best threshold for
the measure on the training set, the usual alternative to such a loss. S-measure losses decide at 0. Since a slightly
violated constraint improves the objective, their scores are also evaluated with a threshold tuned like that of
cross-entropy. Since a constraint that holds on the training set may not hold on the test set, scores are also compared
at the threshold that has the target rate there. Areas under curves need no threshold; there the pairwise logistic loss,
over all pairs of a positive and a negative of a batch, is a second baseline.

The second part of the experiment varies one setting at a time: the rates that the multipliers use (true rates or their
bounds), the bound itself (logistic or hinge), the paper's step size of :math:`\mu`, and one variable τ per example.

All seeds are trained at once: each is a query of one loss, with its own data, network and multipliers.

Reference:
    S. N. Ravi, A. Venkatesh, G. M. Fung, V. Singh: Optimizing nondecomposable data dependent regularizers via
    Lagrangian reparameterization offers significant performance and efficiency gains. AAAI 2020, section 6.
    https://arxiv.org/abs/1909.12398
"""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from torchmetrics.functional.classification import binary_auroc, binary_average_precision

from mmseg_nondecomp import SMeasureLoss
from reproductions import Reproduction, spread_over_seeds
from reproductions.stacked_linear import StackedLinear, sum_over_networks

N_ITEMS, N_FEATURES, SHARE_OF_POSITIVES = 20_000, 10, 0.05
N_CENTERS, DISTANCE = 3, 2.4
BATCH, N_STEPS, LEARNING_RATE, HIDDEN = 256, 3000, 1e-2, 32
START = 1000
"""Offset added to the seed for the initialisation, so that its random numbers differ from those of the data."""
WITHIN = 0.01
"""Tolerance of a rate below its target for the constraint to hold."""


class Measure(NamedTuple):
    """Objective and constraint of a measure."""

    settings: dict[str, Any]
    objective: str
    """Rate or area of `Rates` to maximise."""
    constrained: str | None = None
    """Rate that is constrained to the target."""

    @property
    def target(self) -> float:
        """Target of the constraint."""
        return self.settings['target']

    @property
    def beta(self) -> float:
        """Parameter β of F_β."""
        return self.settings.get('beta', 1.0)


RECALL, PRECISION = 0.9, 0.6
PAR, RAP, F1 = f'precision at recall {RECALL}', f'recall at precision {PRECISION}', 'F_1'
ROC, PR = 'area under ROC', 'area under PR'
MEASURES = {
    PAR: Measure(dict(measure='precision_at_recall', target=RECALL), 'precision', 'recall'),
    RAP: Measure(dict(measure='recall_at_precision', target=PRECISION), 'recall', 'precision'),
    'F_0.5': Measure(dict(measure='f_beta', beta=0.5), 'f'),
    F1: Measure(dict(measure='f_beta'), 'f'),
    'F_2': Measure(dict(measure='f_beta', beta=2.0), 'f'),
    ROC: Measure(dict(measure='auc_roc'), 'area'),
    PR: Measure(dict(measure='auc_pr'), 'area'),
}
AREAS = {ROC: binary_auroc, PR: binary_average_precision}
DEFAULTS = 'defaults'
VARIANTS: dict[str, dict[str, Any]] = {
    DEFAULTS: {},
    'hinge': dict(surrogate='hinge'),
    'multipliers by bounds': dict(proxy=False),
    'hinge, by bounds': dict(surrogate='hinge', proxy=False),
    'η_μ = 1e-5': dict(eta_mu=1e-5),
    'η_μ = 1e-5, no damping': dict(eta_mu=1e-5, damping=0.0),
    'a τ for each example': dict(per_example=True),
    'a τ for each, true rates': dict(per_example=True, proxy=True),
}
VARIED = (PAR, RAP, F1)
CROSS_ENTROPY, PAIRWISE = 'cross-entropy', 'pairwise logistic'
MODELS = {'linear': (N_FEATURES, 1), 'network': (N_FEATURES, HIDDEN, 1)}
COLORS = {
    PAR: 'tab:blue',
    RAP: 'tab:orange',
    'F_0.5': 'tab:green',
    F1: 'tab:red',
    'F_2': 'tab:purple',
    ROC: 'tab:brown',
    PR: 'tab:pink',
}


class Items(NamedTuple):
    """Points [S, n, f] and labels [S, n] of all seeds."""

    features: Tensor
    labels: Tensor


class Rates(NamedTuple):
    """Rates of decisions on a set of items; `area` is that of the measure, or NaN."""

    precision: float
    recall: float
    f: float
    area: float


class Run(NamedTuple):
    """Result of a run for one seed and one measure."""

    train: Rates
    test: Rates
    tuned_train: Rates
    """Rates with the best threshold for the measure on the training set."""
    tuned_test: Rates
    best_test: Rates
    """Rates with the best threshold on the test set itself."""
    multiplier: float
    """Final multiplier; NaN for a loss without one."""


PARTS = ('train', 'test', 'tuned_train', 'tuned_test', 'best_test')

Runs = dict[tuple[str, str, str], list[Run]]
"""Runs of each model, measure and loss, for each seed."""


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Train each model with each loss."""
    train, test = generate(seeds)
    runs: Runs = {}
    for model in MODELS:
        for name, loss in ((CROSS_ENTROPY, cross_entropy), (PAIRWISE, pairwise_logistic)):
            network = train_all(model, seeds, train, loss)
            runs |= {(model, title, name): rate(network, train, test, measure) for title, measure in MEASURES.items()}
        for title, measure in MEASURES.items():
            for variant, settings in VARIANTS.items() if title in VARIED else [(DEFAULTS, {})]:
                loss = s_measure(len(seeds), {**measure.settings, **settings})
                network = train_all(model, seeds, train, loss)
                runs[model, title, variant] = rate(network, train, test, measure, loss)
    rows = [*(row for key in runs for row in rows_against(runs, *key)), *(row_of_variant(runs, *key) for key in runs)]
    rows = [row for row in rows if row]
    results = {
        'setting': {
            'items': N_ITEMS,
            'positives': SHARE_OF_POSITIVES,
            'steps': N_STEPS,
            'batch': BATCH,
            'optimiser': f'Adam, learning rate from {LEARNING_RATE} falling linearly to a hundredth',
            'variants': VARIANTS,
        },
        'summary': rows,
        'runs': [
            {
                'model': model,
                'measure': measure,
                'loss': name,
                'seed': seed,
                'multiplier': None if math.isnan(run.multiplier) else run.multiplier,
                **{part: numbers(getattr(run, part)) for part in PARTS},
            }
            for (model, measure, name), group in runs.items()
            for seed, run in zip(seeds, group, strict=True)
        ],
    }
    return Reproduction(results, rows, found(runs), draw(runs))


def numbers(rates: Rates) -> dict[str, float]:
    """Return the rates that are not NaN."""
    return {name: value for name, value in rates._asdict().items() if not math.isnan(value)}


def generate(seeds: Sequence[int]) -> tuple[Items, Items]:
    """Return items for training, and as many for testing."""
    drawn = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.rand(2 * N_ITEMS, generator=generator) < SHARE_OF_POSITIVES
        points = torch.randn(2 * N_ITEMS, N_FEATURES, generator=generator)
        centers = DISTANCE * F.normalize(torch.randn(N_CENTERS, N_FEATURES, generator=generator))
        around = centers[torch.randint(N_CENTERS, labels.shape, generator=generator)]
        drawn.append((points + labels.unsqueeze(1) * around, labels.long()))
    features, labels = (torch.stack(parts) for parts in zip(*drawn, strict=True))
    halves = zip(features.chunk(2, 1), labels.chunk(2, 1), strict=True)
    train, test = (Items(*half) for half in halves)
    return train, test


class Networks(nn.Sequential):
    """One network for each seed, with rectifiers between layers, from points [S, n, f] to scores [S, n]."""

    def __init__(self, sizes: Sequence[int], seeds: Sequence[int]) -> None:
        starts = [torch.Generator().manual_seed(START + seed) for seed in seeds]
        layers: list[nn.Module] = []
        for n_in, n_out in itertools.pairwise(sizes):
            layers += [StackedLinear(n_in, n_out, starts), nn.ReLU()]
        super().__init__(*layers[:-1], nn.Flatten(1))


Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Loss of scores [S, n], labels [S, n] and the indices [n] of the items in their sets; a sum over seeds."""


def cross_entropy(scores: Tensor, labels: Tensor, _: Tensor) -> Tensor:
    """Return the cross-entropy of each set, summed."""
    return sum_over_networks(F.binary_cross_entropy_with_logits, scores, labels.to(scores.dtype))


def pairwise_logistic(scores: Tensor, labels: Tensor, _: Tensor) -> Tensor:
    """Return the logistic loss, averaged over all pairs of a positive and a negative of each set; 0 without pairs."""

    def of_one(z: Tensor, y: Tensor) -> Tensor:
        pairs = z[y == 0] - z[y == 1].unsqueeze(1)
        return F.softplus(pairs).mean() if pairs.numel() else z.sum() * 0

    return sum_over_networks(of_one, scores, labels)


class s_measure:  # noqa: N801, a function with state
    """S-measure loss of each set, as a query of one loss."""

    def __init__(self, n_sets: int, settings: dict[str, Any]) -> None:
        # The loss is the mean over queries; here it is their sum.
        self.loss = SMeasureLoss(**settings, mode='multilabel', loss_weight=n_sets)

    def __call__(self, scores: Tensor, labels: Tensor, places: Tensor) -> Tensor:
        """Return the Lagrangian."""
        ids = {'ids': places} if self.loss.per_example else {}
        return self.loss(scores.T, labels.T.to(scores.dtype), **ids)

    def step(self) -> None:
        """Update margins, thresholds and multipliers."""
        self.loss.step()

    def multipliers(self) -> list[float]:
        """Return the multipliers of a measure at one operating point, averaged over the points of an area."""
        return self.loss.state.mu.mean(1).tolist()


def train_all(model: str, seeds: Sequence[int], items: Items, loss: Loss) -> Networks:
    """Train a network on the set of each seed."""
    networks = Networks(MODELS[model], seeds)
    optimizer = torch.optim.Adam(networks.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, N_STEPS)
    generator = torch.Generator().manual_seed(START)
    order = torch.empty(0, dtype=torch.long)
    for _ in range(N_STEPS):
        if len(order) < BATCH:
            order = torch.randperm(items.labels.shape[1], generator=generator)
        batch, order = order[:BATCH], order[BATCH:]
        optimizer.zero_grad()
        loss(networks(items.features[:, batch]), items.labels[:, batch], batch).backward()
        optimizer.step()
        schedule.step()
        if isinstance(loss, s_measure):
            loss.step()
    return networks


@torch.no_grad()
def rate(networks: Networks, train: Items, test: Items, measure: Measure, loss: Loss | None = None) -> list[Run]:
    """Return the measure of each seed on both sets."""
    multipliers = loss.multipliers() if isinstance(loss, s_measure) else [math.nan] * len(train.labels)
    runs = []
    for own, other, *sets, multiplier in zip(
        networks(train.features), networks(test.features), train.labels, test.labels, multipliers, strict=True
    ):
        pairs = list(zip((own, other), sets, strict=True))
        tuned, best = (best_threshold(*pair, measure) for pair in pairs)
        found_rates = [rates_of(*pair, at, measure) for at in (0.0, tuned) for pair in pairs]
        runs.append(Run(*found_rates, rates_of(*pairs[1], best, measure), multiplier))
    return runs


def rates_of(scores: Tensor, labels: Tensor, threshold: float, measure: Measure) -> Rates:
    """Return the rates of decisions above a threshold."""
    taken, positive = scores > threshold, labels == 1
    tp, n_taken, n_positive = (int(mask.sum()) for mask in (taken & positive, taken, positive))
    square = measure.beta**2
    area = math.nan
    if measure.objective == 'area':
        # The settings contain the name of the measure.
        [find] = [AREAS[title] for title in AREAS if MEASURES[title].settings == measure.settings]
        area = find(torch.special.expit(scores.double()), labels).item()
    return Rates(tp / max(n_taken, 1), tp / n_positive, (1 + square) * tp / (square * n_positive + n_taken), area)


def best_threshold(scores: Tensor, labels: Tensor, measure: Measure) -> float:
    """Return the best threshold for the measure; 0 for an area, and above all scores if the target is infeasible."""
    if measure.objective == 'area':
        return 0.0
    ranked, order = scores.sort(descending=True)
    tp = labels[order].cumsum(0)
    taken = torch.arange(1, len(labels) + 1)
    precision, recall = tp / taken, tp / tp[-1]
    if measure.constrained is None:
        square = measure.beta**2
        last = int((tp / (square * tp[-1] + taken)).argmax())
    else:
        constrained = recall if measure.constrained == 'recall' else precision
        within = (constrained >= measure.target).nonzero()[:, 0]
        if not len(within):
            return math.inf
        last = int(within[0] if measure.constrained == 'recall' else within[-1])
    return ranked[last].item() if last + 1 == len(ranked) else (ranked[last] + ranked[last + 1]).item() / 2


def rows_against(runs: Runs, model: str, measure: str, name: str) -> list[dict[str, Any]]:
    """Return rows of the defaults and their baselines, without variants."""
    if name not in (DEFAULTS, CROSS_ENTROPY, PAIRWISE) or (name == PAIRWISE and measure not in AREAS):
        return []
    aims, title = MEASURES[measure], 'S-measure loss' if name == DEFAULTS else name
    ways = {'': ('train', 'test')} if measure in AREAS else {', tuned': ('tuned_train', 'tuned_test')}
    if name == DEFAULTS and measure not in AREAS:
        ways = {', at 0': ('train', 'test'), **ways}
    return [
        {
            'model': model,
            'measure': measure,
            'trained by': title + way,
            'constraint on train': spread_over_seeds([getattr(getattr(run, on), aims.constrained) for run in group])
            if aims.constrained
            else '',
            'constraint on test': spread_over_seeds([getattr(getattr(run, off), aims.constrained) for run in group])
            if aims.constrained
            else '',
            'objective on train': spread_over_seeds([getattr(getattr(run, on), aims.objective) for run in group]),
            'objective on test': spread_over_seeds([getattr(getattr(run, off), aims.objective) for run in group]),
            'ahead of cross-entropy on test': ''
            if name == CROSS_ENTROPY
            else told_wins(gains(runs, model, measure, name, off)),
        }
        for way, (on, off) in ways.items()
        for group in [runs[model, measure, name]]
    ]


def row_of_variant(runs: Runs, model: str, measure: str, name: str) -> dict[str, Any]:
    """Return one setting of the loss; None for other losses."""
    if name not in VARIANTS or measure not in VARIED:
        return {}
    aims, group = MEASURES[measure], runs[model, measure, name]
    return {
        'model': model,
        'measure': measure,
        'variant': name,
        'from the target on train': spread_over_seeds([away(run, aims) for run in group]) if aims.constrained else '',
        'objective on train': spread_over_seeds([getattr(run.train, aims.objective) for run in group]),
        'objective on test': spread_over_seeds([getattr(run.test, aims.objective) for run in group]),
        'on test, tuned': spread_over_seeds([getattr(run.tuned_test, aims.objective) for run in group]),
        'μ': spread_over_seeds([run.multiplier for run in group]),
    }


def away(run: Run, measure: Measure) -> float:
    """Return the difference of the constrained rate from its target on the training set; negative if it is violated."""
    return getattr(run.train, measure.constrained or '') - measure.target


def gains(runs: Runs, model: str, measure: str, name: str, part: str, against: str = CROSS_ENTROPY) -> list[float]:
    """Return the gain of the objective over another loss with a tuned threshold, for each seed."""
    objective = MEASURES[measure].objective
    base = part if measure in AREAS or part == 'best_test' else 'tuned_train' if 'train' in part else 'tuned_test'
    pairs = zip(runs[model, measure, name], runs[model, measure, against], strict=True)
    return [
        getattr(getattr(ours, part), objective) - getattr(getattr(theirs, base), objective) for ours, theirs in pairs
    ]


def told_wins(gained: list[float]) -> str:
    """Return a mean, and the number of seeds in which it is above 0."""
    return f'{statistics.fmean(gained):+.4f} ({sum(gain > 0 for gain in gained)} of {len(gained)})'


def found(runs: Runs) -> str:
    """Return where constraints hold, and the gains of the objectives."""
    said = []
    for model in MODELS:
        for measure in (PAR, RAP):
            aims, group = MEASURES[measure], runs[model, measure, DEFAULTS]
            missed = [away(run, aims) for run in group]
            holds = sum(miss >= -WITHIN for miss in missed)
            said.append(
                f'{measure}, {model}: the {aims.constrained} on the training set is within {WITHIN:g} of its target '
                f'or above in {holds} of {len(group)} seeds (mean {statistics.fmean(missed):+.4f}, from '
                f'{min(missed):+.4f} to {max(missed):+.4f}); the {aims.objective} against cross-entropy with a tuned '
                f'threshold is {told_wins(gains(runs, model, measure, DEFAULTS, "train"))} on the training set, '
                f'{told_wins(gains(runs, model, measure, DEFAULTS, "test"))} on the test set, '
                f'{told_wins(gains(runs, model, measure, DEFAULTS, "tuned_test"))} there with a threshold tuned alike, '
                f'and {told_wins(gains(runs, model, measure, DEFAULTS, "best_test"))} where both have the '
                f'{aims.constrained} {aims.target:g} there.'
            )
        betas = ', '.join(
            f'{measure} {told_wins(gains(runs, model, measure, DEFAULTS, "test"))}'
            for measure, aims in MEASURES.items()
            if aims.objective == 'f'
        )
        said.append(f'F_β on the test set against tuned cross-entropy, {model}: {betas}.')
        areas = ', '.join(
            f'{measure} {told_wins(gains(runs, model, measure, DEFAULTS, "test"))} to {CROSS_ENTROPY} and '
            f'{told_wins(gains(runs, model, measure, DEFAULTS, "test", PAIRWISE))} to {PAIRWISE}'
            for measure in AREAS
        )
        said.append(f'Areas on the test set, {model}: {areas}.')
    return ' '.join([*said, found_of_variants(runs)])


def found_of_variants(runs: Runs) -> str:
    """Return the final distance of each setting from the targets, and its F_1."""

    def furthest(variant: str) -> float:
        return max(
            abs(away(run, MEASURES[measure]))
            for model in MODELS
            for measure in (PAR, RAP)
            for run in runs[model, measure, variant]
        )

    def score(variant: str) -> float:
        return statistics.fmean(run.test.f for model in MODELS for run in runs[model, F1, variant])

    listed = ', '.join(f'{name} {furthest(name):.2g} and {score(name):.3g}' for name in VARIANTS)
    return f'How far a constrained rate is from its target at most, and the mean F_1 on the test set: {listed}.'


def draw(runs: Runs) -> Figure:
    """Plot the final distances of the settings from the targets, and the gains of the objectives."""
    figure = Figure(figsize=(14, 8.6), layout='constrained')
    axes = figure.subplots(len(MODELS), 2, width_ratios=(1, 1.1), squeeze=False)
    for row, model in zip(axes, MODELS, strict=True):
        draw_constraints(row[0], model, runs)
        draw_gains(row[1], model, runs)
    for axis in axes[-1]:
        axis.legend(loc='upper center', bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False)
    return figure


def draw_constraints(axis: Axes, model: str, runs: Runs) -> None:
    """Plot the constrained rates of all seeds over the settings."""
    axis.axvspan(-WITHIN, WITHIN, color='tab:green', alpha=0.2, label=f'within {WITHIN:g}')
    axis.axvline(0, color='gray', linewidth=1)
    for measure, shift in ((PAR, -0.13), (RAP, 0.13)):
        for i, name in enumerate(VARIANTS):
            rates = [away(run, MEASURES[measure]) for run in runs[model, measure, name]]
            label = None if i else measure
            axis.plot(rates, [i + shift] * len(rates), 'o', color=COLORS[measure], alpha=0.7, label=label)
    axis.set_xscale('symlog', linthresh=WITHIN)
    axis.set_xlim(-1, 1)
    ticks = (-1, -0.1, -0.01, 0, 0.01, 0.1, 1)
    axis.set_xticks(ticks, [f'{tick:g}' for tick in ticks])
    axis.minorticks_off()
    label_rows(axis, list(VARIANTS))
    axis.set(title=f'{model}: constraint after training', xlabel='rate on the training set − target')


def draw_gains(axis: Axes, model: str, runs: Runs) -> None:
    """Plot the gains of the defaults on the test set, for each seed."""
    axis.axvline(0, color='gray', linewidth=1)

    def points(i: float, gained: list[float], marker: str, measure: str) -> None:
        in_points = [100 * gain for gain in gained]
        axis.plot(in_points, [i] * len(gained), marker, color=COLORS[measure], alpha=0.6)
        axis.plot([statistics.fmean(in_points)] * 2, [i - 0.12, i + 0.12], color='black', linewidth=2)

    for i, measure in enumerate(MEASURES):
        points(i - 0.25, gains(runs, model, measure, DEFAULTS, 'test'), 'o', measure)
        if measure in AREAS:
            points(i + 0.25, gains(runs, model, measure, DEFAULTS, 'test', PAIRWISE), 's', measure)
        else:
            points(i, gains(runs, model, measure, DEFAULTS, 'tuned_test'), '^', measure)
            points(i + 0.25, gains(runs, model, measure, DEFAULTS, 'best_test'), 'D', measure)
    for marker, label in (
        ('o', f'against {CROSS_ENTROPY} with a tuned threshold'),
        ('^', 'the same, own threshold tuned too'),
        ('D', 'both with their best thresholds on the test set'),
        ('s', f'against the {PAIRWISE} loss'),
    ):
        axis.plot([], [], marker, color='gray', label=label)
    axis.plot([], [], color='black', linewidth=2, label='mean over seeds')
    label_rows(axis, list(MEASURES))
    axis.set(title=f'{model}: gain of the S-measure loss', xlabel='points of the objective on the test set')


def label_rows(axis: Axes, names: list[str]) -> None:
    """Label one row for each name, from above."""
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.grid(alpha=0.3)

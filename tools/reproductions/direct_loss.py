r"""Synthetic data of the direct loss paper: direct updates of AP and 0-1 loss compared with surrogates.

In ``direct-synthetic`` (section 4.1) a network of four layers with random parameters scores points of a normal
distribution, and the highest fifth of them are positives. A network of the same structure learns them from another
random initialisation, which the paper does not describe. Here its weights keep the scale of the scores; in
``direct-synthetic-large`` they are standard normal, as in the target, which makes scores sixty times as large. In
``direct-linear`` and ``direct-linear-noise`` (section 5.3) the label is whether the coordinates of a point have a
positive sum, and the score is linear. In the latter a fifth of the labels are wrong, also in the test set.

There are nine methods: the positive and the negative update, the structured hinge and the perceptron, each for AP and
for the 0-1 loss, and cross-entropy. As in the paper, learning rate and ε are those with the best final AP on the
training set (the first of equals), from one grid for all methods. Each seed has its own data, target, initialisation
and search: 63 runs for a method with ε, 9 times as many as for one without.

The paper does not specify the width of the network, the optimiser, the batch size and the threshold of AP methods. Here
all methods take the same number of steps of Adam, with a learning rate that decays to nearly 0, on batches of 500
points. AP methods therefore use the AP of the batch, and the table of the negative update stays small. AP does not
depend on a threshold. For the accuracy, the threshold of AP methods is the quantile of the training scores that leaves
as many as there are positives; that of the other methods is 0.

All runs of a search are trained at once, as rows of one batch.

Reference:
    Y. Song, A. G. Schwing, R. S. Zemel, R. Urtasun: Training deep neural networks via direct loss minimization.
    ICML 2016, sections 4.1 and 5.3, figures 3 to 5. https://arxiv.org/abs/1511.06411
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.func import functional_call

from mmseg_nondecomp.functional import direct_ap_loss
from mmseg_nondecomp.functional.direct.average_precision import direct_ap_losses
from mmseg_nondecomp.functional.direct.zero_one import direct_zero_one_losses
from reproductions import Reproduction, spread_over_seeds

N_ITEMS, N_FEATURES, WIDTH = 20_000, 10, 20
SHARE_OF_POSITIVES, NOISE = 0.2, 0.2
BATCH, N_STEPS, MEASURE_EVERY = 500, 600, 25
LEARNING_RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
TICKS = (*(i / 10 for i in range(1, 10)), 0.95, 0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999, 0.999999)
"""Candidate ticks of the axes; those in range that fit are shown."""
ROOM_OF_TICK = 0.04
"""Share of an axis that a label takes."""
START = 1000
"""Offset added to the seed for the initialisation, so that its random numbers differ from those of the data."""


class Problem(NamedTuple):
    """Target and model of an experiment."""

    sizes: tuple[int, ...]
    """Widths between the layers of the network."""
    noise: float = 0.0
    """Share of wrong labels."""
    starts_large: bool = False
    """Whether the initial weights are as large as those of the target."""

    @property
    def is_linear(self) -> bool:
        """Whether the score is linear."""
        return len(self.sizes) == 2


SYNTHETIC = Problem((N_FEATURES, WIDTH, WIDTH, WIDTH, 1))
SYNTHETIC_LARGE = SYNTHETIC._replace(starts_large=True)
LINEAR = Problem((N_FEATURES, 1))
LINEAR_NOISE = Problem((N_FEATURES, 1), NOISE)


class Items(NamedTuple):
    """Points with labels."""

    features: Tensor
    labels: Tensor
    """Labels 0 or 1, some of them wrong."""
    truth: Tensor
    """Scores that determine the right labels."""


class Method(NamedTuple):
    """Loss with the style of its line."""

    losses: Callable[..., Tensor] | None
    """Direct losses of several rows of scores; None for cross-entropy."""
    mode: str
    color: str

    @property
    def has_epsilon(self) -> bool:
        """Whether ε is one of its parameters."""
        return self.mode in ('positive', 'negative')

    def __call__(self, scores: Tensor, labels: Tensor, epsilons: Tensor) -> Tensor:
        """Return the loss of a batch for each run, from scores [T, n] and ε [T]."""
        labels = labels.expand_as(scores)
        if self.losses is None:
            return F.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype), reduction='none').mean(1)
        # F is linear in the scores: dividing them by ε is equivalent to ε, and gives the gradient its factor 1 / ε.
        scores = scores / epsilons.unsqueeze(1) if self.has_epsilon else scores
        return self.losses(scores, labels == 1, torch.ones_like(labels, dtype=torch.bool), 1.0, self.mode)


MODES = {
    'pos': ('positive', 'tab:red'),
    'neg': ('negative', 'tab:blue'),
    'hinge': ('hinge', 'tab:green'),
    'per': ('perceptron', 'tab:orange'),
}
TASKS = {'AP': direct_ap_losses, '01': direct_zero_one_losses}
LOGISTIC = 'logistic'
METHODS = {f'{mode}-{task}': Method(losses, *MODES[mode]) for task, losses in TASKS.items() for mode in MODES} | {
    LOGISTIC: Method(None, LOGISTIC, 'black')
}
AP_METHODS = [name for name, method in METHODS.items() if method.losses is direct_ap_losses]


class Parameters(NamedTuple):
    """Parameters of the grid search."""

    learning_rate: float
    epsilon: float | None

    @property
    def is_at_an_edge(self) -> bool:
        """Whether they are at an edge of the grid, so that a larger grid might be better."""
        return self.learning_rate in (LEARNING_RATES[0], LEARNING_RATES[-1]) or (
            self.epsilon is not None and self.epsilon in (EPSILONS[0], EPSILONS[-1])
        )


class Point(NamedTuple):
    """Point of a learning curve, on the test set."""

    step: int
    ap: float
    accuracy: float


class Run(NamedTuple):
    """Best run of a search."""

    parameters: Parameters
    curve: list[Point]
    grid: dict[Parameters, float]
    """Final AP on the training set, of all runs."""

    @property
    def train_ap(self) -> float:
        """Final AP on the training set of the chosen parameters."""
        return self.grid[self.parameters]

    @property
    def ap(self) -> float:
        """Final AP on the test set."""
        return self.curve[-1].ap

    @property
    def accuracy(self) -> float:
        """Final accuracy on the test set."""
        return self.curve[-1].accuracy


Runs = dict[str, list[Run]]
"""Best runs of each method, for each seed."""


def synthetic(seeds: Sequence[int]) -> Reproduction:
    """Reproduce the experiment with labels from a random network."""
    return reproduce(SYNTHETIC, seeds)


def synthetic_large(seeds: Sequence[int]) -> Reproduction:
    """Reproduce the same from an initialisation with large scores."""
    return reproduce(SYNTHETIC_LARGE, seeds)


def linear(seeds: Sequence[int]) -> Reproduction:
    """Reproduce the experiment with linearly separable labels."""
    return reproduce(LINEAR, seeds)


def linear_noise(seeds: Sequence[int]) -> Reproduction:
    """Reproduce the same with a fifth of the labels wrong."""
    return reproduce(LINEAR_NOISE, seeds)


def reproduce(problem: Problem, seeds: Sequence[int]) -> Reproduction:
    """Search the parameters of each method on each seed."""
    sets = [generate(problem, seed) for seed in seeds]
    runs: Runs = {
        name: [search(problem, data, seed, name) for data, seed in zip(sets, seeds, strict=True)] for name in METHODS
    }
    possible = [average_precision(test.truth, test.labels) for _, test in sets]
    one_label = [test.labels.bincount().max().item() / len(test.labels) for _, test in sets]
    rows = [
        {
            'method': name,
            'learning rate': listed(run.parameters.learning_rate for run in of_method),
            'ε': listed(run.parameters.epsilon for run in of_method if run.parameters.epsilon is not None),
            'test AP': spread_over_seeds([run.ap for run in of_method]),
            'test 1 - AP': spread_over_seeds([1 - run.ap for run in of_method]),
            'test accuracy': spread_over_seeds([run.accuracy for run in of_method]),
            'training AP': spread_over_seeds([run.train_ap for run in of_method]),
        }
        for name, of_method in runs.items()
    ]
    results = {
        'setting': {
            'items': N_ITEMS,
            'sizes of the network': problem.sizes,
            'label noise': problem.noise,
            'start': 'standard normal' if problem.starts_large else 'normal, of variance 2 / inputs, biases 0',
            'batch': BATCH,
            'steps': N_STEPS,
            'optimiser': 'Adam, learning rate falling linearly to a hundredth',
            'parameters': 'best AP on the training set, for each method and seed',
            'learning rates': LEARNING_RATES,
            'ε': EPSILONS,
        },
        'summary': rows,
        'test AP of the scores that made the labels': spread_over_seeds(possible),
        'test accuracy of one label for all': spread_over_seeds(one_label),
        'runs': [
            {
                'method': name,
                'seed': seed,
                **run.parameters._asdict(),
                'AP': run.ap,
                '1 - AP': 1 - run.ap,
                'accuracy': run.accuracy,
                'training AP': run.train_ap,
            }
            for name, of_method in runs.items()
            for seed, run in zip(seeds, of_method, strict=True)
        ],
        'grid': {name: [row for run in of_method for row in grid_rows(run)] for name, of_method in runs.items()},
        'curves': {name: mean_curve(of_method)._asdict() for name, of_method in runs.items()},
    }
    return Reproduction(results, rows, found(runs, possible, one_label), draw(runs, possible))


def listed(numbers: Iterable[float]) -> str:
    """Return numbers as text."""
    return ', '.join(f'{number:g}' for number in numbers)


def generate(problem: Problem, seed: int) -> tuple[Items, Items]:
    """Return items for training and for testing."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(N_ITEMS, N_FEATURES, generator=generator)
    if problem.is_linear:
        truth = features.sum(1)
        labels = (truth > 0).long()
    else:
        truth = scores_of(target_network(problem, generator), features)
        labels = torch.zeros(N_ITEMS, dtype=torch.long)
        labels[truth.topk(round(SHARE_OF_POSITIVES * N_ITEMS)).indices] = 1
    wrong = torch.randperm(N_ITEMS, generator=generator)[: round(problem.noise * N_ITEMS)]
    labels[wrong] = 1 - labels[wrong]
    halves = torch.randperm(N_ITEMS, generator=generator).chunk(2)
    train, test = (Items(features[half], labels[half], truth[half]) for half in halves)
    return train, test


def network(problem: Problem) -> nn.Sequential:
    """Return linear layers with rectifiers between them; a single linear layer has no bias."""
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(problem.sizes):
        layers += [nn.Linear(n_in, n_out, bias=not problem.is_linear), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def target_network(problem: Problem, generator: torch.Generator) -> nn.Sequential:
    """Return a network whose parameters are standard normal."""
    target = network(problem)
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.normal_(generator=generator)
    return target


def untrained_network(problem: Problem, generator: torch.Generator) -> nn.Sequential:
    """Return a network with random weights that keep the scale of the features, or large ones."""
    if problem.starts_large:
        return target_network(problem, generator)
    start = network(problem)
    with torch.no_grad():
        for parameter in start.parameters():
            if parameter.dim() == 1:
                parameter.zero_()
            else:
                parameter.normal_(0, math.sqrt(2 / parameter.shape[1]), generator=generator)
    return start


@torch.no_grad()
def scores_of(model: nn.Module, features: Tensor) -> Tensor:
    """Return the scores without a graph."""
    return model(features).squeeze(1)


def average_precision(scores: Tensor, labels: Tensor) -> float:
    """Return the AP of the items; 0 if the scores of a run are NaN."""
    value = 1 - direct_ap_loss(scores, labels).item()
    return 0.0 if math.isnan(value) else value


def search(problem: Problem, data: tuple[Items, Items], seed: int, name: str) -> Run:
    """Return the run of the grid that is best on the training set."""
    given, test = data
    epsilons = EPSILONS if METHODS[name].has_epsilon else (None,)
    grid = [Parameters(*pair) for pair in itertools.product(LEARNING_RATES, epsilons)]
    training = train(problem, given, seed, name, grid)
    with torch.no_grad():
        final = training.scores(training.states[N_STEPS], given.features)
    reached = [average_precision(scores, given.labels) for scores in final]
    best = reached.index(max(reached))
    curve = [
        measure(lambda features, at=at: training.scores_of_one(at, best, features), given, test, name, step)
        for step, at in training.states.items()
    ]
    return Run(grid[best], curve, dict(zip(grid, reached, strict=True)))


Weights = dict[str, Tensor]
"""Parameters of several networks, stacked in the first dimension."""


class Training(NamedTuple):
    """Networks of one structure that are trained at once."""

    structure: nn.Module
    states: dict[int, Weights]
    """Weights after some of the steps, including the last."""

    def scores(self, weights: Weights, features: Tensor) -> Tensor:
        """Return the scores [T, n] of points [n, f] by each network."""

        def of_one(own: Weights) -> Tensor:
            return functional_call(self.structure, own, (features,)).squeeze(1)

        return torch.vmap(of_one)(weights)

    @torch.no_grad()
    def scores_of_one(self, weights: Weights, index: int, features: Tensor) -> Tensor:
        """Return the scores [n] by one of them."""
        return self.scores({name: each[index : index + 1] for name, each in weights.items()}, features)[0]


def train(problem: Problem, given: Items, seed: int, name: str, grid: Sequence[Parameters]) -> Training:
    """Train a network for each of the parameters, with the same initialisation and batches."""
    generator = torch.Generator().manual_seed(START + seed)
    training = Training(untrained_network(problem, generator), {})
    weights = {
        key: start.detach().repeat(len(grid), *[1] * start.dim()).requires_grad_()
        for key, start in training.structure.named_parameters()
    }
    optimizer = Adam(list(weights.values()), torch.tensor([each.learning_rate for each in grid]))
    epsilons = torch.tensor([math.nan if each.epsilon is None else each.epsilon for each in grid])
    training.states[0] = copied(weights)
    for step, batch in enumerate(batches(len(given.labels), generator), 1):
        losses = METHODS[name](training.scores(weights, given.features[batch]), given.labels[batch], epsilons)
        # Each network has its own loss, so the gradient of the sum is that of each.
        optimizer.step(torch.autograd.grad(losses.sum(), optimizer.weights), 1 - 0.99 * (step - 1) / N_STEPS)
        if step % MEASURE_EVERY == 0 or step == N_STEPS:
            training.states[step] = copied(weights)
    return training


def copied(weights: Weights) -> Weights:
    """Return a copy of the weights."""
    return {key: each.detach().clone() for key, each in weights.items()}


class Adam:
    """PyTorch's Adam, with a learning rate for each of the networks that share a tensor."""

    def __init__(self, weights: list[Tensor], learning_rates: Tensor) -> None:
        self.weights = weights
        self.learning_rates = learning_rates
        self.n_steps = 0
        self.moments = [(torch.zeros_like(each), torch.zeros_like(each)) for each in weights]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], factor: float) -> None:
        """Take a step with the learning rates times the factor."""
        self.n_steps += 1
        corrections = (1 - 0.9**self.n_steps, 1 - 0.999**self.n_steps)
        for weight, gradient, (first, second) in zip(self.weights, gradients, self.moments, strict=True):
            first.lerp_(gradient, 0.1)
            second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            rate = factor * self.learning_rates.view(-1, *[1] * (weight.dim() - 1))
            weight -= rate * (first / corrections[0]) / ((second / corrections[1]).sqrt() + 1e-8)


def batches(n: int, generator: torch.Generator) -> itertools.islice:
    """Yield the items of each step; each epoch contains all of them."""
    rounds = (torch.randperm(n, generator=generator).split(BATCH) for _ in itertools.count())
    return itertools.islice(itertools.chain.from_iterable(rounds), N_STEPS)


def measure(score: Callable[[Tensor], Tensor], given: Items, test: Items, name: str, step: int) -> Point:
    """Evaluate on the test set; AP methods take their threshold from the scores of the training set."""
    scores, threshold = score(test.features), 0.0
    if name in AP_METHODS:
        n_pos = int(given.labels.sum())
        threshold = score(given.features).sort(descending=True).values[n_pos].item()
    hits = (scores > threshold) == (test.labels == 1)
    return Point(step, average_precision(scores, test.labels), int(hits.sum()) / len(hits))


class Curve(NamedTuple):
    """Means over seeds."""

    step: list[int]
    ap: list[float]
    accuracy: list[float]


def mean_curve(runs: list[Run]) -> Curve:
    """Return the learning curve of several seeds."""
    points = list(zip(*(run.curve for run in runs), strict=True))
    return Curve(
        [group[0].step for group in points],
        [statistics.fmean(point.ap for point in group) for group in points],
        [statistics.fmean(point.accuracy for point in group) for group in points],
    )


def grid_rows(run: Run) -> list[dict[str, Any]]:
    """Return the grid of a search."""
    return [
        {**parameters._asdict(), 'training AP': ap, '1 - training AP': 1 - ap} for parameters, ap in run.grid.items()
    ]


def found(runs: Runs, possible: list[float], one_label: list[float]) -> str:
    """Return the order of the methods, and the differences between the updates that the paper compares."""
    means = {name: statistics.fmean(run.ap for run in of_method) for name, of_method in runs.items()}
    order = sorted(means, key=means.__getitem__, reverse=True)
    useless = [
        name
        for name, of_method in runs.items()
        if statistics.fmean(run.accuracy for run in of_method) <= statistics.fmean(one_label)
    ]
    at_an_edge = [name for name, of_method in runs.items() if any(run.parameters.is_at_an_edge for run in of_method)]
    of_ap = [name for name in order if name in AP_METHODS]
    n = len(possible)
    n_first = sum(
        runs['pos-AP'][i].ap > max(runs[name][i].ap for name in AP_METHODS if name != 'pos-AP') for i in range(n)
    )

    def against(ours: str, theirs: str) -> str:
        gains = [our.ap - their.ap for our, their in zip(runs[ours], runs[theirs], strict=True)]
        return f'{ours} {statistics.fmean(gains):+.2g} to {theirs} (ahead in {sum(gain > 0 for gain in gains)} of {n})'

    pairs = (
        ('pos-AP', LOGISTIC),
        ('pos-AP', 'hinge-AP'),
        ('neg-AP', 'pos-AP'),
        ('per-AP', 'pos-AP'),
        ('neg-01', 'pos-01'),
        ('per-01', 'pos-01'),
    )
    listed = ', '.join(f'{name} {1 - means[name]:.4g}' for name in order)
    return (
        f'1 - AP on the test set, mean of {n} seeds: {listed}; of the scores that made the labels '
        f'{1 - statistics.fmean(possible):.4g}. pos-AP is number {of_ap.index("pos-AP") + 1} of the {len(of_ap)} AP '
        f'methods in the mean (first in {n_first} of {n} seeds) and number {order.index("pos-AP") + 1} of all '
        f'{len(order)}. In AP: {", ".join(against(*pair) for pair in pairs)}. '
        f'No more accurate than one label for all: {", ".join(useless) or "none"}. '
        f'Best at an edge of the grid, in some seed: {", ".join(at_an_edge) or "none"}.'
    )


def draw(runs: Runs, possible: list[float]) -> Figure:
    """Plot AP and accuracy on the test set over the steps."""
    figure = Figure(figsize=(11, 4.2), layout='constrained')
    axes = figure.subplots(1, 2)
    for axis, field, title in zip(axes, ('ap', 'accuracy'), ('AP', 'accuracy'), strict=True):
        for name, of_method in runs.items():
            curve = mean_curve(of_method)
            style = '-' if name in AP_METHODS else ':' if name == LOGISTIC else '--'
            axis.plot(curve.step, getattr(curve, field), style, color=METHODS[name].color, label=name)
        axis.set(xlabel='step', ylabel=f'{title} on the test set')
        axis.grid(alpha=0.3)
    if statistics.fmean(possible) < 1:
        axes[0].axhline(statistics.fmean(possible), color='gray', linewidth=1, label='scores behind the labels')
    for axis in axes:
        stretch_near_one(axis)
    figure.legend(*axes[0].get_legend_handles_labels(), loc='outside right center', frameon=False)
    return figure


def stretch_near_one(axis: Axes) -> None:
    """Set a logit scale with ticks that do not overlap."""
    axis.set_yscale('logit')
    low, high = axis.get_ylim()
    room = ROOM_OF_TICK * (logit(high) - logit(low))
    ticks: list[float] = []
    for tick in TICKS:
        if low < tick < high and (not ticks or logit(tick) - logit(ticks[-1]) > room):
            ticks.append(tick)
    axis.set_yticks(ticks, [f'{tick:g}' for tick in ticks])
    axis.minorticks_off()
    axis.set_ylim(low, high)


def logit(share: float) -> float:
    """Return the logarithm of the odds."""
    return math.log(share / (1 - share))

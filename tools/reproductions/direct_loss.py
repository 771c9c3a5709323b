r"""The synthetic data of the direct loss paper: updates towards a better AP or 0-1 loss against surrogates.

In ``direct-synthetic`` (section 4.1) a network of four layers with random parameters scores points of a normal
distribution, and the highest fifth of them are positives. A network of the same structure learns them from another
random start. In ``direct-linear`` and ``direct-linear-noise`` (section 5.3) the label tells whether the coordinates of
a point have a positive sum, a fifth of the labels are wrong in the latter (of those to test as well), and the score is
linear.

Nine methods: the positive and the negative update, the structured hinge and the perceptron, each for AP and for the 0-1
loss, and cross-entropy. As in the paper, learning rate and ε of each are those with the best AP on the training set in
the end (of equals the first), in one grid for all. They are searched on the first seed only. The others see them on new
data, a new target and a new start.

The paper leaves open the width of the network, the optimiser, the size of a batch and where an AP method puts its
threshold. Here all methods take the same number of steps of Adam, with a learning rate that falls to nearly 0, on
batches of 500 points. So AP methods see the AP of the batch, and the table of the negative update stays small. AP does
not depend on a threshold. For the accuracy, AP methods call positive what is above the quantile of the training scores
that leaves as many as there are positives. The other methods call positive what is above 0.

Reference:
    Y. Song, A. G. Schwing, R. S. Zemel, R. Urtasun: Training deep neural networks via direct loss minimization.
    ICML 2016, sections 4.1 and 5.3, figures 3 to 5. https://arxiv.org/abs/1511.06411
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

from mmseg_nondecomp.functional import direct_ap_loss, direct_zero_one_loss
from reproductions import Reproduction, spread_over_seeds

N_ITEMS, N_FEATURES, WIDTH = 20_000, 10, 20
SHARE_OF_POSITIVES, NOISE = 0.2, 0.2
BATCH, N_STEPS, MEASURE_EVERY = 500, 600, 25
LEARNING_RATES, EPSILONS = (1e-3, 1e-2, 1e-1), (0.01, 0.1, 1.0, 10.0)
TICKS = (*(i / 10 for i in range(1, 10)), 0.95, 0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999, 0.999999)
"""Of the axes, as many as are in sight and have room."""
ROOM_OF_TICK = 0.04
"""How much of an axis a label takes."""
START = 1000
"""Added to the seed for the start of the training, whose random numbers are not to be those of the data."""


class Problem(NamedTuple):
    """What makes the labels and what learns them."""

    sizes: tuple[int, ...]
    """How many numbers there are between the layers of the network."""
    noise: float = 0.0
    """The share of wrong labels."""

    @property
    def is_linear(self) -> bool:
        """Whether the score is linear."""
        return len(self.sizes) == 2


SYNTHETIC = Problem((N_FEATURES, WIDTH, WIDTH, WIDTH, 1))
LINEAR = Problem((N_FEATURES, 1))
LINEAR_NOISE = Problem((N_FEATURES, 1), NOISE)


class Items(NamedTuple):
    """Points and their labels."""

    features: Tensor
    labels: Tensor
    """0 or 1, some of them wrong."""
    truth: Tensor
    """The scores from which the right labels come."""


class Method(NamedTuple):
    """A loss, and how its line looks."""

    loss: Callable[..., Tensor]
    """Of the scores, the labels and, for direct losses, ε and the mode."""
    mode: str | None
    color: str

    @property
    def has_epsilon(self) -> bool:
        """Whether ε belongs to its parameters."""
        return self.mode in ('positive', 'negative')

    def __call__(self, scores: Tensor, labels: Tensor, epsilon: float | None) -> Tensor:
        """The loss of a batch."""
        if self.mode is None:
            return self.loss(scores, labels.to(scores.dtype))
        return self.loss(scores, labels, **({} if epsilon is None else {'epsilon': epsilon}), mode=self.mode)


MODES = {
    'pos': ('positive', 'tab:red'),
    'neg': ('negative', 'tab:blue'),
    'hinge': ('hinge', 'tab:green'),
    'per': ('perceptron', 'tab:orange'),
}
TASKS = {'AP': direct_ap_loss, '01': direct_zero_one_loss}
LOGISTIC = 'logistic'
METHODS = {f'{mode}-{task}': Method(loss, *MODES[mode]) for task, loss in TASKS.items() for mode in MODES} | {
    LOGISTIC: Method(F.binary_cross_entropy_with_logits, None, 'black')
}
AP_METHODS = [name for name, method in METHODS.items() if method.loss is direct_ap_loss]


class Parameters(NamedTuple):
    """What the grid search chooses."""

    learning_rate: float
    epsilon: float | None


class Point(NamedTuple):
    """Of a learning curve, on the test set."""

    step: int
    ap: float
    accuracy: float


class Run(NamedTuple):
    """A training."""

    curve: list[Point]
    train_ap: float
    """In the end, on the training set."""

    @property
    def ap(self) -> float:
        """In the end, on the test set."""
        return self.curve[-1].ap

    @property
    def accuracy(self) -> float:
        """In the end, on the test set."""
        return self.curve[-1].accuracy


class Outcome(NamedTuple):
    """Of a method."""

    grid: dict[Parameters, float]
    """The AP on the training set."""
    best: Parameters
    runs: list[Run]
    """For each seed."""


def synthetic(seeds: Sequence[int]) -> Reproduction:
    """Labels from a random network."""
    return reproduce(SYNTHETIC, seeds)


def linear(seeds: Sequence[int]) -> Reproduction:
    """Labels that a linear score can tell apart."""
    return reproduce(LINEAR, seeds)


def linear_noise(seeds: Sequence[int]) -> Reproduction:
    """The same, a fifth of them wrong."""
    return reproduce(LINEAR_NOISE, seeds)


def reproduce(problem: Problem, seeds: Sequence[int]) -> Reproduction:
    """Choose the parameters of each method on the first seed, and train with them on all."""
    sets = [generate(problem, seed) for seed in seeds]
    outcomes = {name: search_and_train(problem, sets, seeds, name) for name in METHODS}
    possible = [average_precision(test.truth, test.labels) for _, test in sets]
    one_label = [test.labels.bincount().max().item() / len(test.labels) for _, test in sets]
    rows = [
        {
            'method': name,
            'learning rate': outcome.best.learning_rate,
            'ε': '' if outcome.best.epsilon is None else outcome.best.epsilon,
            'test AP': spread_over_seeds([run.ap for run in outcome.runs]),
            'test 1 - AP': spread_over_seeds([1 - run.ap for run in outcome.runs]),
            'test accuracy': spread_over_seeds([run.accuracy for run in outcome.runs]),
            'training AP': spread_over_seeds([run.train_ap for run in outcome.runs]),
        }
        for name, outcome in outcomes.items()
    ]
    results = {
        'setting': {
            'items': N_ITEMS,
            'sizes of the network': problem.sizes,
            'label noise': problem.noise,
            'batch': BATCH,
            'steps': N_STEPS,
            'optimiser': 'Adam, learning rate falling linearly to a hundredth',
            'parameters': 'best AP on the training set of the first seed',
        },
        'summary': rows,
        'test AP of the scores that made the labels': spread_over_seeds(possible),
        'test accuracy of one label for all': spread_over_seeds(one_label),
        'runs': [
            {
                'method': name,
                'seed': seed,
                'AP': run.ap,
                '1 - AP': 1 - run.ap,
                'accuracy': run.accuracy,
                'training AP': run.train_ap,
            }
            for name, outcome in outcomes.items()
            for seed, run in zip(seeds, outcome.runs, strict=True)
        ],
        'grid': {name: grid_rows(outcome) for name, outcome in outcomes.items()},
        'curves': {name: mean_curve(outcome.runs)._asdict() for name, outcome in outcomes.items()},
    }
    return Reproduction(results, rows, found(outcomes, possible, one_label), draw(outcomes, possible))


def generate(problem: Problem, seed: int) -> tuple[Items, Items]:
    """Items to train on and items to test."""
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
    """Linear layers with rectifiers between them; no bias if it is linear."""
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(problem.sizes):
        layers += [nn.Linear(n_in, n_out, bias=not problem.is_linear), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def target_network(problem: Problem, generator: torch.Generator) -> nn.Sequential:
    """All parameters are standard normal numbers."""
    target = network(problem)
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.normal_(generator=generator)
    return target


def untrained_network(problem: Problem, generator: torch.Generator) -> nn.Sequential:
    """Random weights that keep the scale of the scores near that of the features."""
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
    """The scores, without a graph."""
    return model(features).squeeze(1)


def average_precision(scores: Tensor, labels: Tensor) -> float:
    """The AP of the items; 0 if a training has lost its scores to NaN."""
    value = 1 - direct_ap_loss(scores, labels).item()
    return 0.0 if math.isnan(value) else value


def search_and_train(problem: Problem, sets: list[tuple[Items, Items]], seeds: Sequence[int], name: str) -> Outcome:
    """The grid on the first seed, and the best of it on the others."""
    epsilons = EPSILONS if METHODS[name].has_epsilon else (None,)
    settings = [Parameters(*pair) for pair in itertools.product(LEARNING_RATES, epsilons)]
    tried = {setting: train(problem, sets[0], seeds[0], name, setting) for setting in settings}
    best = max(tried, key=lambda setting: tried[setting].train_ap)
    others = [train(problem, data, seed, name, best) for data, seed in zip(sets[1:], seeds[1:], strict=True)]
    return Outcome({setting: run.train_ap for setting, run in tried.items()}, best, [tried[best], *others])


def train(problem: Problem, data: tuple[Items, Items], seed: int, name: str, parameters: Parameters) -> Run:
    """Train from a random start."""
    given, test = data
    generator = torch.Generator().manual_seed(START + seed)
    model = untrained_network(problem, generator)
    optimizer = torch.optim.Adam(model.parameters(), parameters.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, N_STEPS)
    curve = [measure(model, given, test, name, 0)]
    for step, batch in enumerate(batches(len(given.labels), generator), 1):
        optimizer.zero_grad()
        scores = model(given.features[batch]).squeeze(1)
        METHODS[name](scores, given.labels[batch], parameters.epsilon).backward()
        optimizer.step()
        schedule.step()
        if step % MEASURE_EVERY == 0 or step == N_STEPS:
            curve.append(measure(model, given, test, name, step))
    return Run(curve, average_precision(scores_of(model, given.features), given.labels))


def batches(n: int, generator: torch.Generator) -> itertools.islice:
    """The items of each step, all of them in each round."""
    rounds = (torch.randperm(n, generator=generator).split(BATCH) for _ in itertools.count())
    return itertools.islice(itertools.chain.from_iterable(rounds), N_STEPS)


def measure(model: nn.Module, given: Items, test: Items, name: str, step: int) -> Point:
    """On the test set; of the training set, AP methods need the scores for their threshold."""
    scores, threshold = scores_of(model, test.features), 0.0
    if name in AP_METHODS:
        n_pos = int(given.labels.sum())
        threshold = scores_of(model, given.features).sort(descending=True).values[n_pos].item()
    hits = (scores > threshold) == (test.labels == 1)
    return Point(step, average_precision(scores, test.labels), int(hits.sum()) / len(hits))


class Curve(NamedTuple):
    """Means over seeds."""

    step: list[int]
    ap: list[float]
    accuracy: list[float]


def mean_curve(runs: list[Run]) -> Curve:
    """A learning curve of several seeds."""
    points = list(zip(*(run.curve for run in runs), strict=True))
    return Curve(
        [group[0].step for group in points],
        [statistics.fmean(point.ap for point in group) for group in points],
        [statistics.fmean(point.accuracy for point in group) for group in points],
    )


def grid_rows(outcome: Outcome) -> list[dict[str, Any]]:
    """The grid of a method."""
    return [
        {**parameters._asdict(), 'training AP': ap, '1 - training AP': 1 - ap}
        for parameters, ap in outcome.grid.items()
    ]


def found(outcomes: dict[str, Outcome], possible: list[float], one_label: list[float]) -> str:
    """The order of the methods, and how the updates that the paper compares stand to each other."""
    means = {name: statistics.fmean(run.ap for run in outcome.runs) for name, outcome in outcomes.items()}
    order = sorted(means, key=means.__getitem__, reverse=True)
    useless = [
        name
        for name, outcome in outcomes.items()
        if statistics.fmean(run.accuracy for run in outcome.runs) <= statistics.fmean(one_label)
    ]
    of_ap = [name for name in order if name in AP_METHODS]
    n = len(possible)
    n_first = sum(
        outcomes['pos-AP'].runs[i].ap > max(outcomes[name].runs[i].ap for name in AP_METHODS if name != 'pos-AP')
        for i in range(n)
    )

    def against(ours: str, theirs: str) -> str:
        pairs = zip(outcomes[ours].runs, outcomes[theirs].runs, strict=True)
        gains = [our.ap - their.ap for our, their in pairs]
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
        f'No more accurate than one label for all: {", ".join(useless) or "none"}.'
    )


def draw(outcomes: dict[str, Outcome], possible: list[float]) -> Figure:
    """AP and accuracy on the test set over the steps."""
    figure = Figure(figsize=(11, 4.2), layout='constrained')
    axes = figure.subplots(1, 2)
    for axis, field, title in zip(axes, ('ap', 'accuracy'), ('AP', 'accuracy'), strict=True):
        for name, outcome in outcomes.items():
            curve = mean_curve(outcome.runs)
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
    """A logit scale, with ticks that do not overlap."""
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
    """The logarithm of the odds."""
    return math.log(share / (1 - share))

r"""Experiment 1 of the S-measures paper on scikit-learn's digits: effect of F_1 of "large or small" on digit accuracy.

The paper adds to MNIST a copy of each image with its foreground at double size; s is whether the foreground has more
pixels than the mean. One layer predicts the digit with cross-entropy, and an extra node predicts s with the Lagrangian
of F_1 and a factor α; Adam, 40 epochs, batches of 100, learning rate 1e-2. It finds the digits "uniformly more
accurate", with one projection per epoch instead of per iteration.

Here the data are scikit-learn's 1797 digits of 8 x 8 pixels, centered in 16 x 16, and copies with each pixel as four.
Two thirds, chosen by the seed, are for training; an image and its copy are in the same part. The rest is as in the
paper, except the step sizes of the multipliers, which are the package's and, in a comparison, the paper's.

The paper does not state the input of the node, which is decisive:

- the pixels: the node shares no weights with the digits. With one linear layer no gradient of F_1 reaches the weights
  of a digit, and the digits are bitwise those of α = 0. The paper's claim is then impossible.
- the ten logits, as in the network of the authors' code for COCO-Stuff, and as one reading of
  :math:`w_{l+1} \cdot a_l(x)`: F_1 changes the logits of the digits.
- a shared hidden layer, the simplest case with something to regularise.

All three are trained. F_1 has a τ and a λ for each example. "Once an epoch" means projection and ascent at the end of
each epoch; "in each iteration" means both in each iteration (the paper's full projections, and common dual ascent).

Reference:
    S. N. Ravi, A. Venkatesh, G. M. Fung, V. Singh: Optimizing nondecomposable data dependent regularizers via
    Lagrangian reparameterization offers significant performance and efficiency gains. AAAI 2020, section 4.
    https://arxiv.org/abs/1909.12398
"""

import itertools
import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmseg_nondecomp import SMeasureLoss
from reproductions import Reproduction, spread_over_seeds
from reproductions.stacked_linear import StackedLinear, sum_over_networks

N_EPOCHS, BATCH, LEARNING_RATE = 40, 100, 1e-2
SIDE, N_DIGITS, HIDDEN = 16, 10, 32
START = 1000
"""Offset added to the seed for the initialisation, so that its random numbers differ from those of the data."""
ALPHAS = (1e-2, 1e-3, 1e-4)
PIXELS, LOGITS, SHARED = 'the pixels', 'the logits', 'a hidden layer'
PLACES = (PIXELS, LOGITS, SHARED)
ONCE, FULL = 'once an epoch', 'in each iteration'
OWN, PAPER = 'defaults', "the paper's"
STEP_SIZES: dict[str, dict[str, float]] = {
    OWN: {},
    PAPER: dict(eta_tau=1e-2, eta_epsilon=1e-2, eta_lambda=1e-3, eta_mu=1e-5, damping=0.0),
}
COLORS = {ONCE: 'tab:red', FULL: 'tab:orange'}
STYLES = dict(zip(ALPHAS, ('-', '--', ':'), strict=True))


class Digits(NamedTuple):
    """Images of all seeds as rows [S, n, 256], digits [S, n], and whether they are large [S, n]."""

    images: Tensor
    digits: Tensor
    large: Tensor


class Arm(NamedTuple):
    """Training method."""

    place: str
    """Input of the node of s."""
    alpha: float = 0.0
    schedule: str = ONCE
    steps: str = OWN


class Epoch(NamedTuple):
    """Values after an epoch, on the test set except for the multiplier."""

    accuracy: float
    f1: float
    """F_1 of s."""
    mu: float


class Run(NamedTuple):
    """Result of a run."""

    curve: list[Epoch]
    projections: int
    seconds: float
    """Seconds in projections, divided among the seeds."""
    lam: float
    """Mean distance of the λ of the positives from those after the first epoch."""

    @property
    def accuracy(self) -> float:
        """Final accuracy."""
        return self.curve[-1].accuracy

    @property
    def mean_accuracy(self) -> float:
        """Mean accuracy over the epochs."""
        return statistics.fmean(epoch.accuracy for epoch in self.curve)


Runs = dict[Arm, list[Run]]
"""Runs for each seed."""


def arms() -> list[Arm]:
    """Return the baseline, α and both schedules for each input, and the paper's step sizes at the largest α."""
    ways = list(itertools.product(ALPHAS, (ONCE, FULL)))
    return [
        *(Arm(place) for place in PLACES),
        *(Arm(PIXELS, ALPHAS[0], schedule) for schedule in (ONCE, FULL)),
        *(Arm(place, alpha, schedule) for place in (LOGITS, SHARED) for alpha, schedule in ways),
        *(Arm(SHARED, ALPHAS[0], schedule, PAPER) for schedule in (ONCE, FULL)),
    ]


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Train with all methods."""
    given, test = generate(seeds)
    runs = {arm: train(arm, given, test, seeds) for arm in arms()}
    rows = [row_of(arm, runs) for arm in runs]
    results = {
        'setting': {
            'training images': given.digits.shape[1],
            'epochs': N_EPOCHS,
            'batch': BATCH,
            'optimiser': f'Adam, learning rate {LEARNING_RATE}',
            "the paper's step sizes": STEP_SIZES[PAPER],
        },
        'summary': rows,
        'runs': [
            {
                **named(arm),
                'seed': seed,
                'projections': run.projections,
                'seconds in projections': run.seconds,
                'λ moved by': run.lam,
                **{field: [getattr(epoch, field) for epoch in run.curve] for field in Epoch._fields},
            }
            for arm, group in runs.items()
            for seed, run in zip(seeds, group, strict=True)
        ],
    }
    return Reproduction(results, rows, found(runs), draw(runs))


def named(arm: Arm) -> dict[str, Any]:
    """Return the columns that identify the method."""
    return {
        'node reads': arm.place,
        'α': arm.alpha,
        'projections': arm.schedule if arm.alpha else '',
        'step sizes': arm.steps if arm.alpha else '',
    }


def row_of(arm: Arm, runs: Runs) -> dict[str, Any]:
    """Return the row of an arm, compared with the baseline."""
    group = runs[arm]
    return {
        **named(arm),
        'accuracy (%)': spread_over_seeds([run.accuracy for run in group]),
        'mean over epochs (%)': spread_over_seeds([run.mean_accuracy for run in group]),
        'against α = 0, mean over epochs': told_gain(arm, runs) if arm.alpha else '',
        'epochs ahead': epochs_ahead(arm, runs) if arm.alpha else '',
        'F_1 of s': spread_over_seeds([run.curve[-1].f1 for run in group]) if arm.alpha else '',
        'number of projections': group[0].projections,
        'ms in projections': statistics.fmean(1e3 * run.seconds for run in group),
        'μ': spread_over_seeds([run.curve[-1].mu for run in group]) if arm.alpha else '',
        'λ moved by': spread_over_seeds([run.lam for run in group]) if arm.alpha else '',
    }


def gains(arm: Arm, runs: Runs) -> list[float]:
    """Return the gain in accuracy over the baseline of the same seed, in points, mean over epochs."""
    pairs = zip(runs[arm], runs[Arm(arm.place)], strict=True)
    return [ours.mean_accuracy - theirs.mean_accuracy for ours, theirs in pairs]


def told_gain(arm: Arm, runs: Runs) -> str:
    """Return the mean gain, and the number of seeds in which it is above 0."""
    gained = gains(arm, runs)
    return f'{statistics.fmean(gained):+.2f} ({sum(gain > 0 for gain in gained)} of {len(gained)})'


def epochs_ahead(arm: Arm, runs: Runs) -> int:
    """Return the number of epochs in which the mean accuracy over seeds is above that of the baseline."""
    pairs = zip(mean_curve(runs[arm], 'accuracy'), mean_curve(runs[Arm(arm.place)], 'accuracy'), strict=True)
    return sum(ours > theirs for ours, theirs in pairs)


def mean_curve(group: list[Run], field: str) -> list[float]:
    """Return means over the seeds, for each epoch."""
    return [
        statistics.fmean(getattr(epoch, field) for epoch in epochs)
        for epochs in zip(*(run.curve for run in group), strict=True)
    ]


def generate(seeds: Sequence[int]) -> tuple[Digits, Digits]:
    """Return two thirds of the digits for training and a third for testing, each small and large."""
    from sklearn.datasets import load_digits  # imported here, since it takes half a second

    bunch = load_digits()
    small = torch.from_numpy(bunch.images).float() / 16
    digits = torch.from_numpy(bunch.target).long()
    margin = (SIDE - small.shape[1]) // 2
    both = torch.stack([F.pad(small, [margin] * 4), small.repeat_interleave(2, 1).repeat_interleave(2, 2)], 1)
    sizes = (both > 0).sum((2, 3)).float()
    n_train = 2 * len(digits) // 3

    def rows(places: Tensor, threshold: Tensor) -> Digits:
        large = (sizes[places] > threshold).long()
        return Digits(both[places].flatten(0, 1).flatten(1), digits[places].repeat_interleave(2), large.flatten())

    drawn: tuple[list[Digits], list[Digits]] = ([], [])
    for seed in seeds:
        order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(seed))
        threshold = sizes[order[:n_train]].mean()
        for side, places in zip(drawn, (order[:n_train], order[n_train:]), strict=True):
            side.append(rows(places, threshold))
    given, test = (Digits(*map(torch.stack, zip(*side, strict=True))) for side in drawn)
    return given, test


class Networks(nn.Module):
    """Network with logits of the digits and the score of s, for each seed."""

    def __init__(self, place: str, seeds: Sequence[int]) -> None:
        super().__init__()
        self.place = place
        n_features = HIDDEN if place == SHARED else SIDE**2
        starts = [torch.Generator().manual_seed(START + seed) for seed in seeds]
        self.hidden = nn.Sequential(StackedLinear(SIDE**2, HIDDEN, starts), nn.ReLU())
        self.digits = StackedLinear(n_features, N_DIGITS, starts)
        self.node = StackedLinear(N_DIGITS if place == LOGITS else n_features, 1, starts)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [S, n, 10] and scores [S, n]."""
        features = self.hidden(images) if self.place == SHARED else images
        logits = self.digits(features)
        return logits, self.node(logits if self.place == LOGITS else features).squeeze(2)


class Clock:
    """Wrapper that counts and times the calls of a function."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls, self.seconds = function, 0, 0.0

    def __call__(self, *arguments: Any) -> Any:
        """Return the result of the function."""
        start = time.perf_counter()
        result = self.function(*arguments)
        self.seconds += time.perf_counter() - start
        self.calls += 1
        return result


def train(arm: Arm, given: Digits, test: Digits, seeds: Sequence[int]) -> list[Run]:
    """Train the networks; all arms with the same input share initial weights and batches."""
    networks = Networks(arm.place, seeds)
    optimizer = torch.optim.Adam(networks.parameters(), LEARNING_RATE)
    # The loss is the mean over queries, and so over seeds; here it is their sum.
    loss = SMeasureLoss(
        per_example=True, mode='multilabel', loss_weight=len(seeds) * arm.alpha, **STEP_SIZES[arm.steps]
    )
    clock = loss.examples.project = Clock(loss.examples.project)
    generator = torch.Generator().manual_seed(START)
    start, curve = None, []
    for _ in range(N_EPOCHS):
        batches = torch.randperm(given.digits.shape[1], generator=generator).split(BATCH)
        for i, batch in enumerate(batches, 1):
            logits, scores = networks(given.images[:, batch])
            total = sum_over_networks(F.cross_entropy, logits, given.digits[:, batch])
            if arm.alpha:
                total = total + loss(scores.T, given.large[:, batch].T.to(scores.dtype), ids=batch)
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            if arm.alpha:
                loss.step(ascend=arm.schedule == FULL or i == len(batches))
        start = loss.examples.values.clone() if start is None else start
        curve.append(measure(networks, test, loss))
    moved = moves_of_lambda(loss, start) if arm.alpha else [0.0] * len(seeds)
    of_seeds = zip(zip(*curve, strict=True), moved, strict=True)
    return [Run(list(epochs), clock.calls, clock.seconds / len(seeds), lam) for epochs, lam in of_seeds]


def moves_of_lambda(loss: SMeasureLoss, start: Tensor) -> list[float]:
    """Return the mean distance from the values after the first epoch, over the positives of each query."""
    distance = (loss.examples.values - start)[:, :, 1].abs()
    positive = loss.examples.positive
    return (torch.where(positive, distance, 0).sum(0) / positive.sum(0)).tolist()


@torch.no_grad()
def measure(networks: Networks, test: Digits, loss: SMeasureLoss) -> list[Epoch]:
    """Evaluate on the test set of each seed."""
    logits, scores = networks(test.images)
    large, taken = test.large == 1, scores > 0
    f1 = 2 * (large & taken).sum(1) / (large.sum(1) + taken.sum(1))
    accuracy = 100 * (logits.argmax(2) == test.digits).float().mean(1)
    mu = torch.zeros(len(f1)) if loss.state is None else loss.state.mu[:, 0]
    return [Epoch(*numbers) for numbers in zip(accuracy.tolist(), f1.tolist(), mu.tolist(), strict=True)]


def found(runs: Runs) -> str:
    """Return the effect of F_1 on the digits, the cost of projections, and the change of the multipliers."""
    said = []
    beside = [gain for arm in runs if arm.place == PIXELS and arm.alpha for gain in gains(arm, runs)]
    same = 'is that of α = 0 in all epochs' if not any(beside) else f'differs by up to {max(map(abs, beside)):.2g}'
    said.append(f'With a node on the pixels, which shares no weight with the digits, their accuracy {same}.')
    for place in (LOGITS, SHARED):
        listed = '; '.join(
            f'{schedule} '
            + ', '.join(
                f'{told_gain(arm, runs)} and ahead in {epochs_ahead(arm, runs)} of {N_EPOCHS} epochs at α = {alpha:g}'
                for alpha in ALPHAS
                for arm in [Arm(place, alpha, schedule)]
            )
            for schedule in (ONCE, FULL)
        )
        baseline = statistics.fmean(run.mean_accuracy for run in runs[Arm(place)])
        said.append(f'On {place}, in points of the mean accuracy over epochs ({baseline:.2f} at α = 0): {listed}.')
    once, full = (Arm(SHARED, ALPHAS[0], schedule) for schedule in (ONCE, FULL))
    costs = [runs[arm][0].projections for arm in (once, full)]
    times = [1e3 * statistics.fmean(run.seconds for run in runs[arm]) for arm in (once, full)]
    scores = [statistics.fmean(run.curve[-1].f1 for run in runs[arm]) for arm in (once, full)]
    said.append(
        f'{costs[0]} projections take {times[0]:.3g} ms in a training, {costs[1]} take {times[1]:.3g} ms; F_1 of s at '
        f'α = {ALPHAS[0]:g} on {SHARED} is {scores[0]:.4f} and {scores[1]:.4f}.'
    )
    moved = ', '.join(
        f'{statistics.fmean(furthest_mu(run) for run in runs[arm]):.2g} (λ by '
        f'{statistics.fmean(run.lam for run in runs[arm]):.2g}) {schedule} with {named_steps}'
        for steps, named_steps in ((PAPER, "the paper's step sizes"), (OWN, 'the defaults'))
        for schedule in (ONCE, FULL)
        for arm in [Arm(SHARED, ALPHAS[0], schedule, steps)]
    )
    said.append(f'After the first epoch, μ moves by up to {moved}.')
    return ' '.join(said)


def furthest_mu(run: Run) -> float:
    """Return the largest distance of the multiplier from its value after the first epoch."""
    return max(abs(epoch.mu - run.curve[0].mu) for epoch in run.curve)


def draw(runs: Runs) -> Figure:
    """Plot accuracy for each input, the effect of α on it, F_1 of s, and the multiplier."""
    figure = Figure(figsize=(14, 8), layout='constrained')
    axes = figure.subplots(2, 3)
    epochs = range(1, N_EPOCHS + 1)
    for axis, place in zip(axes[0], PLACES, strict=True):
        axis.plot(epochs, mean_curve(runs[Arm(place)], 'accuracy'), color='lightgray', linewidth=5, label='α = 0')
        for schedule, alpha in itertools.product((ONCE, FULL), ALPHAS[:1] if place == PIXELS else ALPHAS):
            curve = mean_curve(runs[Arm(place, alpha, schedule)], 'accuracy')
            axis.plot(epochs, curve, STYLES[alpha], color=COLORS[schedule], label=f'α = {alpha:g}, {schedule}')
        low = min(mean_curve(runs[Arm(place)], 'accuracy')[2:], default=0)
        axis.set_ylim(bottom=low - 1)
        axis.set(title=f'the node of s reads {place}', xlabel='epoch', ylabel='accuracy of the digit, test (%)')
    axes[0, 1].legend(fontsize='small')
    draw_gains(axes[1, 0], runs)
    for steps, schedule in itertools.product((OWN, PAPER), (ONCE, FULL)):
        group = runs[Arm(SHARED, ALPHAS[0], schedule, steps)]
        style = '-' if steps == OWN else ':'
        for axis, field in ((axes[1, 1], 'f1'), (axes[1, 2], 'mu')):
            label = f'{schedule}, {"default" if steps == OWN else steps} step sizes'
            axis.plot(epochs, mean_curve(group, field), style, color=COLORS[schedule], label=label)
    axes[1, 1].set(title=f'F_1 of s, α = {ALPHAS[0]:g}, {SHARED}', xlabel='epoch', ylabel='F_1 on the test set')
    axes[1, 2].set(title=f'multiplier, α = {ALPHAS[0]:g}, {SHARED}', xlabel='epoch', ylabel='μ')
    axes[1, 1].legend(fontsize='small')
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    return figure


def draw_gains(axis: Axes, runs: Runs) -> None:
    """Plot the gain over α for each seed."""
    ways = list(itertools.product((LOGITS, SHARED), (ONCE, FULL)))
    axis.axhline(0, color='gray', linewidth=1)
    for i, (place, schedule) in enumerate(ways):
        for j, alpha in enumerate(reversed(ALPHAS)):
            gained = gains(Arm(place, alpha, schedule), runs)
            at = i + 0.25 * (j - 1)
            axis.plot([at] * len(gained), gained, 'o', color=COLORS[schedule], alpha=0.3 + 0.3 * j)
            axis.plot([at - 0.1, at + 0.1], [statistics.fmean(gained)] * 2, color='black', linewidth=2)
    axis.set_xticks(range(len(ways)), [f'{place}\n{schedule}' for place, schedule in ways], fontsize='x-small')
    axis.set(title=f'gain over α = 0, for α = {ALPHAS[2]:g}, {ALPHAS[1]:g}, {ALPHAS[0]:g}')
    axis.set_ylabel('points of accuracy, mean over epochs')

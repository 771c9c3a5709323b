r"""Experiment 2 of the S-measures paper on generated images: effect of F_1 of "much or little sky" on segmentation.

The paper takes the images of COCO-Stuff with sky, the class whose size varies most; s is whether the sky is larger than
the mean. A SegNet labels pixels, and a final linear layer gives one score per image, which is trained for s with the
Lagrangian of F_1 and a factor α. Training has 40 epochs with batches of 7 and a learning rate of 0.01. The paper
reports 80 instead of 77.6 % of IoU, as a mean over thresholds of 0.55, 0.6 and 0.65, higher and "much more stable" in
all epochs.

Here the images are drawn: a pale gradient with clouds above a wavy skyline, and a rough ground with smooth lakes in the
sky's colours below. Most skies are small and some are large, so that their sizes have two modes. The SegNet is small,
with two poolings whose indices the decoder unpools. The input of the linear layer is its logits, averaged to 8 x 8. The
optimiser is Adam as in the paper, and F_1 has a τ and a λ for each image, projected once an epoch. The paper does not
say to what the thresholds apply; here it is the probability of sky. Step sizes are the package's.

The gradient of F_1 reaches all weights of the network. Also tried, beyond the paper: factors α up to 1, projections in
each iteration, and the package's defaults without τ and with multipliers updated from the true rates in each iteration.

Reference:
    S. N. Ravi, A. Venkatesh, G. M. Fung, V. Singh: Optimizing nondecomposable data dependent regularizers via
    Lagrangian reparameterization offers significant performance and efficiency gains. AAAI 2020, section 4.
    https://arxiv.org/abs/1909.12398
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmseg_nondecomp import SMeasureLoss
from reproductions import Reproduction, spread_over_seeds

N_IMAGES, SIDE = 210, 32
N_EPOCHS, BATCH, LEARNING_RATE = 40, 7, 0.01
THRESHOLDS = (0.55, 0.6, 0.65)
SHARE_OF_LARGE, SMALL, LARGE = 0.35, (0.14, 0.05), (0.6, 0.12)
"""Share of large skies; mean and standard deviation of the share of the image that they cover."""
START = 1000
"""Offset added to the seed for the initialisation, so that its random numbers differ from those of the data."""
LAST = 10
"""Number of final epochs over which an IoU is averaged."""


ONCE, ALWAYS, NO_TAU = 'once an epoch', 'in each iteration', 'no τ'


class Arm(NamedTuple):
    """Training method."""

    alpha: float = 0.0
    way: str = ONCE
    """Schedule of projections and dual ascent; without τ, in each iteration."""

    def __str__(self) -> str:
        told = {ONCE: '', ALWAYS: ', projected in each iteration', NO_TAU: ', without τ'}
        return f'α = {self.alpha:g}{told[self.way]}'


BASELINE = Arm()
COLORS = {
    BASELINE: 'black',
    Arm(1e-4): 'tab:cyan',
    Arm(1e-3): 'tab:blue',
    Arm(1e-2): 'tab:red',
    Arm(1e-1): 'tab:green',
    Arm(1.0): 'tab:purple',
    Arm(1e-2, ALWAYS): 'tab:orange',
    Arm(1e-2, NO_TAU): 'tab:pink',
    Arm(1e-1, NO_TAU): 'tab:olive',
}
ARMS = tuple(COLORS)


class Scenes(NamedTuple):
    """Images [n, 3, h, w], masks of their sky [n, h, w], and whether it is large [n]."""

    images: Tensor
    sky: Tensor
    large: Tensor


class Epoch(NamedTuple):
    """Values after an epoch, on the test set."""

    iou: float
    """IoU of the sky in the data set, mean over thresholds."""
    small: float
    """Mean IoU of images with little sky."""
    large: float
    """Mean IoU of images with much sky."""
    f1: float
    """F_1 of s."""


class Run(NamedTuple):
    """Result of a run."""

    curve: list[Epoch]
    ascents: int
    """Number of multiplier steps, each with a projection if there are τ."""
    finite: bool
    """Whether all losses were finite."""

    def last(self, field: str) -> list[float]:
        """Return values of the last epochs."""
        return [getattr(epoch, field) for epoch in self.curve[-LAST:]]


Runs = dict[Arm, list[Run]]
"""Runs for each seed."""


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Train with each factor."""
    sets = [generate(seed) for seed in seeds]
    runs = {arm: [train(arm, *data, seed) for data, seed in zip(sets, seeds, strict=True)] for arm in ARMS}
    rows = [row_of(arm, runs) for arm in ARMS]
    results = {
        'setting': {
            'images': N_IMAGES,
            'side': SIDE,
            'epochs': N_EPOCHS,
            'batch': BATCH,
            'optimiser': f'Adam, learning rate {LEARNING_RATE}',
            'thresholds': THRESHOLDS,
        },
        'summary': rows,
        'runs': [
            {
                'α': arm.alpha,
                'multipliers': arm.way,
                'seed': seed,
                'ascents': run.ascents,
                **{field: [getattr(epoch, field) for epoch in run.curve] for field in Epoch._fields},
            }
            for arm, group in runs.items()
            for seed, run in zip(seeds, group, strict=True)
        ],
    }
    return Reproduction(results, rows, found(runs), draw(runs, sets[0][0]))


def row_of(arm: Arm, runs: Runs) -> dict[str, Any]:
    """Return the row of an arm, compared with the baseline."""
    group = runs[arm]
    is_baseline = arm == BASELINE
    return {
        'α': arm.alpha,
        'multipliers': '' if is_baseline else arm.way,
        'ascents': group[0].ascents,
        'IoU after the last epoch (%)': spread_over_seeds([run.curve[-1].iou for run in group]),
        f'mean of the last {LAST} (%)': spread_over_seeds([statistics.fmean(run.last('iou')) for run in group]),
        'against α = 0': '' if is_baseline else told_gain(arm, runs, 'iou'),
        'small skies': '' if is_baseline else told_gain(arm, runs, 'small'),
        'large skies': '' if is_baseline else told_gain(arm, runs, 'large'),
        'epochs ahead': '' if is_baseline else epochs_ahead(arm, runs),
        f'std in the last {LAST}': spread_over_seeds([statistics.pstdev(run.last('iou')) for run in group]),
        'lowest of them (%)': spread_over_seeds([min(run.last('iou')) for run in group]),
        'F_1 of s': spread_over_seeds([statistics.fmean(run.last('f1')) for run in group]) if arm.alpha else '',
    }


def gains(arm: Arm, runs: Runs, field: str) -> list[float]:
    """Return the gain over the baseline of the same seed, in points, averaged over the last epochs."""
    pairs = zip(runs[arm], runs[BASELINE], strict=True)
    return [statistics.fmean(ours.last(field)) - statistics.fmean(theirs.last(field)) for ours, theirs in pairs]


def told_gain(arm: Arm, runs: Runs, field: str) -> str:
    """Return the mean gain, and the number of seeds in which it is above 0."""
    gained = gains(arm, runs, field)
    return f'{statistics.fmean(gained):+.2f} ({sum(gain > 0 for gain in gained)} of {len(gained)})'


def mean_curve(group: list[Run], field: str) -> list[float]:
    """Return means over the seeds, for each epoch."""
    return [
        statistics.fmean(getattr(epoch, field) for epoch in epochs)
        for epochs in zip(*(run.curve for run in group), strict=True)
    ]


def epochs_ahead(arm: Arm, runs: Runs) -> int:
    """Return the number of epochs in which the mean IoU over seeds is above that of the baseline."""
    pairs = zip(mean_curve(runs[arm], 'iou'), mean_curve(runs[BASELINE], 'iou'), strict=True)
    return sum(ours > theirs for ours, theirs in pairs)


def generate(seed: int) -> tuple[Scenes, Scenes]:
    """Return images for training, and as many for testing."""
    generator = torch.Generator().manual_seed(seed)
    sky = skies(2 * N_IMAGES, generator)
    images = paint(sky, generator)
    sizes = sky.float().mean((1, 2))
    large = sizes > sizes[:N_IMAGES].mean()
    parts = zip(*(part.split(N_IMAGES) for part in (images, sky, large)), strict=True)
    given, test = (Scenes(*part) for part in parts)
    return given, test


def skies(n: int, generator: torch.Generator) -> Tensor:
    """Return masks of the area above a wavy line."""

    def random(*shape: int) -> Tensor:
        return torch.rand(n, *shape, generator=generator)

    is_large = random() < SHARE_OF_LARGE
    mean, spread = torch.where(is_large, torch.tensor(LARGE)[:, None], torch.tensor(SMALL)[:, None])
    share = (mean + spread * torch.randn(n, generator=generator)).clamp(0.04, 0.92)
    frequency, phase, height = 0.5 + 3 * random(4), 2 * math.pi * random(4), 0.1 * share.sqrt()[:, None] * random(4)
    x = torch.arange(SIDE) / SIDE
    waves = height[..., None] * torch.sin(2 * math.pi * frequency[..., None] * x + phase[..., None])
    line = (share[:, None] + waves.sum(1)).clamp(min=1.5 / SIDE)
    return torch.arange(SIDE)[:, None] / SIDE < line[:, None]


def paint(sky: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images of masks."""
    n = len(sky)

    def normal(*shape: int) -> Tensor:
        return torch.randn(n, *shape, generator=generator)

    def smooth(cells: int) -> Tensor:
        noise = normal(1, cells, cells)
        return F.interpolate(noise, size=(SIDE, SIDE), mode='bilinear', align_corners=False)

    pale = torch.tensor([0.2, 0.35, 0.6])[:, None, None] + 0.45 * normal(3, 1, 1)
    fade = 0.5 * normal(3, 1, 1) * (torch.arange(SIDE) / SIDE)[:, None]
    above = pale + fade + 0.35 * smooth(6).clamp(min=0)
    rough = 0.5 * smooth(SIDE // 2) + 0.25 * normal(1, SIDE, SIDE)
    below = torch.tensor([0.1, 0.15, 0.0])[:, None, None] + 0.45 * normal(3, 1, 1) + rough
    lakes = smooth(5) > 0.9
    ground = torch.where(lakes, pale + 0.35 * smooth(6).clamp(min=0), below)
    return torch.where(sky[:, None], above, ground) + 0.2 * normal(3, SIDE, SIDE)


class SegNet(nn.Module):
    """Small encoder and decoder with logits of the sky [n, 1, h, w] and a score of s [n, 1]."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()

        def block(n_in: int, n_out: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU())

        self.down1, self.down2, self.bottom = block(3, width), block(width, 2 * width), block(2 * width, 2 * width)
        self.up2, self.up1 = block(2 * width, width), block(width, width)
        self.logits = nn.Conv2d(width, 1, 1)
        self.size = nn.Linear(64, 1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return both."""
        x, first = F.max_pool2d(self.down1(images), 2, return_indices=True)
        x, second = F.max_pool2d(self.down2(x), 2, return_indices=True)
        x = self.up2(F.max_unpool2d(self.bottom(x), second, 2))
        logits = self.logits(self.up1(F.max_unpool2d(x, first, 2)))
        return logits, self.size(F.adaptive_avg_pool2d(logits, 8).flatten(1))


def train(arm: Arm, given: Scenes, test: Scenes, seed: int) -> Run:
    """Train a network; all arms share initial weights and batches."""
    torch.manual_seed(START + seed)
    network = SegNet()
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    has_tau = arm.way != NO_TAU
    loss = SMeasureLoss(per_example=has_tau, mode='multilabel', loss_weight=arm.alpha)
    curve, n_ascents, finite = [], 0, True
    for _ in range(N_EPOCHS):
        network.train()
        batches = torch.randperm(len(given.large)).split(BATCH)
        for i, batch in enumerate(batches, 1):
            logits, score = network(given.images[batch])
            total = F.binary_cross_entropy_with_logits(logits.squeeze(1), given.sky[batch].float())
            if arm.alpha:
                total = total + loss(score, given.large[batch].long(), ids=batch if has_tau else None)
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            finite = finite and math.isfinite(total.item())
            if arm.alpha:
                ascends = arm.way != ONCE or i == len(batches)
                loss.step(ascend=ascends)
                n_ascents += ascends
        curve.append(measure(network, test))
    return Run(curve, n_ascents, finite)


@torch.no_grad()
def measure(network: SegNet, test: Scenes) -> Epoch:
    """Evaluate on the test set, in percent except for F_1."""
    network.eval()
    logits, score = network(test.images)
    probability = logits.squeeze(1).sigmoid()
    together, apart = [], []
    for threshold in THRESHOLDS:
        found_sky = probability > threshold
        both, either = ((found_sky & test.sky).sum((1, 2)), (found_sky | test.sky).sum((1, 2)))
        together.append(both.sum() / either.sum())
        apart.append(both / either)
    by_image = torch.stack(apart).mean(0)
    taken = score.squeeze(1) > 0
    f1 = 2 * (taken & test.large).sum() / (taken.sum() + test.large.sum())
    groups = by_image[~test.large], by_image[test.large]
    return Epoch(*(100 * group.mean().item() for group in (torch.stack(together), *groups)), f1.item())


def found(runs: Runs) -> str:
    """Return whether F_1 helps, and whether it stabilises."""
    n = len(runs[BASELINE])
    level, wobble = (
        statistics.fmean(of(run.last('iou')) for run in runs[BASELINE]) for of in (statistics.fmean, statistics.pstdev)
    )
    listed = '; '.join(
        f'{arm}: {told_gain(arm, runs, "iou")}, small skies {told_gain(arm, runs, "small")}, large '
        f'{told_gain(arm, runs, "large")}, ahead in {epochs_ahead(arm, runs)} of {N_EPOCHS} epochs, std '
        f'{statistics.fmean(statistics.pstdev(run.last("iou")) for run in runs[arm]):.2g}'
        for arm in ARMS
        if arm.alpha
    )
    lost = [str(arm) for arm in ARMS if not all(run.finite for run in runs[arm])]
    clear = [str(arm) for arm in ARMS if arm.alpha and min(gains(arm, runs, 'iou')) > 0]
    return (
        f'IoU of the sky in the mean of the last {LAST} epochs and {n} seeds: {level:.2f} % at α = 0, where it has a '
        f'standard deviation of {wobble:.2g} over these epochs. In points against it, with the seeds that gain: '
        f'{listed}. Higher in all seeds: {"; ".join(clear) or "none"}. A loss that is no number: '
        f'{"; ".join(lost) or "none"}.'
    )


def draw(runs: Runs, scenes: Scenes) -> Figure:
    """Plot the data, IoU over the epochs, the gain of α, and its stability."""
    figure = Figure(figsize=(15, 8), layout='constrained')
    axes = figure.subplots(2, 3)
    draw_scenes(axes[0, 0], scenes)
    sizes = 100 * scenes.sky.float().mean((1, 2))
    axes[0, 1].hist(sizes.numpy(), bins=30, color='tab:gray')
    axes[0, 1].axvline(sizes.mean().item(), color='tab:red', label='mean: s = 1 above')
    axes[0, 1].set(title='sizes', xlabel='share of the image that is sky (%)', ylabel='training images')
    axes[0, 1].legend()
    epochs = range(1, N_EPOCHS + 1)
    for axis, field, label in ((axes[0, 2], 'iou', 'IoU of the sky (%)'), (axes[1, 2], 'f1', 'F_1 of s')):
        for arm in ARMS:
            curve = mean_curve(runs[arm], field) if arm.alpha or field == 'iou' else [math.nan] * N_EPOCHS
            axis.plot(epochs, curve, color=COLORS[arm], label=str(arm))
        axis.set(title=f'{label}, test set, mean of seeds', xlabel='epoch', ylabel=label)
    level = mean_curve(runs[BASELINE], 'iou')
    axes[0, 2].set_ylim(bottom=max(0, statistics.median(level) - 25))
    axes[1, 2].set_ylim(bottom=0)
    axes[1, 2].legend(fontsize='small')
    draw_gains(axes[1, 0], runs)
    draw_spread(axes[1, 1], runs)
    for axis in axes.flat[1:]:
        axis.grid(alpha=0.3)
    return figure


def draw_scenes(axis: Axes, scenes: Scenes) -> None:
    """Show some images with their skylines."""
    n = 12
    columns = 4
    images = (0.5 + scenes.images[:n] / 3).clamp(0, 1).movedim(1, -1)
    sheet = torch.cat([torch.cat(list(row), 1) for row in images.split(columns)]).numpy()
    lines = torch.cat([torch.cat(list(row), 1) for row in scenes.sky[:n].split(columns)]).float().numpy()
    axis.imshow(sheet, interpolation='nearest')
    axis.contour(lines, [0.5], colors='red', linewidths=0.8)
    axis.set_axis_off()
    axis.set_title('images, their sky above the red line')


def draw_gains(axis: Axes, runs: Runs) -> None:
    """Plot the gain of each seed for all, small and large skies."""
    axis.axhline(0, color='gray', linewidth=1)
    for i, arm in enumerate(ARMS[1:]):
        for field, marker, shift in (('iou', 'o', -0.2), ('small', 'v', 0.0), ('large', '^', 0.2)):
            gained = gains(arm, runs, field)
            axis.plot([i + shift] * len(gained), gained, marker, color=COLORS[arm], alpha=0.6)
            axis.plot([i + shift - 0.1, i + shift + 0.1], [statistics.fmean(gained)] * 2, color='black', linewidth=2)
    for marker, label in (('o', 'all sky pixels'), ('v', 'images with little sky'), ('^', 'images with much')):
        axis.plot([], [], marker, color='gray', label=label)
    axis.legend(fontsize='small', loc='lower left')
    set_arms(axis, ARMS[1:])
    axis.set_yscale('symlog', linthresh=1)
    ticks = [sign * size for sign in (-1, 1) for size in (0.5, 1, 3, 10, 30)]
    axis.margins(y=0.1)
    low, high = axis.get_ylim()
    axis.set_yticks([0, *ticks], [f'{tick:g}' for tick in (0, *ticks)])
    axis.set_ylim(low, high)
    axis.set(title=f'gain over α = 0, last {LAST} epochs', ylabel='points of IoU')


def draw_spread(axis: Axes, runs: Runs) -> None:
    """Plot the standard deviation of the IoU of each seed in the last epochs."""
    for i, arm in enumerate(ARMS):
        spreads = [statistics.pstdev(run.last('iou')) for run in runs[arm]]
        axis.plot([i] * len(spreads), spreads, 'o', color=COLORS[arm], alpha=0.6)
        axis.plot([i - 0.2, i + 0.2], [statistics.fmean(spreads)] * 2, color='black', linewidth=2)
    set_arms(axis, ARMS)
    axis.set_yscale('log')
    axis.set(title=f'restlessness: std over the last {LAST} epochs', ylabel='points of IoU')


def set_arms(axis: Axes, arms: Sequence[Arm]) -> None:
    """Set the ticks of the factors."""
    told = {ONCE: '', ALWAYS: '\n(always)', NO_TAU: '\n(no τ)'}
    axis.set_xticks(range(len(arms)), [f'{arm.alpha:g}{told[arm.way]}' for arm in arms], fontsize='small')
    axis.set_xlabel('α; (always): projected in each iteration')

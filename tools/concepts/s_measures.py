"""Dual ascent on precision at a recall: rates and multiplier at each step."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from concepts import BLACK, BLUE, GREEN, ORANGE, two_panels
from mmseg_nondecomp import SMeasureLoss

TARGET = 0.9
SHARE, N_FEATURES, DISTANCE = 0.05, 6, 0.9
LEARNING_RATE = 0.02


class Items(NamedTuple):
    """Data of the classification problem."""

    features: Tensor
    labels: Tensor


class Path(NamedTuple):
    """Values at each training step, of shape [steps]."""

    recall: Tensor
    precision: Tensor
    mu: Tensor
    """Multiplier of the recall constraint."""
    entropy_recall: float
    """Result of cross-entropy after as many steps, for scores above 0."""
    entropy_precision: float
    entropy_precision_at_target: float
    """Result with the highest threshold that reaches the target."""


def compute(n_steps: int = 600, n: int = 4000) -> Path:
    """Train a linear classifier on two overlapping clouds with 5 % positives, with all items in each step."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(n, generator=generator) < SHARE).long()
    items = Items(torch.randn(n, N_FEATURES, generator=generator) + DISTANCE * labels.unsqueeze(1), labels)
    loss = SMeasureLoss(measure='precision_at_recall', target=TARGET)
    rates, mu = [], []

    def after_step(scores: Tensor) -> None:
        loss.step()
        rates.append(rates_of(scores, labels))
        mu.append(loss.state.mu.item())

    train(items, lambda scores: loss(scores, labels), n_steps, after_step)
    target = labels.unsqueeze(1).float()
    scores = train(items, lambda scores: F.binary_cross_entropy_with_logits(scores, target), n_steps)
    of_positives = scores[labels == 1, 0].sort(descending=True).values
    lowest = of_positives[math.ceil(TARGET * len(of_positives)) - 1]
    at_target = rates_of(scores - lowest.nextafter(lowest - 1), labels)
    return Path(*torch.tensor(rates).T, torch.tensor(mu), *rates_of(scores, labels), at_target[1])


def train(
    items: Items,
    loss: Callable[[Tensor], Tensor],
    n_steps: int,
    after_step: Callable[[Tensor], None] = lambda scores: None,
) -> Tensor:
    """Run steps of Adam, pass the scores before each to a callback, and return the last."""
    torch.manual_seed(0)
    model = nn.Linear(N_FEATURES, 1)
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    for _ in range(n_steps):
        optimizer.zero_grad()
        scores = model(items.features)
        loss(scores).backward()
        optimizer.step()
        after_step(scores.detach())
    return scores.detach()


def rates_of(scores: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return recall and precision of the scores above 0."""
    found = scores[:, 0] > 0
    hits = (found & (labels == 1)).sum().item()
    return hits / max(1, int(labels.sum())), hits / max(1, int(found.sum()))


def draw(path: Path) -> Figure:
    """Plot recall and precision, and the multiplier, over the steps."""
    figure, left, right = two_panels()
    left.axhline(TARGET, color=BLACK, linestyle='--', linewidth=1.2, label=f'target of the recall, {TARGET:g}')
    for name, values, of_entropy, color, line in (
        ('recall', path.recall, path.entropy_recall, BLUE, '-'),
        ('precision', path.precision, path.entropy_precision, ORANGE, '-.'),
    ):
        left.plot(values, color=color, linestyle=line, label=name)
        left.plot(len(values), of_entropy, color=color, marker='D', markersize=8, linestyle='none')
    hollow = dict(marker='D', markersize=8, linestyle='none', markerfacecolor='white', markeredgewidth=2)
    left.plot(len(path.recall), path.entropy_precision_at_target, color=ORANGE, **hollow)
    left.plot([], [], color='gray', marker='D', markersize=8, linestyle='none', label='by cross-entropy')
    left.plot([], [], color='gray', **hollow, label='with its threshold\nmoved to the recall')
    left.set_xlim(-10, 1.04 * len(path.recall))
    left.set_ylim(0, 1.02)
    left.set_xlabel('step')
    left.set_ylabel('recall, precision')
    left.set_title('the recall goes where it was asked to')
    left.legend(loc='center right', bbox_to_anchor=(0.95, 0.53))
    right.plot(path.mu, color=GREEN)
    right.set_xlabel('step')
    right.set_ylabel('multiplier μ of the recall')
    right.set_ylim(0, None)
    right.set_title('the price of a missed positive')
    return figure

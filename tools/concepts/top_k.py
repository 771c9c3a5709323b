"""Top-k losses over the score of the label, and their gradients by score."""

import math
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from concepts import BLACK, BLUE, GREEN, ORANGE, RED, two_panels
from mmseg_nondecomp.functional import hard_topk_loss, smooth_topk_loss

K = 3
N_CLASSES = 10
TAUS = (1.0, 0.3, 0.1)
LABEL_RANK = 5
LOSSES = {
    'cross-entropy': partial(F.cross_entropy, reduction='none'),
    **{f'smooth, τ = {tau:g}': partial(smooth_topk_loss, k=K, tau=tau, reduction='none') for tau in TAUS},
    'hard': partial(hard_topk_loss, k=K, reduction='none'),
}
STYLES = dict(
    zip(
        LOSSES,
        [(RED, ':', 'x'), (ORANGE, '-', 's'), (GREEN, '-', '^'), (BLUE, '-', 'v'), (BLACK, '--', 'o')],
        strict=True,
    )
)


class Curves(NamedTuple):
    """Losses over the score of the label, and gradients at one point."""

    others: Tensor
    """Scores of the other classes, in descending order."""
    own: Tensor
    """Score of the label, of shape [n]."""
    losses: dict[str, Tensor]
    """Losses of shape [n]."""
    gradients: dict[str, Tensor]
    """Gradients with respect to the scores in descending order, with the label as the fifth; of shape [C]."""


def compute(n: int = 241) -> Curves:
    """Return the results for equally spaced scores of the other classes and a label score from below to above them."""
    others = torch.linspace(4, 0, N_CLASSES - 1, dtype=torch.float64)
    own = torch.linspace(-2, 10, n, dtype=torch.float64)
    scores = torch.cat([own.unsqueeze(1), others.expand(n, -1)], 1)
    label = torch.zeros(n, dtype=torch.long)
    losses = {name: loss(scores, label) for name, loss in LOSSES.items()}
    row = torch.linspace(4, 0, N_CLASSES, dtype=torch.float64)
    return Curves(others, own, losses, {name: gradient(loss, row) for name, loss in LOSSES.items()})


def gradient(loss: partial, row: Tensor) -> Tensor:
    """Return the gradient with respect to the scores of one item."""
    row = row.clone().requires_grad_()
    return torch.autograd.grad(loss(row.unsqueeze(0), torch.tensor([LABEL_RANK - 1])).sum(), row)[0]


def draw(curves: Curves) -> Figure:
    """Plot losses over the score of the label, and the magnitude of the gradient for each score."""
    figure, left, right = two_panels()
    kth = curves.others[K - 1].item()
    for place, text in ((kth, 'k-th of\nthe others'), (kth + K, 'by the\nmargin')):
        left.axvline(place, color='gray', linewidth=1, linestyle=':')
        left.annotate(text, (place, 4.95), (3, 0), textcoords='offset points', va='top', fontsize=10, color='#444444')
    for name, (color, line, marker) in STYLES.items():
        left.plot(curves.own, curves.losses[name], color=color, linestyle=line, marker=marker, markevery=30, label=name)
        steepness = curves.gradients[name].abs()
        shown = torch.where(steepness > 0, steepness, math.nan)
        right.semilogy(
            range(1, N_CLASSES + 1), shown, color=color, linestyle=line, linewidth=1, marker=marker, label=name
        )
    left.set_ylim(-0.1, 5)
    left.set_xlabel('score of the label')
    left.set_ylabel('loss')
    left.set_title(f'k = {K}, margin 1, {N_CLASSES} classes')
    left.legend(loc='center right', bbox_to_anchor=(1.02, 0.6), handlelength=2.6)
    right.set_xticks(range(1, N_CLASSES + 1))
    right.set_ylim(3e-6, 2)
    right.set_xlabel(f'class by its score (the label is number {LABEL_RANK})')
    right.set_ylabel('size of the gradient')
    right.set_title('which scores are moved')
    return figure

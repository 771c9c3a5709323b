"""Lovász extension on two pixels, and the error of its approximation by a histogram."""

from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from concepts import BLUE, ORANGE, RED, two_panels
from mmseg_nondecomp.functional import lovasz_extension, lovasz_softmax

BINS = (4, 16, 64, 256, 1024, 4096)


class Extension(NamedTuple):
    """Extension on a square of errors, and errors of its approximation."""

    grid: Tensor
    """Errors of one pixel, from 0 to 1, of shape [n]."""
    surface: Tensor
    """Extension, of shape [n, n]: rows for the background pixel, columns for the foreground pixel."""
    bins: tuple[int, ...]
    loss_error: Tensor
    """Largest error of the loss over the seeds, for each number of bins."""
    gradient_error: Tensor
    """Largest error of its gradient, in norm, relative to the gradient."""


def compute(n_grid: int = 61, n_classes: int = 19, size: int = 32, n_seeds: int = 3) -> Extension:
    """Return the extension for two foreground pixels, one of them right, and a background pixel, and errors of bins."""
    grid = torch.linspace(0, 1, n_grid, dtype=torch.float64)
    of_background, of_foreground = torch.meshgrid(grid, grid, indexing='ij')
    errors = torch.stack([of_foreground, torch.zeros_like(of_foreground), of_background], -1)
    foreground = torch.tensor([True, True, False]).expand(errors.shape)
    off = torch.tensor([differences(seed, n_classes, size) for seed in range(n_seeds)]).amax(0)
    return Extension(grid, lovasz_extension(errors, foreground), BINS, off[:, 0], off[:, 1])


def differences(seed: int, n_classes: int, size: int) -> list[tuple[float, float]]:
    """Return the errors of loss and gradient relative to sorting, for each number of bins."""
    generator = torch.Generator().manual_seed(seed)
    label = (n_classes * torch.rand(2, size, size, generator=generator) ** 3).long()  # a long tail of classes
    logits = 2 * torch.randn(2, n_classes, size, size, generator=generator, dtype=torch.float64)
    probs = logits.scatter_add(1, label.unsqueeze(1), torch.full_like(logits[:, :1], 2)).softmax(1).requires_grad_()
    exact, slope = value_and_gradient(probs, label, None)
    found = []
    for bins in BINS:
        value, gradient = value_and_gradient(probs, label, bins)
        found.append((abs(value - exact), ((gradient - slope).norm() / slope.norm()).item()))
    return found


def value_and_gradient(probs: Tensor, label: Tensor, bins: int | None) -> tuple[float, Tensor]:
    """Return the loss, and its gradient with respect to the probabilities."""
    loss = lovasz_softmax(probs, label, bins=bins)
    return loss.item(), torch.autograd.grad(loss, probs)[0]


def draw(extension: Extension) -> Figure:
    """Plot contours with the Jaccard loss at the corners, and errors over bins."""
    figure, left, right = two_panels()
    left.grid(False)
    filled = left.contourf(
        extension.grid, extension.grid, extension.surface, levels=[k / 18 for k in range(13)], cmap='cividis_r'
    )
    figure.colorbar(filled, ax=left, ticks=[0, 1 / 6, 1 / 3, 1 / 2, 2 / 3], format='%.2f')
    left.plot([0, 1], [0, 1], color='white', linestyle=':', linewidth=1.2)
    for x, y, delta, color in (
        (0, 0, '0', 'black'),
        (1, 0, '1/2', 'white'),
        (0, 1, '1/3', 'black'),
        (1, 1, '2/3', 'white'),
    ):
        place = dict(ha='right' if x else 'left', va='top' if y else 'bottom', fontweight='bold', color=color)
        inwards = (-5 if x else 5, -5 if y else 5)
        left.annotate(f'Δ = {delta}', (x, y), inwards, textcoords='offset points', **place)
    left.set_xlabel('error of a foreground pixel')
    left.set_ylabel('error of a background pixel')
    left.set_title('Lovász extension; Δ at the corners')
    bins = torch.tensor(extension.bins)
    right.loglog(bins, 1 / (2 * bins), color=RED, linestyle='--', label='bound of the loss, 1 / (2 B)')
    right.loglog(bins, extension.gradient_error, color=ORANGE, marker='s', label='gradient, as a share')
    right.loglog(bins, extension.loss_error, color=BLUE, marker='o', label='loss')
    right.set_xticks(extension.bins, [str(number) for number in extension.bins])
    right.minorticks_off()
    right.set_ylim(1e-12, 1)
    right.set_xlabel('bins B')
    right.set_ylabel('largest difference from sorting')
    right.set_title('what a histogram loses')
    right.legend(loc='lower left')
    return figure

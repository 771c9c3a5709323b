"""Logits and labels for the losses."""

import torch
import torch.nn.functional as F
from torch import Tensor


def half_trained(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return logits [N, C, H, W] that are right for most pixels, with cross-entropies from 1e-5 to 10, and labels."""
    n, n_classes, *size = shape
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(0, n_classes, (n, *size), generator=generator)
    logits = torch.randn(shape, generator=generator) + 6 * one_hot(target, n_classes)
    return logits.requires_grad_(), target


def foreground(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return logits [N, 1, H, W] that are right for most pixels, and labels, one in ten of them 1."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(shape[0], *shape[2:], generator=generator) < 0.1).long()
    logits = torch.randn(shape, generator=generator) + (4 * target - 2).unsqueeze(1)
    return logits.requires_grad_(), target


def binary_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Compute binary cross-entropy for logits with a single channel."""
    return F.binary_cross_entropy_with_logits(logits, target.view_as(logits).to(logits.dtype))


def one_hot(target: Tensor, n_classes: int) -> Tensor:
    """Return the labels [N, *] as floats [N, C, *]."""
    return F.one_hot(target, n_classes).movedim(-1, 1).float()


def shape_label(shape: tuple[int, ...]) -> str:
    """Return a short form of a shape."""
    return 'x'.join(map(str, shape))


def sizes(quick: bool, *full: int) -> tuple[int, ...]:
    """Return the sizes of a group; for a smoke test as many small ones."""
    return tuple(12 * (i + 2) for i in range(min(len(full), 2))) if quick else full

"""Top-k losses compared with cross-entropy, the algorithms of their paper, and difftopk."""

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from reproductions.topk_algorithms import log_summation, loss_by, with_custom_backward

from benchmarks import Case
from benchmarks.measure import training_step
from benchmarks.peers import Loss, difftopk_peer
from benchmarks.scenes import sizes
from mmseg_nondecomp import HardTopKLoss, SmoothTopKLoss

BATCH = 256


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases for training steps over the number of classes, and over k."""
    for n in sizes(quick, 100, 1000, 10_000, 100_000):
        yield training('a training step, k = 5', n, 5, n, 'classes')
    n = 100 if quick else 10_000
    for k in (2, 5) if quick else (2, 5, 10, 20):
        yield training(f'a training step, {n} classes', n, k, k, 'k')


def training(group: str, n: int, k: int, size: int, unit: str) -> Case:
    """Return the case of forward and backward passes on a batch."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(BATCH, n, generator=generator, requires_grad=True)
    target = torch.randint(0, n, (BATCH,), generator=generator)
    losses: dict[str, Loss] = {
        'cross-entropy': F.cross_entropy,
        'SmoothTopKLoss': SmoothTopKLoss(k),
        'HardTopKLoss': HardTopKLoss(k),
        'smooth top-k by Algorithms 1 and 2 of the paper': partial(loss_by, with_custom_backward, k=k),
    }
    if n <= 1000:  # One step per class; beyond that it takes seconds.
        losses['smooth top-k by Algorithm 3, differentiated'] = partial(loss_by, log_summation, k=k)
    losses |= difftopk_peer(n, k)
    steps = {name: training_step(loss, scores, target) for name, loss in losses.items()}
    return Case(group, f'{BATCH}x{n}, k={k}', size, unit, steps, scores)

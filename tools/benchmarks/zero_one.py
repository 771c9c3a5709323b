"""Direct zero-one loss compared with the surrogates that it replaces."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from benchmarks import Case
from benchmarks.measure import training_step
from benchmarks.peers import Loss
from benchmarks.scenes import binary_cross_entropy, sizes
from mmseg_nondecomp import DirectZeroOneLoss


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases for training steps with one decision per item. No other library implements the direct loss."""
    for n in sizes(quick, 65_536, 262_144, 1_048_576):
        generator = torch.Generator().manual_seed(0)
        scores = torch.randn(n, 1, generator=generator, requires_grad=True)
        target = torch.randint(0, 2, (n, 1), generator=generator).float()
        losses: dict[str, Loss] = {
            'binary cross-entropy': binary_cross_entropy,
            'hinge loss': lambda x, y: F.relu(1 - (2 * y - 1) * x).mean(),
            'DirectZeroOneLoss, positive': DirectZeroOneLoss(),
            'DirectZeroOneLoss, negative': DirectZeroOneLoss(mode='negative'),
        }
        steps = {name: training_step(loss, scores, target) for name, loss in losses.items()}
        yield Case('a training step, one decision an item', f'{n} items', n, 'items', steps, scores)

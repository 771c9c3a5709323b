"""Loss-augmented rankings and average precision losses, compared with the paper's program, sorts, pairs and LibAUC."""

from collections.abc import Iterator
from functools import partial

import torch
from reproductions.ap_baselines import cell_by_cell, smooth_ap_loss
from torch import Tensor

from benchmarks import Case, Row, Step
from benchmarks.measure import compare, training_step
from benchmarks.peers import Loss, libauc_peer
from benchmarks.scenes import binary_cross_entropy, sizes
from mmseg_nondecomp import DirectAPLoss
from mmseg_nondecomp.functional import direct_ap_loss, loss_augmented_ranking


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases for the ranking of a set and for a training step."""
    yield beside_the_programme(*((16, 128) if quick else (128, 10_000)))
    yield beside_a_table(*((16, 512) if quick else (512, 100_000)))
    for n_neg in sizes(quick, 10_000, 100_000, 1_000_000):
        yield beside_a_sort(16 if quick else 1000, n_neg)
    for n in (64, 256) if quick else (4096, 16_384, 65_536):
        steps, x = steps_of_losses(n)
        yield Case('a training step, 2 % positives', f'{n} items', n, 'items', steps, x)


def scores(n_pos: int, n_neg: int) -> tuple[Tensor, Tensor]:
    """Return scores of positives and negatives, in descending order."""
    generator = torch.Generator().manual_seed(0)
    pos, neg = (torch.randn(n, generator=generator).double() for n in (n_pos, n_neg))
    return (pos + 1).sort(descending=True).values, neg.sort(descending=True).values


def beside_the_programme(n_pos: int, n_neg: int) -> Case:
    """Return the case of rankings compared with the program of the paper, cell by cell."""
    pos, neg = scores(n_pos, n_neg)
    steps: dict[str, Step] = {
        'cell by cell (NumPy)': lambda: cell_by_cell(pos.numpy(), neg.numpy(), -0.1),
        'negative update': lambda: loss_augmented_ranking(pos, neg, 0.1, 'negative'),
        'positive update': lambda: loss_augmented_ranking(pos, neg, 0.1),
    }
    return Case('a ranking beside the programme of the paper', f'{n_pos}x{n_neg}', n_neg, 'negatives', steps)


def beside_a_table(n_pos: int, n_neg: int) -> Case:
    """Return the case of the negative update compared with the minimum cost of filling a table."""
    pos, neg = scores(n_pos, n_neg)
    cells = torch.randn(n_pos, n_neg, dtype=torch.float64)
    steps: dict[str, Step] = {
        'cumulative sum and maximum of a table': lambda: (cells.cumsum(1), cells.cummax(1)),
        'negative update': lambda: loss_augmented_ranking(pos, neg, 0.1, 'negative'),
        'negative update, negatives on top': lambda: loss_augmented_ranking(pos - 9, neg, 0.1, 'negative'),
    }
    return Case('a ranking beside a pass over a table', f'{n_pos}x{n_neg}', n_neg, 'negatives', steps)


def beside_a_sort(n_pos: int, n_neg: int) -> Case:
    """Return the case of the positive update compared with a sort of the negatives."""
    pos, neg = scores(n_pos, n_neg)
    shuffled = neg[torch.randperm(n_neg, generator=torch.Generator().manual_seed(0))]
    steps: dict[str, Step] = {
        'sort of the negatives': lambda: shuffled.sort(descending=True),
        'positive update': lambda: loss_augmented_ranking(pos, shuffled, 0.1),
    }
    return Case('a ranking beside a sort', f'{n_pos}x{n_neg}', n_neg, 'negatives', steps)


def steps_of_losses(n: int) -> tuple[dict[str, Step], Tensor]:
    """Return a training step of each average precision loss on n items with 2 percent positives, and the scores."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, generator=generator, requires_grad=True)
    target = (torch.rand(n, generator=generator) < 0.02).long()
    registered = DirectAPLoss()
    losses: dict[str, Loss] = {
        'binary cross-entropy': binary_cross_entropy,
        'direct AP loss, positive': direct_ap_loss,
        'direct AP loss, negative': partial(direct_ap_loss, mode='negative'),
        'DirectAPLoss (positive), as a head calls it': lambda x, y: registered(x.unsqueeze(1), 1 - y),
        'smooth AP over pairs': smooth_ap_loss,
        **libauc_peer(n),
    }
    return {name: training_step(loss, x, target) for name, loss in losses.items()}, x


def ap_steps(n: int, repeats: int) -> list[Row]:
    """Return the case of these steps."""
    steps, x = steps_of_losses(n)
    return compare(steps, f'{n} items, 2 % positives', x, repeats)

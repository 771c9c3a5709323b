"""Amount of data exchanged between processes, and the IoU of a loss over the number of images in its set."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import torch
from matplotlib.figure import Figure
from torch import Tensor, distributed

from concepts import BLACK, BLUE, GREEN, ORANGE, RED, two_panels
from mmseg_nondecomp import LossMaxPooling, LovaszSoftmaxLoss, SMeasureLoss, SoftIoULoss
from mmseg_nondecomp.losses import SetLoss
from mmseg_nondecomp.metrics.functional import jaccard_index_by_image

N_CLASSES = 19
N_OBJECT_CLASSES = 3
LOSSES: dict[str, Callable[[str], SetLoss]] = {
    'LovaszSoftmaxLoss': lambda scope: LovaszSoftmaxLoss(scope=scope),
    'LossMaxPooling': lambda scope: LossMaxPooling(scope=scope),
    'SMeasureLoss': lambda scope: SMeasureLoss(scope=scope),
    'SoftIoULoss': lambda scope: SoftIoULoss(scope=scope),
}
STYLES = dict(zip(LOSSES, [(BLUE, 'o'), (ORANGE, 's'), (RED, '^'), (GREEN, 'v')], strict=True))
SIZES = (32, 64, 128, 256)
SET_SIZES = (1, 2, 4, 8, 16, 32, 64)


class Sets(NamedTuple):
    """Exchanged numbers, and measured IoU."""

    logits: list[int]
    """Number of logits of a process, for each size of its images."""
    exchanged: dict[str, list[int]]
    """Numbers that each loss all-reduces with ``scope='world'``."""
    exchanged_alone: dict[str, list[int]]
    """The same with ``scope='batch'``."""
    set_sizes: list[int]
    of_batches: list[float]
    """One minus the loss of decisions, averaged over batches, for each number of images."""
    of_memory: list[float]
    """The same for batches of one image with a memory of all other images of the set."""
    of_image: float
    """Mean IoU of the metric by image, and by data set."""
    of_data_set: float


def compute(sizes: tuple[int, ...] = SIZES, n_images: int = 256, set_sizes: tuple[int, ...] = SET_SIZES) -> Sets:
    """Count the numbers that two processes exchange; measure decisions on images with classes of different sizes."""
    exchanged = {
        scope: {name: [numbers_exchanged(make(scope), size) for size in sizes] for name, make in LOSSES.items()}
        for scope in ('world', 'batch')
    }
    decided, true = scenes(n_images)
    index = jaccard_index_by_image(decided, true, num_classes=N_OBJECT_CLASSES + 1)
    return Sets(
        [N_CLASSES * size**2 for size in sizes],
        exchanged['world'],
        exchanged['batch'],
        list(set_sizes),
        [mean_index(LovaszSoftmaxLoss(), decided, true, size) for size in set_sizes],
        [mean_index(LovaszSoftmaxLoss(memory=size - 1), decided, true, 1, skip=size - 1) for size in set_sizes],
        index['image'].item(),
        index['dataset'].item(),
    )


def numbers_exchanged(loss: SetLoss, size: int) -> int:
    """Return the number of values that a process all-reduces in one call."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, N_CLASSES, size, size, generator=generator, requires_grad=True)
    with counted_all_reduces() as counts:
        loss(logits, torch.randint(N_CLASSES, (1, size, size), generator=generator)).backward()
    return sum(counts)


@contextmanager
def counted_all_reduces() -> Iterator[list[int]]:
    """Simulate two identical processes: an all-reduce doubles its values, and its size is recorded."""
    counts: list[int] = []

    def all_reduce(sums: Tensor) -> None:
        counts.append(sums.numel())
        sums.mul_(2)

    stand_ins = dict(is_initialized=lambda: True, get_world_size=lambda: 2, all_reduce=all_reduce)
    with mock.patch.multiple(distributed, **stand_ins):
        yield counts


def scenes(n_images: int, size: int = 24) -> tuple[Tensor, Tensor]:
    """Return decisions and labels of images with objects of three classes; decisions are shifted by a pixel."""
    generator = torch.Generator().manual_seed(0)
    true = torch.zeros(n_images, size, size, dtype=torch.long)
    decided = true.clone()
    rows = torch.arange(size)
    for image in range(n_images):
        for cls in range(1, N_OBJECT_CLASSES + 1):
            side = round(2 * 5 ** torch.rand((), generator=generator).item())  # from 2 to 10, mostly small
            top, left = torch.randint(0, size - side + 1, (2,), generator=generator).tolist()
            for labels, y, x in ((true, top, left), (decided, top + 1, left)):
                inside = ((rows >= y) & (rows < y + side))[:, None] & ((rows >= x) & (rows < x + side))
                labels[image][inside] = cls
    return decided, true


def mean_index(loss: LovaszSoftmaxLoss, decided: Tensor, true: Tensor, batch_size: int, skip: int = 0) -> float:
    """Return one minus the mean loss over batches, which for decisions is the mean IoU of the present classes."""
    certain = 1e4 * torch.nn.functional.one_hot(decided, N_OBJECT_CLASSES + 1).movedim(-1, 1).float()
    batches = zip(certain.split(batch_size), true.split(batch_size), strict=True)
    losses = [loss(logits, label).item() for logits, label in batches]
    return 1 - sum(losses[skip:]) / len(losses[skip:])


def draw(sets: Sets) -> Figure:
    """Plot numbers exchanged over logits, and IoU over images in a set."""
    figure, left, right = two_panels()
    left.loglog(sets.logits, sets.logits, color=BLACK, linestyle='--', linewidth=1.2, label='the logits themselves')
    for name, numbers in sets.exchanged.items():
        color, marker = STYLES[name]
        left.loglog(sets.logits, numbers, color=color, marker=marker, label=name)
    left.set_xlabel(f'logits of a process ({N_CLASSES} classes)')
    left.set_ylabel('numbers added up over processes')
    left.set_title("scope='world', one step")
    left.set_ylim(10, 1e9)
    left.legend(loc='upper left', fontsize=9.5, ncols=2, columnspacing=0.8)
    right.axhline(sets.of_data_set, color=BLACK, linestyle='--', linewidth=1.2, label='data set IoU')
    right.axhline(sets.of_image, color=BLACK, linestyle=':', linewidth=1.6, label='image IoU')
    right.plot(sets.set_sizes, sets.of_batches, color=BLUE, marker='o', markersize=9, label='batches of so many')
    right.plot(sets.set_sizes, sets.of_memory, color=ORANGE, marker='s', markersize=5, label='one, and memory')
    right.set_xscale('log')
    right.set_xticks(sets.set_sizes, [str(size) for size in sets.set_sizes])
    right.minorticks_off()
    right.set_xlabel('images in the set of the loss')
    right.set_ylabel('mean IoU')
    right.set_title('1 − LovaszSoftmaxLoss of decisions')
    right.legend(loc='center right', bbox_to_anchor=(1, 0.35))
    return figure

"""Frequencies of the classes of a long tail in the draws of samplers, and the gaps between them."""

from itertools import islice
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from concepts import BLUE, GREEN, ORANGE, two_panels
from mmseg_nondecomp import EquiBatchSampler, IoUAdaptiveSampler

N_CLASSES = 8
SHARES = 0.45 ** np.arange(N_CLASSES)
"""Share of the images that contain a class: all, 45 %, ... 0.4 %."""
IOU = np.linspace(0.9, 0.05, N_CLASSES)
"""Assumed training IoU of `TrainIoUHook`, lower for rarer classes."""
STYLES = {'uniform': (BLUE, ''), 'equibatch': (ORANGE, '//'), 'IoU-adaptive': (GREEN, '..')}


class LongTail:
    """Classes of each image."""

    def __init__(self, n_images: int) -> None:
        self.metainfo = dict(classes=tuple('ABCDEFGH'))
        rng = np.random.default_rng(0)
        holds = rng.random((n_images, N_CLASSES)) < SHARES
        holds[np.arange(N_CLASSES), np.arange(N_CLASSES)] = True  # no class is absent from the whole set
        self.categories = [np.flatnonzero(row).tolist() for row in holds]

    def __len__(self) -> int:
        return len(self.categories)

    def get_cat_ids(self, image: int) -> list[int]:
        """Return the classes of an image."""
        return self.categories[image]


class Draws(NamedTuple):
    """Draws of samplers by their names."""

    drawn_for: dict[str, np.ndarray]
    """Number of draws for each class, integers [C]; 0 if images are not drawn for classes."""
    shares: dict[str, np.ndarray]
    """Share of the draws that contain each class [C]."""
    waits: dict[str, np.ndarray]
    """Largest number of draws from one with a class to the next [C]."""
    classes: list[int]
    """Classes for which equibatch drew, in order."""


def compute(n_images: int = 2000, n_draws: int = 20000) -> Draws:
    """Draw from each sampler."""
    dataset = LongTail(n_images)
    equibatch, adaptive = EquiBatchSampler(dataset, seed=0), IoUAdaptiveSampler(dataset, seed=0)
    adaptive.set_iou(IOU)
    passes = [np.random.default_rng((0, turn)).permutation(n_images) for turn in range(-(-n_draws // n_images))]
    streams = {'uniform': np.concatenate(passes), 'equibatch': equibatch, 'IoU-adaptive': adaptive}
    drawn = {name: list(islice(stream, n_draws)) for name, stream in streams.items()}
    counts, shares, waits = {}, {}, {}
    for name, images in drawn.items():
        of_class = [image.cls for image in images if getattr(image, 'cls', None) is not None]
        counts[name] = np.bincount(of_class, minlength=N_CLASSES) if of_class else np.zeros(N_CLASSES, int)
        holds = np.zeros((n_draws, N_CLASSES), bool)
        for row, image in zip(holds, images, strict=True):
            row[dataset.categories[int(image)]] = True
        shares[name] = holds.mean(0)
        places = [np.flatnonzero(of_one) for of_one in holds.T]
        waits[name] = np.array([np.diff([-1, *place, n_draws]).max() for place in places])
    return Draws(counts, shares, waits, [image.cls for image in drawn['equibatch']])


def draw(draws: Draws) -> Figure:
    """Plot shares and longest gaps for each class."""
    figure, left, right = two_panels()
    place, width = np.arange(N_CLASSES), 0.27
    for k, (name, (color, hatch)) in enumerate(STYLES.items()):
        settings = dict(width=width, color=color, hatch=hatch, edgecolor='white', linewidth=0, label=name)
        left.bar(place + (k - 1) * width, 100 * draws.shares[name], **settings)
        right.bar(place + (k - 1) * width, draws.waits[name], **settings)
    right.axhline(N_CLASSES, color='black', linestyle='--', linewidth=1.2, label='number of classes')
    for axes in (left, right):
        axes.set_yscale('log')
        axes.set_xticks(place, [f'{round(100 * share, 2 if share < 0.01 else 1):g}' for share in SHARES])
        axes.set_xlabel('class, by the share of images that hold it, %')
    left.set_yticks([0.1, 1, 10, 100], ['0.1', '1', '10', '100'])
    left.set_ylabel('draws that hold the class, %')
    left.set_title('how often a class is seen')
    left.legend(loc='upper right', ncols=3, columnspacing=0.8, handlelength=1.2)
    left.set_ylim(0.2, 300)
    right.set_ylabel('longest wait for the class, draws')
    right.set_title('how long it is absent')
    right.legend(loc='upper left')
    return figure

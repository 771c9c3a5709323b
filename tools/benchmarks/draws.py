"""Samplers compared with those of MMEngine, PyTorch and MMDetection: building the index and drawing images."""

import contextlib
import io
import itertools
from collections import deque
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch.utils.data import WeightedRandomSampler

from benchmarks import Case, Row, Step
from mmseg_nondecomp import EquiBatchSampler, IoUAdaptiveSampler, index_classes

N_CLASSES = 19


class Images:
    """Data set in memory of images with one to eight classes each, frequent ones first."""

    def __init__(self, n: int) -> None:
        generator = np.random.default_rng(0)
        share = 1 / np.arange(1, N_CLASSES + 1)
        self.classes = [
            sorted(set(generator.choice(N_CLASSES, generator.integers(1, 9), p=share / share.sum()).tolist()))
            for _ in range(n)
        ]
        self.metainfo = dict(classes=tuple(map(str, range(N_CLASSES))))

    def __len__(self) -> int:
        return len(self.classes)

    def get_cat_ids(self, image: int) -> list[int]:
        """Return the classes of an image, as MMDetection's data sets do."""
        return self.classes[image]


def indexing(n: int) -> Case:
    """Return the case of building a class index from memory."""
    images = Images(n)
    steps: dict[str, Step] = {}
    if find_spec('mmdet'):
        from mmdet.datasets.samplers import ClassAwareSampler

        steps['ClassAwareSampler of MMDetection, images alone'] = lambda: ClassAwareSampler(images, seed=0)
    steps['index_classes, with shares and places'] = lambda: quietly(index_classes, images)
    return Case('an index of classes in memory', f'{n} images', n, 'images', steps)


def drawing(n: int) -> Case:
    """Return the case of a pass over the data set: n draws."""
    from mmengine.dataset import InfiniteSampler

    images = Images(n)
    equibatch = quietly(EquiBatchSampler, images, seed=0)
    adaptive = quietly(IoUAdaptiveSampler, images, seed=0)
    adaptive.set_iou(np.linspace(0.9, 0.1, N_CLASSES).tolist())
    index = equibatch.index
    weights = torch.tensor([1 / min(index.images_per_class[c] for c in classes) for classes in images.classes])
    samplers: dict[str, Any] = {
        'InfiniteSampler of MMEngine': InfiniteSampler(images, seed=0),
        'EquiBatchSampler': equibatch,
        'IoUAdaptiveSampler': adaptive,
        'WeightedRandomSampler of PyTorch': WeightedRandomSampler(weights.tolist(), n),
    }
    if find_spec('mmdet'):
        from mmdet.datasets.samplers import ClassAwareSampler

        samplers['ClassAwareSampler of MMDetection'] = ClassAwareSampler(images, seed=0)
    steps = {name: a_pass(endless(sampler), n) for name, sampler in samplers.items()}

    def also(row: Row) -> Row:
        return {'draws a second': round(1e3 * n / row['median ms'])}

    return Case('draws of a sampler, a pass', f'{n} images', n, 'draws', steps, also=also)


def endless(sampler: Any) -> Iterator[Any]:
    """Yield the draws of repeated passes of a sampler."""
    return itertools.chain.from_iterable(itertools.repeat(sampler))


def a_pass(stream: Iterator[Any], n: int) -> Step:
    """Return a step that draws n times and discards the draws."""

    def step() -> None:
        deque(itertools.islice(stream, n), maxlen=0)

    return step


def quietly(build: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the index, without a progress line."""
    with contextlib.redirect_stderr(io.StringIO()):
        return build(*args, **kwargs)

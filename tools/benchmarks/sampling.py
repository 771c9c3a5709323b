"""Counting of classes compared with only reading the labels, class indices, draws of the samplers, and training IoU."""

import tempfile
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks import Case, Row, Step
from benchmarks.draws import drawing, indexing
from benchmarks.measure import training_step
from benchmarks.scenes import half_trained, shape_label, sizes
from mmseg_nondecomp import ClassIndex
from mmseg_nondecomp.class_index._annotations import classes_of_label_map
from mmseg_nondecomp.class_index._index import ImageClasses
from mmseg_nondecomp.functional._averaging import count_decisions


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases from label maps to the next image, and for the counts of the adaptive sampler's hook."""
    with tempfile.TemporaryDirectory() as folder:
        for scale in (8,) if quick else (4, 2, 1):
            yield counting(Path(folder), (512 // scale, 1024 // scale), 0)
        for scale in (8,) if quick else (1,):
            yield counting(Path(folder), (512 // scale, 1024 // scale), 2000 // scale**2)
        yield large_index(Path(folder), 100 if quick else 100_000)
    for n_images in sizes(quick, 1000, 4000, 16_000):
        yield indexing(n_images)
    for n_images in sizes(quick, 1000, 10_000, 100_000):
        yield drawing(n_images)
    for side in sizes(quick, 128, 256, 512):
        yield deciding('the IoU of decisions, 19 classes', (2, 19, side, side))
    for side in sizes(quick, 128):
        yield deciding('the IoU of decisions, 150 classes', (4, 150, side, side))


def counting(folder: Path, size: tuple[int, int], n_specks: int) -> Case:
    """Return the case of label maps like street scenes: ellipses on a background, with and without specks."""
    from mmseg.datasets.transforms import LoadAnnotations

    file = str(folder / f'{size}-{n_specks}.png')
    draw_labels(file, size, n_specks)
    load = LoadAnnotations()

    def read() -> Any:
        results = dict(seg_map_path=file, reduce_zero_label=False, label_map=None, seg_fields=[])
        return load(results)['gt_seg_map']

    steps: dict[str, Step] = {
        'reading (LoadAnnotations)': read,
        'reading and counting, with places': lambda: classes_of_label_map(read(), 19, 255, 4),
        'reading and numpy.unique': lambda: np.unique(read(), return_counts=True),
    }
    group = f'a label map{", with ignored specks" if n_specks else ""}'
    return Case(group, shape_label(size), size[0] * size[1], 'pixels', steps)


def draw_labels(file: str, size: tuple[int, int], n_specks: int) -> None:
    """Write a label map of 19 classes."""
    import cv2

    height, width = size
    generator = np.random.default_rng(0)
    labels = np.repeat(generator.integers(0, 19, 4), height // 4)[:, None].repeat(width, 1).astype(np.uint8)
    for c in generator.integers(0, 19, 60).tolist():
        center, axes = generator.integers((0, 0), (width, height)), generator.integers(3, width // 13, 2)
        cv2.ellipse(labels, center.tolist(), axes.tolist(), 0, 0, 360, c, -1)
    labels[generator.integers(0, height, n_specks), generator.integers(0, width, n_specks)] = 255
    cv2.imwrite(file, labels)


def large_index(folder: Path, n_images: int) -> Case:
    """Return the case of an index of images with 10 of 150 classes each."""
    generator = np.random.default_rng(0)
    image = ImageClasses(np.arange(0, 150, 15), generator.integers(1, 1000, 10), 2**18, generator.random((10, 4, 2)))
    file = folder / 'index.npz'
    ClassIndex.from_images([image] * n_images, [str(c) for c in range(150)], 4).save(file)
    tracemalloc.start()
    index = ClassIndex.load(file)
    for c in index.present_classes:
        index.images_of(c)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    on_disk = round(file.stat().st_size / 1e6, 2)

    def also(row: Row) -> Row:
        return {'peak MB with what sampling needs': round(peak / 1e6, 2), 'MB on disk': on_disk}

    steps: dict[str, Step] = {'ClassIndex.load': partial(ClassIndex.load, file)}
    return Case('loading an index', f'{n_images} images', n_images, 'images', steps, also=also)


def deciding(group: str, shape: tuple[int, ...]) -> Case:
    """Return the case of counting intersections and unions in addition to cross-entropy."""
    logits, target = half_trained(shape)
    steps: dict[str, Step] = {
        'cross-entropy': training_step(F.cross_entropy, logits, target),
        'IoU of its decisions': lambda: count_decisions(torch.max(logits, 1).indices, target, shape[1]),
    }
    return Case(group, shape_label(shape), target.numel(), 'pixels', steps, logits)

"""Build the class index of a data set, also of one that is made of others."""

import math
import os
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from mmseg_nondecomp._utils.progress_line import progress

from ._annotations import Categories, LabelMaps, annotations_of
from ._cache import default_cache_dir, expanded, load_or_build
from ._index import ClassIndex
from ._label_mistakes import foreign_labels, saved_with_255

IMAGES_PER_TASK = 16
IMAGES_PER_WORKER = 512  # Starting a worker takes longer than counting fewer images


def index_classes(
    dataset: Any, cache_dir: str | Path | None = None, num_workers: int | None = None, n_places: int = 4
) -> ClassIndex:
    """Return which images of a data set hold which classes, how many pixels of each, and where.

    Label maps are counted as in training: with ``reduce_zero_label``, custom classes and ignored labels. The first call
    reads all of them. The index is cached in a file and built again when the list of files, their sizes or times, or
    the meaning of their labels change. Files on remote storage are assumed not to change. Categories in memory
    (``get_cat_ids``) are counted each time.

    Args:
        dataset: An ``mmseg.datasets.BaseSegDataset``, any data set with ``get_cat_ids`` (MMDetection, MMPretrain), or a
            ``ConcatDataset``, ``RepeatDataset`` or ``MultiImageMixDataset`` of these.
        cache_dir: Folder of the cache; by default ``~/.cache/mmseg_nondecomp`` (or below ``$XDG_CACHE_HOME``).
        num_workers: Number of processes that count; by default one for each core, for large data sets.
        n_places: Number of places to record of each class in each image.

    Returns:
        The index. Its images are numbered as in ``dataset``.

    Raises:
        OSError: If a label file cannot be read, or the index cannot be written.
        TypeError: If the data set has neither label maps nor ``get_cat_ids``.
        ValueError: If it has no images, no label maps or no names of classes.
    """
    folder = default_cache_dir() if cache_dir is None else expanded(Path(cache_dir))
    parts = list(_parts(dataset, 1, 0))
    common = math.gcd(*(times for _, times, _ in parts))
    indices = [
        (_index_of(annotations_of(part, n_places), folder, num_workers), times // common, first)
        for part, times, first in parts
    ]
    index = indices[0][0] if len(indices) == 1 and indices[0][1:] == (1, 0) else ClassIndex.joined(indices)
    if (text := saved_with_255(index)) is not None:
        warnings.warn(text, stacklevel=2)
    return index


def _parts(dataset: Any, times: int, first: int) -> Iterator[tuple[Any, int, int]]:
    """Yield the parts of a data set, each with its number of repetitions and the index of its first image."""
    names = {cls.__name__ for cls in type(dataset).__mro__}  # of MMEngine, PyTorch, MMSegmentation or a user
    if 'ConcatDataset' in names:
        if hasattr(dataset, 'full_init'):
            dataset.full_init()
        for part, end in zip(dataset.datasets, dataset.cumulative_sizes, strict=True):
            yield from _parts(part, times, first + end - len(part))
    elif 'RepeatDataset' in names:
        yield from _parts(dataset.dataset, times * dataset.times, first)
    elif 'MultiImageMixDataset' in names:
        yield from _parts(dataset.dataset, times, first)
    elif '_SlicedDataset' in names:  # MMEngine's `num_batch_per_epoch`
        yield from _parts(dataset._dataset, times, first)
    elif names & {'ClassBalancedDataset', 'Subset'}:
        raise TypeError(
            f'{type(dataset).__name__} passes indices on without their class. Give the sampler the data set inside it.'
        )
    else:
        yield dataset, times, first


def _index_of(annotations: LabelMaps | Categories, folder: Path, num_workers: int | None) -> ClassIndex:
    build = partial(_build, annotations, num_workers)
    if isinstance(annotations, Categories):
        return build()
    index = load_or_build(folder, annotations.identity(), annotations.state(), build)
    if (text := foreign_labels(index, annotations.files)) is not None:
        warnings.warn(text, stacklevel=3)
    return index


def _build(annotations: LabelMaps | Categories, num_workers: int | None) -> ClassIndex:
    if num_workers is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
        num_workers = min(cores, len(annotations) // IMAGES_PER_WORKER)
    loader: DataLoader = DataLoader(
        annotations,  # type: ignore[arg-type]
        batch_size=IMAGES_PER_TASK,
        num_workers=num_workers,
        collate_fn=list,
        generator=torch.Generator(),  # The global random state does not depend on whether the index was cached.
    )
    counted = (image for batch in loader for image in batch)
    images = progress(counted, len(annotations), 'counting classes')
    return ClassIndex.from_images(images, annotations.class_names, annotations.n_places)

"""The annotations of a data set as they are read in training."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from ._index import ImageClasses


def annotations_of(dataset: Any, n_places: int) -> LabelMaps | Categories:
    """Return the annotations of a data set; raise TypeError if it has neither label maps nor categories."""
    if hasattr(dataset, 'full_init'):
        dataset.full_init()
    if not len(dataset):
        raise ValueError(f'{type(dataset).__name__} should have at least one image. Found none.')
    if hasattr(dataset, 'label_map'):  # an attribute of all segmentation data sets of MMSegmentation and MMDetection
        return LabelMaps(dataset, n_places)
    try:
        dataset.get_cat_ids(0)
    except (AttributeError, NotImplementedError) as error:
        raise TypeError(
            f'{type(dataset).__name__} should be a segmentation data set, a data set with `get_cat_ids`, or a '
            'ConcatDataset or RepeatDataset of these, to know which image holds which class.'
        ) from error
    return Categories(dataset)


class LabelMaps:
    """The label maps of an ``mmseg.datasets.BaseSegDataset``.

    They are read by the transform of its pipeline, with the file backend, ``reduce_zero_label`` and custom classes of
    the training. Changes of the labels by later transforms are not included.
    """

    def __init__(self, dataset: Any, n_places: int) -> None:
        self.dataset = dataset
        self.n_places = n_places
        self.load = _annotation_loader(dataset)
        self.ignore_index = getattr(dataset, 'ignore_index', 255)
        self.class_names = dataset.metainfo.get('classes') or ()
        if not self.class_names:
            raise ValueError(f'{type(dataset).__name__} should name its classes: `metainfo=dict(classes=(...))`.')
        self.files = [self._file(dataset.get_data_info(i)) for i in range(len(dataset))]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, image: int) -> ImageClasses:
        file = self.files[image]
        try:
            labels = self.load(self.dataset.get_data_info(image))['gt_seg_map']
        except Exception as error:  # Decoders can raise anything.
            raise OSError(f'Could not read the label file {file!r}: {type(error).__name__}: {error}') from error
        try:
            return classes_of_label_map(labels, len(self.class_names), self.ignore_index, self.n_places)
        except ValueError as error:
            raise ValueError(f'{error} File: {file!r}.') from error

    def identity(self) -> str:
        """Return a hash of the file names and of the settings that determine the meaning of their labels."""
        dataset = self.dataset
        meaning = (
            list(self.class_names),
            sorted((dataset.label_map or {}).items()),
            getattr(dataset, 'reduce_zero_label', False),
            self.ignore_index,
            self.n_places,
            type(self.load).__module__,
            type(self.load).__qualname__,
            # Set by the loader itself when it reads its first file.
            _simple({name: value for name, value in vars(self.load).items() if name != 'reduce_zero_label'}),
        )
        return _hash([repr(meaning), *(os.path.abspath(file) for file in self.files)])

    def state(self) -> str:
        """Return a hash of the sizes and times of the files, or of their names if they are remote."""
        backend = (getattr(self.dataset, 'backend_args', None) or {}).get('backend', 'local')

        def state_of(file: str) -> str:
            if backend != 'local' or '://' in file:
                return file
            status = os.stat(file)
            return f'{status.st_size} {status.st_mtime_ns}'

        return _hash(map(state_of, self.files))

    def _file(self, info: dict[str, Any]) -> str:
        file = info.get('seg_map_path')
        if file is None:
            raise ValueError(
                f'{type(self.dataset).__name__} should have label maps. Found none for {info.get("img_path")!r}; give '
                '`data_prefix=dict(seg_map_path=...)`, or use a sampler that needs no classes.'
            )
        return str(file)


class Categories:
    """Categories in memory, by ``get_cat_ids``: objects of MMDetection, labels of MMPretrain."""

    n_places = 0

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.class_names = getattr(dataset, 'metainfo', {}).get('classes') or self._numbered()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, image: int) -> ImageClasses:
        counts = Counter(self._categories(image))
        foreign = [category for category in counts if not 0 <= category < len(self.class_names)]
        if foreign:
            raise ValueError(
                f'`get_cat_ids({image})` should give classes from 0 to {len(self.class_names) - 1}. Found {foreign[0]}.'
            )
        classes = sorted(counts)
        return ImageClasses(np.array(classes, int), np.array([counts[c] for c in classes], int), sum(counts.values()))

    def _categories(self, image: int) -> list[int]:
        """Return the categories that count in training; MMDetection also lists ignored objects."""
        categories = [int(category) for category in self.dataset.get_cat_ids(image)]
        info = self.dataset.get_data_info(image) if hasattr(self.dataset, 'get_data_info') else {}
        objects = info.get('instances', ())
        if len(objects) != len(categories):
            return categories
        return [c for c, thing in zip(categories, objects, strict=True) if not thing.get('ignore_flag')]

    def _numbered(self) -> tuple[str, ...]:
        categories = (category for i in range(len(self.dataset)) for category in self._categories(i))
        return tuple(str(i) for i in range(max(categories, default=-1) + 1))


def _annotation_loader(dataset: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the transform of the pipeline that reads label maps; the stock one if there is none."""
    transforms = getattr(dataset.pipeline, 'transforms', ())
    for transform in transforms:
        names = [cls.__name__ for cls in type(transform).__mro__]
        if 'LoadAnnotations' in names or (names[0].startswith('Load') and 'Annotation' in names[0]):
            return transform
    if transforms:
        warnings.warn(
            f'Found no transform that loads annotations in the pipeline of {type(dataset).__name__}: it is known '
            "by its base `LoadAnnotations` or a name like `Load...Annotation`. MMSegmentation's stock transform reads "
            'the label maps to count their classes.',
            stacklevel=2,
        )
    from mmseg.datasets.transforms import LoadAnnotations

    return LoadAnnotations(backend_args=getattr(dataset, 'backend_args', None))


def classes_of_label_map(labels: np.ndarray, n_classes: int, ignore_index: int, n_places: int) -> ImageClasses:
    """Return the classes of a label map [H, W] with their numbers of pixels and ``n_places`` places of each.

    The pixels are read as runs of one label in reading order; annotated images have few runs. The places of a class are
    spread evenly over its pixels in that order, so that no random number is needed.
    """
    if labels.ndim != 2 or labels.dtype.kind not in 'iub':
        raise ValueError(f'A label map should hold integers [H, W]. Found {labels.dtype} of shape {labels.shape}.')
    flat = labels.ravel()
    if not len(flat):
        return ImageClasses(np.zeros(0, int), np.zeros(0, int), 0)
    starts = np.concatenate([[0], np.flatnonzero(flat[1:] != flat[:-1]) + 1])
    lengths = np.diff(starts, append=len(flat))
    run_labels = flat[starts].astype(np.int64)
    is_class = (run_labels >= 0) & (run_labels < n_classes) & (run_labels != ignore_index)
    is_foreign = ~is_class & (run_labels != ignore_index)
    foreign = int(run_labels[is_foreign][0]) if is_foreign.any() else 0, int(lengths[is_foreign].sum())
    starts, lengths, run_labels = starts[is_class], lengths[is_class], run_labels[is_class]

    by_class = np.argsort(run_labels.astype(np.min_scalar_type(n_classes)), kind='stable')
    starts, lengths, run_labels = starts[by_class], lengths[by_class], run_labels[by_class]
    counts = np.bincount(run_labels, lengths).astype(np.int64)
    classes = np.flatnonzero(counts)
    counts = counts[classes]

    # Positions in the concatenated pixels of all classes; the run of a position gives its place in the image.
    ends = np.cumsum(lengths)
    positions = (np.cumsum(counts) - counts)[:, None] + _spread(counts, n_places)
    run = np.searchsorted(ends, positions, side='right')
    pixels = starts[run] + positions - (ends - lengths)[run]
    y, x = np.divmod(pixels, labels.shape[1])
    places = np.stack([(y + 0.5) / labels.shape[0], (x + 0.5) / labels.shape[1]], -1)
    return ImageClasses(classes, counts, len(flat), places, foreign)


def _spread(counts: np.ndarray, n: int) -> np.ndarray:
    """Return the middles of ``n`` equal parts of the range of each count, integers [K, n]."""
    return (counts[:, None] * (2 * np.arange(n) + 1)) // (2 * n)


def _simple(value: Any) -> str:
    """Return a value as text that is the same in every process; objects are represented by their type."""
    return json.dumps(value, default=lambda thing: type(thing).__qualname__, sort_keys=True, skipkeys=True)


def _hash(parts: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part.encode(errors='surrogateescape') + b'\0')  # A file name may hold a line break.
    return digest.hexdigest()

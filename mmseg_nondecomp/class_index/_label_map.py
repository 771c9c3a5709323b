"""Count the classes of a label map in one pass over its pixels."""

from __future__ import annotations

import numpy as np

from ._index import ImageClasses


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
    foreign = run_labels[~is_class & (run_labels != ignore_index)]
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
    return ImageClasses(classes, counts, len(flat), places, int(foreign[0]) if len(foreign) else None)


def _spread(counts: np.ndarray, n: int) -> np.ndarray:
    """Return the middles of ``n`` equal parts of the range of each count, integers [K, n]."""
    return (counts[:, None] * (2 * np.arange(n) + 1)) // (2 * n)

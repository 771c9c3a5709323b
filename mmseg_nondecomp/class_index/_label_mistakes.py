"""Mistakes in label maps that the numbers of their pixels show. Each function returns the text of one, or None."""

from collections.abc import Sequence

import numpy as np

from ._index import ClassIndex


def foreign_labels(index: ClassIndex, files: Sequence[str] | None = None) -> str | None:
    """Find labels that are neither a class nor ignored, and name the first of the label maps ``files``."""
    if index.foreign is None or not index.foreign[:, 1].any():
        return None
    images = np.flatnonzero(index.foreign[:, 1])
    label = int(index.foreign[images[0], 0])
    where = f' of {files[images[0]]!r}' if files is not None else ''
    pixels = int(index.foreign[:, 1].sum())
    return (
        f'Label {label}{where} is none of the {index.n_classes} classes and is not ignored. Pixels '
        f'with such labels: {pixels}, in {len(images)} of {len(index)} images. They count for no class here; most '
        'losses fail on them.'
    )


def saved_with_255(index: ClassIndex) -> str | None:
    """Find the label maps of one object that have 255, the ignored label, in place of 1."""
    if index.n_classes != 2 or len(index.present_classes) != 1 or not index.places.shape[1]:
        return None
    n_foreign = 0 if index.foreign is None else int(index.foreign[:, 1].sum())
    n_ignored = int(index.n_items.sum()) - int(index.items_per_class.sum()) - n_foreign
    if not n_ignored:
        return None
    present = int(index.present_classes[0])
    return (
        f'No pixel is of class {index.class_names[1 - present]!r}, and {n_ignored} pixels are ignored: the label maps '
        f'have labels {present} and 255 only. Are they masks saved with 255 for the object? Label 255 is ignored; save '
        'the masks with 0 and 1.'
    )

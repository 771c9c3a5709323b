"""The classes that each image of a data set holds, how many pixels of each, and where."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

MAX_CLASSES = 1 << 16

PLACE = 1 << 16
"""Places are stored as shares of the image's height and width, in units of 1 / PLACE."""


@dataclass(frozen=True)
class ImageClasses:
    """The classes of one image."""

    classes: np.ndarray  # integers [K]
    counts: np.ndarray  # of pixels (or objects) of each class, integers [K]
    n_items: int  # all pixels (or objects) of the image, including those without a class
    places: np.ndarray | None = None  # some pixels (y, x) of each class in units of height and width, floats [K, S, 2]
    foreign: tuple[int, int] = (0, 0)  # a label that is neither a class nor ignored, and the pixels with such labels


@dataclass(frozen=True, eq=False)
class ClassIndex:
    """The classes of every image of a data set.

    A row is an image. Row ``i`` has the entries ``starts[i]:starts[i + 1]`` of ``classes``, ``counts`` and ``places``.
    """

    class_names: tuple[str, ...]
    starts: np.ndarray
    """int64 [N + 1]"""
    classes: np.ndarray
    """uint16 [E]"""
    counts: np.ndarray
    """Number of pixels (or objects) of a class in an image, uint32 [E]."""
    n_items: np.ndarray
    """Number of pixels (or objects) of an image, including those without a class, uint32 [N]."""
    places: np.ndarray
    """Some places of a class in an image as (y, x), in units of 1 / PLACE of height and width; uint16 [E, S, 2]."""
    dataset_indices: np.ndarray
    """The index of each row's image in the data set, int64 [N]."""
    foreign: np.ndarray | None = None
    """A label in an image that is neither a class nor ignored, and the number of pixels with such labels, int64 [N, 2].
    None in the files of earlier versions, which did not count them."""

    @classmethod
    def from_images(cls, images: Iterable[ImageClasses], class_names: Sequence[str], n_places: int) -> ClassIndex:
        """Return the index of images in the order of the data set."""
        if len(class_names) > MAX_CLASSES:
            raise ValueError(f'A class index can hold {MAX_CLASSES} classes. Found {len(class_names)}.')
        images = list(images)
        none = np.zeros((0, n_places, 2))
        places = [none if image.places is None else image.places for image in images]
        return cls(
            class_names=tuple(class_names),
            starts=np.cumsum([0, *(len(image.classes) for image in images)], dtype=np.int64),
            classes=_joined([image.classes for image in images], np.uint16),
            counts=_joined([image.counts for image in images], np.uint32),
            n_items=np.array([image.n_items for image in images], np.uint32),
            places=(np.concatenate([none, *places]) * PLACE).astype(np.uint16),
            dataset_indices=np.arange(len(images)),
            foreign=np.array([image.foreign for image in images], np.int64).reshape(-1, 2),
        )

    @classmethod
    def joined(cls, parts: Sequence[tuple[ClassIndex, int, int]]) -> ClassIndex:
        """Return one index of several: each with its number of repetitions and the position of its first image."""
        sizes = {index.n_classes for index, _, _ in parts}
        if len(sizes) > 1:
            raise ValueError(f'Data sets should have the same classes to be one. Found {sorted(sizes)} classes.')
        indices = [index for index, times, _ in parts for _ in range(times)]
        lengths = np.concatenate([np.diff(index.starts) for index in indices])
        foreign = [index.foreign for index in indices if index.foreign is not None]
        return cls(
            class_names=indices[0].class_names,
            starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            dataset_indices=np.concatenate(
                [index.dataset_indices + first for index, times, first in parts for _ in range(times)]
            ),
            **{
                name: np.concatenate([getattr(index, name) for index in indices])
                for name in ('classes', 'counts', 'n_items', 'places')
            },
            foreign=np.concatenate(foreign) if len(foreign) == len(indices) else None,
        )

    def __len__(self) -> int:
        return len(self.n_items)

    @property
    def n_classes(self) -> int:
        """Return the number of classes."""
        return len(self.class_names)

    @cached_property
    def items_per_class(self) -> np.ndarray:
        """Return the number of pixels (or objects) of each class, float64 [C]."""
        return np.bincount(self.classes, self.counts, self.n_classes)

    @cached_property
    def images_per_class(self) -> np.ndarray:
        """Return the number of images that hold each class, int64 [C]."""
        return np.bincount(self.classes, minlength=self.n_classes)

    @property
    def present_classes(self) -> np.ndarray:
        """Return the classes that at least one image holds, int64."""
        return np.flatnonzero(self.images_per_class)

    @cached_property
    def _entries_by_class(self) -> np.ndarray:
        return np.argsort(self.classes, kind='stable').astype(np.uint32)

    @cached_property
    def _class_starts(self) -> np.ndarray:
        return np.cumsum([0, *self.images_per_class])

    @cached_property
    def _row_of_entry(self) -> np.ndarray:
        return np.repeat(np.arange(len(self), dtype=np.uint32), np.diff(self.starts))

    def entries_of(self, cls: int) -> np.ndarray:
        """Return the entries of a class, one for each image that holds it."""
        return self._entries_by_class[self._class_starts[cls] : self._class_starts[cls + 1]]

    def images_of(self, cls: int) -> np.ndarray:
        """Return the images that hold a class, as indices of the data set."""
        return self.dataset_indices[self._row_of_entry[self.entries_of(cls)]]

    def image_of(self, entry: int) -> int:
        """Return the image of an entry, as an index of the data set."""
        return int(self.dataset_indices[self._row_of_entry[entry]])

    def place_of(self, entry: int, number: int) -> tuple[float, float] | None:
        """Return one of the places of an entry: (y, x), each from 0 to 1. None if no places are known."""
        n_places = self.places.shape[1]
        if not n_places:
            return None
        y, x = (self.places[entry, number % n_places] + 0.5) / PLACE
        return float(y), float(x)

    def save(self, file: BinaryIO | Path) -> None:
        """Write the index in NumPy's format, with a checksum for each array."""
        names = np.frombuffer(json.dumps(self.class_names).encode(), np.uint8)
        np.savez(file, class_names=names, **self._arrays())

    @classmethod
    def load(cls, file: BinaryIO | Path) -> ClassIndex:
        """Read an index that `save` wrote."""
        with np.load(file, allow_pickle=False) as arrays:
            if any(member.compress_type for member in arrays.zip.infolist()):  # It could decompress to any size.
                raise ValueError('The arrays of a class index should not be compressed.')
            if damaged := arrays.zip.testzip():  # NumPy does not check the checksum of an array that it reads in part.
                raise zipfile.BadZipFile(f'The checksum of {damaged} should be that of its content.')
            names = json.loads(bytes(arrays['class_names']))
            known = {name: arrays[name] for name in _ARRAYS if name != 'foreign' or name in arrays}
            index = cls(class_names=tuple(names), **known)
        index._check()
        return index

    def _arrays(self) -> dict[str, Any]:
        """Return the arrays that are in the file."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return {name: array for name, array in arrays.items() if array is not None}

    def _check(self) -> None:
        n, e = len(self.n_items), len(self.classes)
        arrays = self._arrays()
        shapes = {name: array.shape for name, array in arrays.items()}
        expected = dict(starts=(n + 1,), classes=(e,), counts=(e,), n_items=(n,), dataset_indices=(n,), foreign=(n, 2))
        expected['places'] = (e, *self.places.shape[1:2], 2)
        if any(shape != expected[name] for name, shape in shapes.items()):
            raise ValueError(f'The arrays of a class index should fit together. Found {shapes}.')
        dtypes = {name: array.dtype for name, array in arrays.items()}
        if any(dtype != _ARRAYS[name] for name, dtype in dtypes.items()):
            raise ValueError(f'The arrays of a class index should have types {_ARRAYS}. Found {dtypes}.')
        # Compared, not subtracted: a difference may overflow.
        ordered = self.starts[0] == 0 and self.starts[-1] == e and (self.starts[1:] >= self.starts[:-1]).all()
        if not ordered or (e and self.classes.max() >= self.n_classes) or (self.dataset_indices < 0).any():
            raise ValueError('The entries of a class index should belong to its images and classes.')
        if not all(isinstance(name, str) for name in self.class_names):
            raise ValueError('The classes of a class index should have names.')


_CODES = dict(starts='i8', classes='u2', counts='u4', n_items='u4', places='u2', dataset_indices='i8', foreign='i8')
_ARRAYS = {name: np.dtype(code) for name, code in _CODES.items()}


def _joined(arrays: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *arrays]).astype(dtype)

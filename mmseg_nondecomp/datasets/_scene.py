"""One scene of `LongTailShapes`, drawn in NumPy from a seed.

The same arguments give the same bytes on every machine: each scene has its own generator, only uniform variates are
drawn from it (NumPy keeps their stream stable), and the arithmetic is elementwise.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._catalogue import CLASSES, FAMILIES, GROUNDS, THINGS, Thing
from ._shapes import Mask, Plane, disk, grow, rotated_frame, shape_mask, uniform, with_noise

IGNORE_INDEX = 255
SPLITS = ('train', 'val', 'test')


class Scene(NamedTuple):
    """An image and the classes of its pixels."""

    image: NDArray[np.uint8]
    """RGB, shape `[size, size, 3]`."""
    label: NDArray[np.uint8]
    """Indices into `CLASSES`, or 255; shape `[size, size]`."""


def draw_scene(seed: int, split: str, index: int, size: int = 128) -> Scene:
    """Draw a scene of one of `SPLITS`, which never share a random stream; ``size`` pixels high and wide.

    The steps are grounds, objects from large to small (with exceptions, hence occlusions), a few void patches, and
    blur, light and noise. The outlines of large objects and the void patches are labelled 255.
    """
    rng = np.random.Generator(np.random.PCG64([seed, SPLITS.index(split), index]))
    canvas, label = _draw_grounds(rng, size)
    scale = size / 128
    for thing, radius in _pick_things(rng):
        _draw_thing(rng, canvas, label, thing, radius * scale)
    _draw_voids(rng, canvas, label, scale)
    return Scene(_photograph(rng, canvas), label)


def _count(rng: np.random.Generator, rate: float) -> int:
    """Draw an integer with mean `rate`, one of the two nearest to it."""
    return int(rate + rng.random())


def _smooth_field(rng: np.random.Generator, size: int, cells: int) -> Plane:
    """Draw a surface with values in [-1, 1], bilinear between `cells + 1` knots a side."""
    knots = 2 * rng.random((cells + 1, cells + 1)) - 1
    place = np.arange(size) * (cells / size)
    left = place.astype(np.int64)
    share = place - left
    columns = knots[:, left] * (1 - share) + knots[:, left + 1] * share
    return columns[left] * (1 - share[:, None]) + columns[left + 1] * share[:, None]


def _draw_grounds(rng: np.random.Generator, size: int) -> tuple[Plane, NDArray[np.uint8]]:
    """Split the plane into a few bent regions and give a texture to each."""
    bent = [size * 0.12 * _smooth_field(rng, size, 4) for _ in range(2)]
    steps = np.arange(size, dtype=np.float64)
    x, y = steps[None, :] + bent[0], steps[:, None] + bent[1]
    sites = size * rng.random((3 + _count(rng, 1.0), 2))
    owner = np.argmin([(x - sx) ** 2 + (y - sy) ** 2 for sx, sy in sites], axis=0)

    canvas = np.empty((size, size, 3))
    label = np.empty((size, size), dtype=np.uint8)
    bounds = np.cumsum([ground.weight for ground in GROUNDS])
    for site in range(len(sites)):
        region = owner == site
        kind = int(np.searchsorted(bounds, rng.random() * bounds[-1], side='right'))
        canvas[region] = _texture(rng, size, GROUNDS[kind].name)[region]
        label[region] = kind
    return canvas, label


def _texture(rng: np.random.Generator, size: int, name: str) -> Plane:
    """Draw the colours of a ground: two tones of one palette, mixed by the pattern of the ground."""
    tone = np.array([128, 124, 112]) + 36 * (2 * rng.random(3) - 1)
    contrast = uniform(rng, 26, 46)
    period = uniform(rng, 6, 10) * size / 128
    u, v = rotated_frame(size, (-rng.random() * period, -rng.random() * period), uniform(rng, -12, 12))
    odd_column, odd_row = np.floor(u / period * 2) % 2, np.floor(v / period * 2) % 2
    mottle = _smooth_field(rng, size, 16)
    patterns = {'rows': odd_row, 'columns': odd_column, 'checks': abs(odd_row - odd_column)}
    mix = 2 * patterns[name] - 1 if name in patterns else np.zeros((size, size))
    return tone + (contrast * mix + 12 * mottle)[:, :, None]


def _pick_things(rng: np.random.Generator) -> list[tuple[Thing, float]]:
    """Draw the objects of a scene with their sizes, in the order in which they are painted."""
    picked = [
        (thing, radius := uniform(rng, *thing.radius), radius * uniform(rng, 0.6, 1.4))
        for thing in THINGS
        for _ in range(_count(rng, thing.rate))
    ]
    return [(thing, radius) for thing, radius, _ in sorted(picked, key=lambda entry: -entry[2])]


def _draw_thing(rng: np.random.Generator, canvas: Plane, label: NDArray[np.uint8], thing: Thing, radius: float) -> None:
    """Paint an object where it may be placed; leave it out if there is no such place."""
    size = len(label)
    center = (size * rng.random(), size * rng.random())
    if thing.home is not None:
        free = _inner(label == CLASSES.index(thing.home), margin=int(radius) + 2)
        places = np.flatnonzero(free)
        if not len(places):
            return
        row, column = divmod(int(places[int(rng.random() * len(places))]), size)
        center = (float(column), float(row))
    degrees = thing.degrees + uniform(rng, -8, 8)
    mask = shape_mask(thing.outline, size, center, radius, degrees)
    if radius >= 6 * size / 128:
        label[grow(mask)] = IGNORE_INDEX
    label[mask] = CLASSES.index(thing.name)
    color = np.array(FAMILIES[thing.family]) + 34 * (2 * rng.random(3) - 1)
    shade = 14 * _smooth_field(rng, size, 4)
    if thing.hatched:
        u, _ = rotated_frame(size, center, degrees + 45)
        shade += 24 * (2 * (np.floor(u / (2.5 * size / 128)) % 2) - 1)
    canvas[mask] = (color + shade[:, :, None])[mask]


def _inner(mask: Mask, margin: int) -> Mask:
    """Return the pixels of a mask that are farther than `margin` from everything outside of it."""
    outside = ~mask
    for _ in range(margin):
        outside = grow(outside)
    return ~outside


def _draw_voids(rng: np.random.Generator, canvas: Plane, label: NDArray[np.uint8], scale: float) -> None:
    """Cover some spots with coarse static that carries no class."""
    size = len(label)
    for _ in range(_count(rng, 0.4)):
        center = (size * rng.random(), size * rng.random())
        mask = shape_mask(disk, size, center, uniform(rng, 5, 10) * scale, 0)
        static = np.repeat(np.repeat(rng.random(((size + 1) // 2,) * 2), 2, 0), 2, 1)[:size, :size]
        canvas[mask] = 60 + 130 * static[mask][:, None]
        label[mask] = IGNORE_INDEX


def _photograph(rng: np.random.Generator, canvas: Plane) -> NDArray[np.uint8]:
    """Apply blur, uneven light and sensor noise."""
    side = uniform(rng, 0.05, 0.2)
    for axis in (0, 1):
        padded = np.pad(canvas, [(1, 1) if at == axis else (0, 0) for at in range(3)], mode='edge')
        before, after = (padded[:-2], padded[2:]) if axis == 0 else (padded[:, :-2], padded[:, 2:])
        canvas = (1 - 2 * side) * canvas + side * (before + after)
    slopes = 0.4 * rng.random(2) - 0.2
    return with_noise(rng, canvas, np.linspace(-1, 1, len(canvas)), slopes.tolist(), lambda: uniform(rng, 10, 24))

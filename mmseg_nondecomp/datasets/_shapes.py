"""Outlines of flat shapes, rasterised exactly.

A shape is a predicate on the plane: it is true for the points `(u, v)` of its own frame, in units of its radius, that
are inside. Pixels are tested at their centres: a mask has no anti-aliasing and does not depend on a drawing library.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Plane = NDArray[np.float64]
Outline = Callable[[Plane, Plane], Mask]


def disk(u: Plane, v: Plane) -> Mask:
    """Test for a disk of radius 1."""
    return u * u + v * v <= 1.0


def ring(u: Plane, v: Plane) -> Mask:
    """Test for a disk of radius 1 with a hole."""
    squared = u * u + v * v
    return (squared <= 1.0) & (squared >= 0.36)


def square(u: Plane, v: Plane) -> Mask:
    """Test for an upright square of half-side 0.85."""
    return (abs(u) <= 0.85) & (abs(v) <= 0.85)


def triangle(u: Plane, v: Plane) -> Mask:
    """Test for a triangle that points up (towards negative `v`)."""
    return (v <= 0.6) & (abs(u) <= 0.62 * (v + 1.0))


def chevron(u: Plane, v: Plane) -> Mask:
    """Test for a triangle without the same triangle moved down: two thin arms that meet at the top."""
    return triangle(u, v) & ~triangle(u, v - 0.7)


def cross(u: Plane, v: Plane) -> Mask:
    """Test for an upright cross with arms of width 0.4."""
    return ((abs(u) <= 0.2) & (abs(v) <= 1.0)) | ((abs(v) <= 0.2) & (abs(u) <= 1.0))


def bar(u: Plane, v: Plane) -> Mask:
    """Test for a thin bar along the `u` axis."""
    return (abs(u) <= 1.0) & (abs(v) <= 0.2)


def shape_mask(outline: Outline, size: int, center: tuple[float, float], radius: float, degrees: float) -> Mask:
    """Rasterise a shape on a `size` by `size` image, turned clockwise; `radius` is the unit of its frame in pixels.

    Example:
        >>> int(shape_mask(disk, 5, center=(2, 2), radius=1, degrees=0).sum())
        5
    """
    u, v = rotated_frame(size, center, degrees)
    return outline(u / radius, v / radius)


def rotated_frame(size: int, center: tuple[float, float], degrees: float) -> tuple[Plane, Plane]:
    """Return the coordinates of every pixel in a frame moved to `center` and turned by `degrees`."""
    # Rounded: the result does not depend on the last bit of a platform's sine.
    cos = round(math.cos(math.radians(degrees)), 6)
    sin = round(math.sin(math.radians(degrees)), 6)
    steps = np.arange(size, dtype=np.float64)
    x, y = steps[None, :] - center[0], steps[:, None] - center[1]
    return cos * x + sin * y, cos * y - sin * x


def grow(mask: Mask) -> Mask:
    """Return the mask and its four-neighbours."""
    grown = mask.copy()
    grown[1:] |= mask[:-1]
    grown[:-1] |= mask[1:]
    grown[:, 1:] |= mask[:, :-1]
    grown[:, :-1] |= mask[:, 1:]
    return grown


def uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """Draw a number from a range."""
    return low + (high - low) * rng.random()


def with_noise(
    rng: np.random.Generator, canvas: Plane, ramp: Plane, slopes: Sequence[float], strength: Callable[[], float]
) -> NDArray[np.uint8]:
    """Return the image of a canvas with sensor noise, in light that changes along both axes as the ramp does."""
    light = 1 + slopes[0] * ramp[None, :] + slopes[1] * ramp[:, None]
    # A sum of three uniform variates is close to normal and needs no function that differs between platforms.
    noise = rng.random(canvas.shape) + rng.random(canvas.shape) + rng.random(canvas.shape)
    noisy = canvas * light[:, :, None] + strength() * (noise - 1.5)
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)

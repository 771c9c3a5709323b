"""Classes of `LongTailShapes` with their frequencies and sizes.

Classes are listed from frequent to rare. Pairs of one frequent and one rare class have the same colours and differ only
in shape (disk, ring), texture (square, crate), orientation (cross, saltire) or the ground below (bead, pearl). Three of
the four grounds also have the same colours and differ only in texture.
"""

from dataclasses import dataclass

from ._shapes import Outline, bar, chevron, cross, disk, ring, square, triangle

Color = tuple[int, int, int]


@dataclass(frozen=True)
class Ground:
    """A texture that covers whole regions of a scene."""

    name: str
    display: Color
    weight: float  # Share of the regions, relative to the other grounds


@dataclass(frozen=True)
class Thing:
    """A kind of object."""

    name: str
    display: Color
    outline: Outline
    degrees: float  # Mean orientation of the objects
    radius: tuple[float, float]  # Range of sizes, in pixels of a scene of 128 by 128
    rate: float  # Expected number of objects in a scene
    family: str  # Kinds of one family have the same distribution of colours
    hatched: bool = False  # Whether fine lines cross the object; its mean colour does not change
    home: str | None = None  # The only ground on which objects of this kind are placed


FAMILIES: dict[str, Color] = {
    'amber': (226, 148, 62),
    'blue': (72, 122, 190),
    'green': (84, 158, 92),
    'red': (200, 74, 84),
    'ivory': (228, 220, 186),
    'ink': (46, 42, 66),
}

GROUNDS: tuple[Ground, ...] = (
    Ground('plain', (196, 196, 188), 0.47),
    Ground('rows', (139, 148, 160), 0.25),
    Ground('columns', (92, 102, 120), 0.17),
    Ground('checks', (150, 128, 108), 0.11),
)

THINGS: tuple[Thing, ...] = (
    Thing('disk', (255, 170, 60), disk, 0, (9, 18), 2.1, 'amber'),
    Thing('square', (50, 110, 220), square, 0, (9, 17), 1.7, 'blue'),
    Thing('ring', (205, 90, 10), ring, 0, (9, 17), 1.6, 'amber'),
    Thing('triangle', (60, 190, 90), triangle, 0, (8, 15), 1.9, 'green'),
    Thing('crate', (90, 200, 255), square, 0, (8, 14), 0.8, 'blue', hatched=True),
    Thing('cross', (235, 60, 90), cross, 0, (8, 14), 1.2, 'red'),
    Thing('chevron', (170, 235, 60), chevron, 0, (9, 14), 1.0, 'green'),
    Thing('saltire', (255, 150, 190), cross, 45, (8, 13), 0.6, 'red'),
    Thing('bar', (255, 240, 90), bar, 0, (8, 15), 0.7, 'ivory'),
    Thing('pole', (160, 130, 20), bar, 90, (7, 13), 0.45, 'ivory'),
    Thing('bead', (150, 40, 200), disk, 0, (2, 3.2), 0.9, 'ink', home='rows'),
    Thing('pearl', (255, 30, 255), disk, 0, (2, 3.2), 0.5, 'ink', home='columns'),
)

KINDS: tuple[Ground | Thing, ...] = (*GROUNDS, *THINGS)
CLASSES: tuple[str, ...] = tuple(kind.name for kind in KINDS)
PALETTE: tuple[Color, ...] = tuple(kind.display for kind in KINDS)
LOOK_ALIKES: tuple[tuple[str, str], ...] = (
    ('rows', 'columns'),
    ('disk', 'ring'),
    ('square', 'crate'),
    ('triangle', 'chevron'),
    ('cross', 'saltire'),
    ('bar', 'pole'),
    ('bead', 'pearl'),
)

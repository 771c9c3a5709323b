"""A small folder VOC2012 of people who do things, laid out as the official one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from mmseg_nondecomp.datasets.voc_actions import ACTIONS

HEIGHT, WIDTH = 60, 100


class Drawn(NamedTuple):
    image: str
    number: int
    """Among the objects of the image, of which the first is a horse."""
    box: tuple[int, int, int, int]
    """First and last pixel of each axis, from 1: xmin, ymin, xmax, ymax."""
    actions: frozenset[str]


def write_voc(root: Path, people: tuple[int, ...], actions: tuple[str, ...] = ACTIONS, seed: int = 0) -> list[Drawn]:
    """Write images with as many people as given, each of whom does one of the actions, two of them, or none."""
    rng = np.random.default_rng(seed)
    drawn: list[Drawn] = []
    for folder in ('ImageSets/Action', 'Annotations', 'JPEGImages'):
        (root / folder).mkdir(parents=True)
    for index, count in enumerate(people):
        name = f'2011_{index:06d}'
        image = rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
        here = []
        for number in range(2, count + 2):
            x, y = (int(rng.integers(1, size - 30)) for size in (WIDTH, HEIGHT))
            box = (x, y, x + int(rng.integers(5, 31)), y + int(rng.integers(5, 31)))
            done = frozenset(rng.choice(actions, min(int(rng.integers(3)), len(actions)), replace=False).tolist())
            here.append(Drawn(name, number, box, done))
        (root / 'Annotations' / f'{name}.xml').write_text(_annotation(here))
        cv2.imwrite(str(root / 'JPEGImages' / f'{name}.jpg'), image)
        drawn += here
    for action in ACTIONS:
        write_list(root, action, {(each.image, each.number): 1 if action in each.actions else -1 for each in drawn})
    return drawn


def write_list(root: Path, action: str, labels: dict[tuple[str, int], int]) -> None:
    """Write who does an action, as the official lists do."""
    lines = [f'{image} {number} {label:2d}\n' for (image, number), label in labels.items()]
    (root / 'ImageSets' / 'Action' / f'{action}_trainval.txt').write_text(''.join(lines))


def _annotation(people: list[Drawn]) -> str:
    objects = [f'<object><name>horse</name>{_box((1, 1, 9, 9))}</object>']
    for person in people:
        flags = ''.join(f'<{action}>{int(action in person.actions)}</{action}>' for action in ACTIONS)
        other = f'<other>{int(not person.actions)}</other>'
        head = f'<part><name>head</name>{_box((2, 2, 4, 4))}</part>'
        box = _box(person.box)
        objects.append(f'<object><name>person</name><actions>{flags}{other}</actions>{head}{box}</object>')
    return f'<annotation>{"".join(objects)}</annotation>'


def _box(box: tuple[int, int, int, int]) -> str:
    sides = zip(('xmax', 'xmin', 'ymax', 'ymin'), (box[2], box[0], box[3], box[1]), strict=True)
    # Some of the official annotations have fractions.
    return f'<bndbox>{"".join(f"<{side}>{at:.1f}</{side}>" for side, at in sides)}</bndbox>'

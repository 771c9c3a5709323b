"""Scenes are deterministic and long-tailed, with look-alikes and ignored pixels."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from mmseg_nondecomp.datasets._catalogue import CLASSES, FAMILIES, GROUNDS, KINDS, LOOK_ALIKES, PALETTE, THINGS
from mmseg_nondecomp.datasets._scene import IGNORE_INDEX, Scene, draw_scene

SAMPLE = 160


@pytest.fixture(scope='module')
def scenes() -> list[Scene]:
    return [draw_scene(0, 'train', index) for index in range(SAMPLE)]


@pytest.fixture(scope='module')
def shares(scenes: list[Scene]) -> np.ndarray:
    """Share of each label among all pixels; entry 255 is the ignored part."""
    counts = sum(np.bincount(scene.label.ravel(), minlength=256) for scene in scenes)
    return counts / counts.sum()


def test_classes_have_names_and_colours_of_their_own_and_rare_objects_are_small():
    assert len(set(CLASSES)) == len(CLASSES) == len(KINDS) >= 12
    assert len(set(PALETTE)) == len(CLASSES)
    rarest = sorted(THINGS, key=lambda thing: CLASSES.index(thing.name))[-2:]
    assert all(thing.radius[1] < 4 for thing in rarest)


def test_look_alike_things_share_their_colours_and_differ_in_something_else():
    things = {thing.name: thing for thing in THINGS}
    for frequent, rare in LOOK_ALIKES:
        assert CLASSES.index(frequent) < CLASSES.index(rare)
        if frequent in things:
            first, second = things[frequent], things[rare]
            assert first.family == second.family
            assert first.family in FAMILIES
            looks = [(thing.outline, thing.degrees, thing.hatched, thing.home) for thing in (first, second)]
            assert looks[0] != looks[1]


def test_scene_is_an_rgb_image_with_one_label_per_pixel():
    image, label = draw_scene(0, 'val', 0, size=40)
    assert image.shape == (40, 40, 3)
    assert label.shape == (40, 40)
    assert image.dtype == label.dtype == np.uint8
    assert set(np.unique(label)) <= {*range(len(CLASSES)), IGNORE_INDEX}


def test_pixels_are_those_of_this_version():
    """When this fails, the drawing has changed: raise `VERSION` in long_tail_shapes.py and renew the digest."""
    image, label = draw_scene(0, 'train', 5)
    assert hashlib.sha256(label.tobytes()).hexdigest()[:16] == '1a762055903f186a'
    assert hashlib.sha256(image.tobytes()).hexdigest()[:16] == '26e2afc628702c0a'


def test_seeds_splits_and_indices_share_no_scene():
    scenes = [
        draw_scene(seed, split, index, 32).image.tobytes()
        for seed, split in ((0, 'train'), (0, 'val'), (0, 'test'), (1, 'train'))
        for index in range(40)
    ]
    assert len(set(scenes)) == 4 * 40


def test_shares_follow_a_long_tail_in_the_order_of_the_classes(shares: np.ndarray):
    valid = shares[: len(CLASSES)] / shares[: len(CLASSES)].sum()
    assert (np.diff(valid) < 0).all()
    assert 0.88 <= valid[:6].sum() <= 0.92
    assert 0 < valid[-1] <= 0.001


def test_some_pixels_are_ignored(scenes: list[Scene], shares: np.ndarray):
    assert 0.02 <= shares[IGNORE_INDEX] <= 0.055
    assert all((scene.label != IGNORE_INDEX).any() for scene in scenes)


@pytest.mark.parametrize('pair', LOOK_ALIKES, ids='-'.join)
def test_color_does_not_tell_look_alikes_apart(scenes: list[Scene], pair: tuple[str, str]):
    """Objects' mean colours differ by less between the kinds of a pair than they vary within a kind."""
    means = [_mean_colors(scenes, name) for name in pair]
    spread = np.sqrt(sum(colors.var(axis=0) for colors in means) / 2)
    error = spread * np.sqrt(sum(1 / len(colors) for colors in means))
    gap = abs(means[0].mean(axis=0) - means[1].mean(axis=0))
    assert (gap < 0.25 * spread + 3 * error).all()


def test_families_differ_in_colour(scenes: list[Scene]):
    disk, square = _mean_colors(scenes, 'disk'), _mean_colors(scenes, 'square')
    assert (abs(disk.mean(axis=0) - square.mean(axis=0)) > 60).any()


@pytest.mark.parametrize('thing', [thing for thing in THINGS if thing.home], ids=lambda t: t.name)
def test_homebound_objects_stand_on_their_ground(scenes: list[Scene], thing):
    grounds = {CLASSES.index(ground.name) for ground in GROUNDS}
    around: list[int] = []
    for scene in scenes:
        own = scene.label == CLASSES.index(thing.name)
        near = np.zeros_like(own)
        near[1:] |= own[:-1]
        near[:-1] |= own[1:]
        around += [label for label in scene.label[near & ~own] if label in grounds]
    assert around
    assert set(around) == {CLASSES.index(thing.home)}


def _mean_colors(scenes: list[Scene], name: str) -> np.ndarray:
    """The mean colour of a class in each scene that shows enough of it to average the noise away."""
    masks = [(scene.image, scene.label == CLASSES.index(name)) for scene in scenes]
    return np.array([image[mask].mean(axis=0) for image, mask in masks if mask.sum() >= 8])

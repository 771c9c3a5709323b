"""Killed while it counts classes or draws scenes: the next start finds what is right, or makes it again."""

import os
import random
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hard_use.hindrances import N_IMAGES, counted, die, killed, scenes, then_die

from mmseg_nondecomp.class_index import ClassIndex, _annotations, index_classes
from mmseg_nondecomp.datasets import long_tail_shapes

N_RANDOM = 100


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    return scenes(tmp_path_factory.mktemp('scenes'))


@pytest.fixture(scope='module')
def right(dataset, tmp_path_factory):
    return index_classes(dataset, tmp_path_factory.mktemp('right'))


def same(first, second):
    names = 'starts', 'classes', 'counts', 'n_items', 'places', 'dataset_indices'
    return first.class_names == second.class_names and all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in names
    )


def content(root):
    files = (path for path in Path(root).rglob('*') if path.is_file() and path.suffix != '.lock')
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def half(self, stream):
    """Write half of an index to the disk and kill the process."""
    with tempfile.TemporaryFile() as whole:
        save(self, whole)
        whole.seek(0)
        stream.write(whole.read()[: whole.tell() // 2 or 400])
    stream.flush()
    die()


save = ClassIndex.save

WHILE_COUNTING = {
    'a label map is read': (_annotations, 'classes_of_label_map', die),
    'the file is made': (tempfile, 'mkstemp', then_die(tempfile.mkstemp)),
    'half of it is written': (ClassIndex, 'save', half),
    'it is about to get its name': (os, 'replace', die),
    'it has its name': (os, 'replace', then_die(os.replace)),
}


@pytest.mark.parametrize('moment', WHILE_COUNTING)
def test_killed_while_classes_are_counted(dataset, right, tmp_path, monkeypatch, capfd, moment):
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(*WHILE_COUNTING[moment])
            index_is_there = any(tmp_path.glob('*.npz'))
            assert killed(lambda: index_classes(dataset, tmp_path)) != index_is_there
    assert len(list(tmp_path.iterdir())) <= 3, 'what the killed left piles up'
    assert same(index_classes(dataset, tmp_path), right)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ['.lock', '.npz']
    assert 'damaged' not in capfd.readouterr().err


def test_killed_at_random_while_classes_are_counted(dataset, right, tmp_path, capfd):
    draw = random.Random(0)
    n_calls = counted(lambda: index_classes(dataset, tmp_path / 'whole'))
    for trial in range(N_RANDOM):
        folder = tmp_path / str(trial)
        assert killed(lambda folder=folder: index_classes(dataset, folder), draw.randint(1, n_calls))
        assert same(index_classes(dataset, folder), right)
        assert sorted(path.suffix for path in folder.iterdir()) == ['.lock', '.npz']
    assert 'damaged' not in capfd.readouterr().err


def part_of_picture(path, pixels):
    path.write_bytes(b'\x89PNG')
    die()


WHILE_DRAWING = {
    'the folder is made': (tempfile, 'mkdtemp', then_die(tempfile.mkdtemp)),
    'the first picture is written': (long_tail_shapes, '_write_png', part_of_picture),
    'it is about to get its name': (os, 'rename', die),
    'it has its name': (os, 'rename', then_die(os.rename)),
}


@pytest.mark.parametrize('moment', WHILE_DRAWING)
@pytest.mark.parametrize('before', ['nothing', 'a damaged folder'])
def test_killed_while_scenes_are_drawn(dataset, tmp_path, monkeypatch, moment, before):
    if before == 'a damaged folder':
        shutil.copytree(dataset.folder, tmp_path / dataset.folder.name)
        next((tmp_path / dataset.folder.name).glob('img_dir/*')).unlink()
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(*WHILE_DRAWING[moment])
            killed(lambda: scenes(tmp_path))
    assert len(list(tmp_path.glob('.building-*'))) <= 1, 'what the killed left piles up'
    assert len(scenes(tmp_path)) == N_IMAGES
    assert content(tmp_path / dataset.folder.name) == content(dataset.folder)


def test_killed_at_random_while_scenes_are_drawn(dataset, tmp_path):
    draw = random.Random(0)
    n_calls = counted(lambda: scenes(tmp_path / 'whole'))
    for trial in range(N_RANDOM // 4):
        root = tmp_path / str(trial)
        assert killed(lambda root=root: scenes(root), draw.randint(1, n_calls))
        was_there = (root / dataset.folder.name).exists()
        scenes(root)
        assert content(root / dataset.folder.name) == content(dataset.folder)
        assert was_there or not list(root.glob('.building-*'))

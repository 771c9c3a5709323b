import errno
import fcntl
import io
import os
from pathlib import Path

import numpy as np
import pytest
from class_index.test_class_index import MAPS, index_of, same

from mmseg_nondecomp.class_index._cache import default_cache_dir, load_or_build

INDEX = index_of(MAPS)


class Builder:
    calls = 0

    def __call__(self):
        self.calls += 1
        return INDEX


@pytest.fixture
def build():
    return Builder()


def the_file(folder):
    (file,) = folder.glob('*.npz')
    return file


def test_built_once(tmp_path, build, capsys):
    folder = tmp_path / 'a' / 'b'
    for _ in range(3):
        assert same(load_or_build(folder, 'mine', 'now', build), INDEX)
    assert build.calls == 1
    assert capsys.readouterr().err == ''
    assert sorted(file.suffix for file in folder.iterdir()) == ['.lock', '.npz']


def test_other_annotations_and_states_have_files_of_their_own(tmp_path, build):
    """States as of two machines with copies of the data that share a home."""
    for identity, state in (('mine', 'here'), ('mine', 'there'), ('yours', 'here')) * 2:
        load_or_build(tmp_path, identity, state, build)
    assert build.calls == len(list(tmp_path.glob('*.npz'))) == 3


def other_arrays(content):
    stream = io.BytesIO()
    np.savez(stream, classes=np.zeros(3))
    return stream.getvalue()


DAMAGES = {
    'empty': lambda content: b'',
    'half': lambda content: content[: len(content) // 2],
    'flipped': lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:],
    'foreign': lambda content: b'{"classes": [1, 2, 3]}',
    'other arrays': other_arrays,
    'foreign behind the first line': lambda content: b'now\n\x80\x04something else',
}


@pytest.mark.parametrize('damage', DAMAGES.values(), ids=DAMAGES)
def test_damaged_file_is_built_anew(tmp_path, build, capsys, damage):
    load_or_build(tmp_path, 'mine', 'now', build)
    the_file(tmp_path).write_bytes(damage(the_file(tmp_path).read_bytes()))
    assert same(load_or_build(tmp_path, 'mine', 'now', build), INDEX)
    assert build.calls == 2
    message = capsys.readouterr().err
    assert message.count('\n') == 1
    assert str(the_file(tmp_path)) in message
    assert same(load_or_build(tmp_path, 'mine', 'now', build), INDEX)
    assert build.calls == 2


def test_stale_file_is_built_anew(tmp_path, build, capsys):
    load_or_build(tmp_path, 'mine', 'then', build)
    load_or_build(tmp_path, 'mine', 'now', build)
    load_or_build(tmp_path, 'mine', 'now', build)
    assert build.calls == 2
    assert capsys.readouterr().err.count('have changed') == 1


def test_error_of_the_builder_is_raised_and_leaves_no_file(tmp_path):
    def fail():
        raise OSError('label.png')

    with pytest.raises(OSError, match=r'^label\.png$'):
        load_or_build(tmp_path, 'mine', 'now', fail)
    assert not list(tmp_path.glob('*.npz'))


def test_others_may_read_it(tmp_path, build):
    mask = os.umask(0o022)
    try:
        load_or_build(tmp_path, 'mine', 'now', build)
    finally:
        os.umask(mask)
    assert the_file(tmp_path).stat().st_mode & 0o777 == 0o644


def test_without_locks(tmp_path, build, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, 'No locks available')

    monkeypatch.setattr(fcntl, 'flock', refuse)
    for _ in range(2):
        assert same(load_or_build(tmp_path, 'mine', 'now', build), INDEX)
    assert build.calls == 1


def test_default_folder(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert default_cache_dir() == tmp_path / 'mmseg_nondecomp'
    monkeypatch.delenv('XDG_CACHE_HOME')
    assert default_cache_dir() == Path.home() / '.cache' / 'mmseg_nondecomp'


def test_leftovers_of_killed_writers_are_removed(tmp_path, build):
    load_or_build(tmp_path, 'mine', 'then', build)
    file = the_file(tmp_path)
    left = file.with_name(f'.{file.stem.removesuffix("-then")}-{os.uname().nodename}-left')
    left.touch()
    load_or_build(tmp_path, 'mine', 'now', build)
    assert not left.exists()

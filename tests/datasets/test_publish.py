"""A folder appears whole or not at all, with and without file locks."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip('mmseg')

from mmseg_nondecomp import file_lock
from mmseg_nondecomp.datasets.publish import publish_folder


@pytest.fixture(params=['flock', 'no fcntl', 'flock refused'], autouse=True)
def _locking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == 'no fcntl':
        monkeypatch.setattr(file_lock, 'fcntl', None)
    if request.param == 'flock refused':
        monkeypatch.setattr(file_lock.fcntl, 'flock', _refuse)


def test_parents_are_made_and_nothing_else_is_left(tmp_path: Path):
    folder = tmp_path / 'a' / 'b'
    publish_folder(folder, _write_mine, _is_complete)
    assert (folder / 'file').read_text() == 'mine'
    assert _visible_and_temporary(folder.parent) == ['b']


def test_complete_folder_is_left_alone(tmp_path: Path):
    _write_theirs(tmp_path / 'b')
    publish_folder(tmp_path / 'b', _write_mine, _is_complete)
    assert (tmp_path / 'b' / 'file').read_text() == 'theirs'


def test_incomplete_folder_gives_way(tmp_path: Path):
    (tmp_path / 'b').mkdir()
    (tmp_path / 'b' / 'half').touch()
    publish_folder(tmp_path / 'b', _write_mine, _is_complete)
    assert [path.name for path in (tmp_path / 'b').iterdir()] == ['file']
    assert _visible_and_temporary(tmp_path) == ['b']


def test_slower_builder_discards_its_work(tmp_path: Path):
    def build_while_another_publishes(folder: Path) -> None:
        _write_mine(folder)
        _write_theirs(tmp_path / 'b')

    publish_folder(tmp_path / 'b', build_while_another_publishes, _is_complete)
    assert (tmp_path / 'b' / 'file').read_text() == 'theirs'
    assert _visible_and_temporary(tmp_path) == ['b']


def test_folder_is_not_seen_before_it_is_complete(tmp_path: Path):
    def build_and_look(folder: Path) -> None:
        _write_mine(folder)
        assert not (tmp_path / 'b').exists()

    publish_folder(tmp_path / 'b', build_and_look, _is_complete)
    assert (tmp_path / 'b').exists()


def test_error_of_the_builder_is_raised_and_nothing_is_left(tmp_path: Path):
    def fail(folder: Path) -> None:
        _write_mine(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish_folder(tmp_path / 'b', fail, _is_complete)
    assert _visible_and_temporary(tmp_path) == []


def test_parent_that_is_a_file_is_an_error(tmp_path: Path):
    (tmp_path / 'a').touch()
    with pytest.raises(OSError, match='a'):
        publish_folder(tmp_path / 'a' / 'b', _write_mine, _is_complete)


def _write_mine(folder: Path) -> None:
    (folder / 'file').write_text('mine')


def _write_theirs(folder: Path) -> None:
    folder.mkdir()
    (folder / 'file').write_text('theirs')


def _is_complete(folder: Path) -> bool:
    return (folder / 'file').exists()


def _visible_and_temporary(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if not path.name.endswith('.lock'))


def _refuse(*_: object) -> None:
    raise OSError('no locks available')

"""One process at a time."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mmseg_nondecomp import file_lock
from mmseg_nondecomp.file_lock import locked

HOLD = """
import sys, time
from pathlib import Path
from mmseg_nondecomp.file_lock import locked

with locked(Path(sys.argv[1])) as is_locked:
    print(is_locked, flush=True)
    time.sleep(100)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock."""
    environment = {**os.environ, 'PYTHONPATH': str(Path(__file__).parents[1])}
    arguments = [sys.executable, '-c', HOLD, str(tmp_path / 'lock')]
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == 'True\n'
        yield process
        process.kill()


def is_free(path):
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_is_held_inside_and_free_after(tmp_path):
    path = tmp_path / 'lock'
    with locked(path) as is_locked:
        assert is_locked
        assert not is_free(path)
    assert is_free(path)


def test_is_free_after_an_error(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path / 'lock'):
        raise KeyError
    assert is_free(tmp_path / 'lock')


def test_is_held_by_another_process_until_it_dies(tmp_path, holder):
    assert not is_free(tmp_path / 'lock')
    holder.kill()
    holder.wait(timeout=60)
    with locked(tmp_path / 'lock') as is_locked:
        assert is_locked


def test_file_systems_without_locks_are_told(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError

    monkeypatch.setattr(file_lock.fcntl, 'flock', refuse)
    with locked(tmp_path / 'lock') as is_locked:
        assert not is_locked


def test_systems_without_locks_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(file_lock, 'fcntl', None)
    with locked(tmp_path / 'lock') as is_locked:
        assert not is_locked

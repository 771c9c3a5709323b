"""Locks between processes, leftovers of killed ones, and folders that appear complete or not at all."""

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmseg_nondecomp._utils import files
from mmseg_nondecomp._utils.files import WEEK, locked, publish_folder, remove_leftovers, temporary_prefix

HOLD = """
import sys, time
from pathlib import Path
from mmseg_nondecomp._utils.files import locked

with locked(Path(sys.argv[1])) as is_locked:
    print(is_locked, flush=True)
    time.sleep(float(sys.argv[2]))
"""
NO_LOCKS = [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP]


def no_flock(monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, 'flock', refuse)


def is_free(path):
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class TestLock:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / 'lock'

    @pytest.fixture
    def hold(self, path):
        """Start another process that holds the lock for some seconds."""
        processes = []

        def start(seconds):
            environment = {**os.environ, 'PYTHONPATH': str(Path(__file__).parents[2])}
            arguments = [sys.executable, '-c', HOLD, str(path), str(seconds)]
            process = subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True)
            processes.append(process)
            assert process.stdout.readline() == 'True\n'
            return process

        yield start
        for process in processes:
            process.kill()
            process.communicate()

    def test_is_held_inside_and_free_after(self, path):
        with locked(path) as is_locked:
            assert is_locked
            assert not is_free(path)
        assert is_free(path)

    def test_is_free_after_an_error(self, path):
        with pytest.raises(KeyError), locked(path):
            raise KeyError
        assert is_free(path)

    def test_waits_for_the_holder(self, path, hold):
        process = hold(1)
        with locked(path) as is_locked:
            assert is_locked
            assert process.wait(timeout=60) == 0

    def test_is_free_after_the_holder_is_killed(self, path, hold):
        process = hold(100)
        assert not is_free(path)
        process.kill()
        process.wait(timeout=60)
        with locked(path) as is_locked:
            assert is_locked

    @pytest.mark.parametrize('number', NO_LOCKS)
    @pytest.mark.parametrize('exists', [True, False])
    def test_file_systems_without_locks(self, path, monkeypatch, number, exists):
        """Also after a holder was killed, whose lock file stays."""
        if exists:
            path.touch()
        no_flock(monkeypatch, number)
        with locked(path) as is_locked:
            assert not is_locked
        with pytest.raises(KeyError), locked(path):
            raise KeyError

    def test_an_older_filelock_without_the_option_serves(self, path, monkeypatch):
        present = files.FileLock
        monkeypatch.setattr(files, 'FileLock', lambda path: present(path))
        with locked(path) as is_locked:
            assert is_locked
            assert not is_free(path)

    def test_a_file_that_may_not_be_opened_is_an_error(self, path, monkeypatch):
        def forbidden(*_, **__):
            raise PermissionError(13, 'Permission denied')  # Root may open all files.

        monkeypatch.setattr(os, 'open', forbidden)
        with pytest.raises(PermissionError), locked(path):
            pass


class TestLeftovers:
    @pytest.fixture
    def leave(self, tmp_path):

        def make(name, seconds=0, is_folder=False):
            path = tmp_path / name
            if is_folder:
                (path / 'inside').mkdir(parents=True)
                (path / 'inside' / 'file').touch()
            else:
                path.touch()
            then = time.time() - seconds
            os.utime(path, (then, then))

        return make

    @pytest.mark.parametrize('is_folder', [False, True])
    def test_those_of_this_machine_and_old_ones_are_removed(self, tmp_path, leave, is_folder):
        leave(temporary_prefix('.work') + 'a', is_folder=is_folder)
        leave('.work-another-host-b', 2 * WEEK, is_folder)
        in_use = {'.work-another-host-c', temporary_prefix('.work') + '2-d'}
        of_others = {'.works-e', 'work-f', '.work'}
        for name in in_use | of_others:
            leave(name, WEEK / 2 if name in in_use else 2 * WEEK, is_folder)
        remove_leftovers(tmp_path, '.work')
        assert {path.name for path in tmp_path.iterdir()} == in_use | of_others

    def test_a_name_is_no_pattern(self, tmp_path, leave):
        leave(temporary_prefix('.a[bc]') + 'x')
        leave(temporary_prefix('.ab') + 'x')
        remove_leftovers(tmp_path, '.a[bc]')
        assert [path.name for path in tmp_path.iterdir()] == [temporary_prefix('.ab') + 'x']


def write(text):
    def build(folder):
        folder.mkdir(exist_ok=True)
        (folder / 'file').write_text(text)

    return build


def is_complete(folder):
    return (folder / 'file').exists()


def names(root):
    return sorted(path.name for path in root.iterdir() if not path.name.endswith('.lock'))


@pytest.mark.parametrize('locks', ['flock', *NO_LOCKS])
class TestPublishedFolder:
    @pytest.fixture(autouse=True)
    def _locks(self, locks, monkeypatch):
        if locks != 'flock':
            no_flock(monkeypatch, locks)

    @pytest.fixture
    def folder(self, tmp_path):
        return tmp_path / 'a' / 'b'

    def test_is_made_with_its_parents(self, folder):
        publish_folder(folder, write('mine'), is_complete)
        assert (folder / 'file').read_text() == 'mine'
        assert names(folder.parent) == ['b']

    def test_is_left_alone_if_complete(self, tmp_path):
        write('theirs')(tmp_path / 'b')
        publish_folder(tmp_path / 'b', write('mine'), is_complete)
        assert (tmp_path / 'b' / 'file').read_text() == 'theirs'

    def test_is_replaced_if_incomplete(self, folder):
        folder.mkdir(parents=True)
        (folder / 'half').touch()
        publish_folder(folder, write('mine'), is_complete)
        assert names(folder) == ['file']
        assert names(folder.parent) == ['b']

    def test_is_that_of_the_faster_process_and_not_there_before_it_is_complete(self, folder):
        def build_while_another_publishes(workspace):
            write('mine')(workspace)
            assert not folder.exists()
            write('theirs')(folder)

        publish_folder(folder, build_while_another_publishes, is_complete)
        assert (folder / 'file').read_text() == 'theirs'
        assert names(folder.parent) == ['b']

    def test_an_error_of_the_builder_leaves_nothing(self, folder):
        def fail(workspace):
            write('mine')(workspace)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            publish_folder(folder, fail, is_complete)
        assert names(folder.parent) == []

    def test_a_parent_that_is_a_file_is_an_error(self, tmp_path):
        (tmp_path / 'a').touch()
        with pytest.raises(OSError, match='a'):
            publish_folder(tmp_path / 'a' / 'b', write('mine'), is_complete)

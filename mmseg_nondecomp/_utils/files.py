"""Files and folders that several processes want at the same time: built once, complete or absent."""

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path

from filelock import FileLock

WEEK = 7 * 24 * 3600  # Age in seconds from which temporary files of other machines are removed


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold an exclusive lock on `path`; yield False where the file system has no locks.

    Other processes wait without a limit of time. The system releases the lock when its holder dies for any reason.
    """
    lock = _native_lock(path)
    try:
        lock.acquire()
    except PermissionError:
        raise
    except (OSError, NotImplementedError):
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _native_lock(path: Path) -> FileLock:
    """Return a lock of the system. A lock file without one would outlive a killed holder."""
    try:
        return FileLock(path, fallback_to_soft=False)
    except TypeError:  # The parameter is new; older versions raise by themselves.
        return FileLock(path)


def temporary_prefix(name: str) -> str:
    """Return the prefix of the temporary files for `name` on this machine.

    The host name distinguishes machines that share a file system but not its locks.
    """
    return f'{name}-{socket.gethostname()}-'


def remove_leftovers(folder: Path, name: str) -> None:
    """Remove temporary files for `name` that killed processes left.

    These are all files of this machine, whose lock the caller holds, and files of other machines that are a week old:
    a container has a new host name at each start.
    """
    for path in folder.glob(f'{escape(name)}-*'):
        is_ours = path.name.rpartition('-')[0] + '-' == temporary_prefix(name)
        if is_ours or time.time() - path.stat().st_mtime > WEEK:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def publish_folder(folder: Path, build: Callable[[Path], None], is_complete: Callable[[Path], bool]) -> None:
    """Make sure that `folder` exists and is complete.

    The content is built in a temporary sibling, which is renamed atomically: a killed build leaves nothing that looks
    finished. Other processes wait on a file lock. Where the file system has no locks, several processes may build, and
    the first to rename wins.
    """
    if is_complete(folder):
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    name = f'.building-{folder.name}'
    with locked(folder.parent / f'.{folder.name}.lock') as is_locked:
        if is_complete(folder):
            return
        if is_locked:
            remove_leftovers(folder.parent, name)
        workspace = Path(tempfile.mkdtemp(prefix=temporary_prefix(name), dir=folder.parent))
        try:
            content = workspace / 'new'
            content.mkdir()
            build(content)
            if folder.exists() and not is_complete(folder):  # It is damaged.
                os.rename(folder, workspace / 'old')
            try:
                os.rename(content, folder)
            except OSError:
                if not is_complete(folder):  # No other process was faster.
                    raise
        finally:
            shutil.rmtree(workspace, ignore_errors=True)

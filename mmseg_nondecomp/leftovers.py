"""What processes that were killed have left of their work."""

from __future__ import annotations

import shutil
import socket
import time
from glob import escape
from pathlib import Path

WEEK = 7 * 24 * 3600
"""Seconds; nothing is worked on for so long."""


def prefix_of_work(name: str) -> str:
    """How the names of temporary files for `name` begin here.

    The host's name keeps apart machines that share a file system but not its locks.
    """
    return f'{name}-{socket.gethostname()}-'


def remove_leftovers(folder: Path, name: str) -> None:
    """Remove the temporary files for `name` that nobody works on any more.

    These are all of this machine, of which the caller holds the lock, and those of others that are a week old:
    containers have a new name with each start.
    """
    for path in folder.glob(f'{escape(name)}-*'):
        is_of_here = path.name.rpartition('-')[0] + '-' == prefix_of_work(name)
        if is_of_here or time.time() - path.stat().st_mtime > WEEK:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

"""One process at a time, however many there are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: processes may do the same work twice.
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold an exclusive lock on `path`; yields False where the file system has no locks.

    Others wait as long as it takes. The system releases the lock when its holder dies, whatever the reason.
    """
    if fcntl is None:
        yield False
        return
    # The file stays: removing it would let two processes hold locks on two files of one name.
    with open(path, 'a') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield False
        else:
            yield True

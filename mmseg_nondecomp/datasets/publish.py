"""Build a folder once, however many processes want it at the same time."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from mmseg_nondecomp.file_lock import locked
from mmseg_nondecomp.leftovers import prefix_of_work, remove_leftovers


def publish_folder(folder: Path, build: Callable[[Path], None], is_complete: Callable[[Path], bool]) -> None:
    """Make sure that `folder` exists and is complete.

    The content is built in a temporary sibling and appears under its name by one atomic rename, so a build that is
    killed leaves nothing that looks finished. Other processes wait on a file lock, which the system releases when the
    builder dies, whatever the reason. Where a file system knows no locks, several may build and the first
    to rename wins.

    Args:
        folder: The folder to publish.
        build: Fills the empty folder that it is given.
        is_complete: Tells whether a folder holds everything that `build` makes.

    Raises:
        OSError: The parent folder cannot be written.
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
        workspace = Path(tempfile.mkdtemp(prefix=prefix_of_work(name), dir=folder.parent))
        try:
            content = workspace / 'new'
            content.mkdir()
            build(content)
            _rename(content, folder, workspace / 'old', is_complete)
        finally:
            shutil.rmtree(workspace, ignore_errors=True)


def _rename(content: Path, folder: Path, aside: Path, is_complete: Callable[[Path], bool]) -> None:
    """Move `content` to `folder`, unless another process was faster; a damaged `folder` gives way."""
    if folder.exists() and not is_complete(folder):
        os.rename(folder, aside)
    try:
        os.rename(content, folder)
    except OSError:
        if not is_complete(folder):
            raise

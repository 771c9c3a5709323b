"""An index is read where it was written before, and built once where it was not."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from mmseg_nondecomp.file_lock import locked
from mmseg_nondecomp.leftovers import prefix_of_work, remove_leftovers

from .class_index import ClassIndex

VERSION = 1
"""Part of the file's name; raised whenever the same annotations give another index."""


def default_cache_dir() -> Path:
    """The folder of the user's cache: ``$XDG_CACHE_HOME/mmseg_nondecomp``, or ``~/.cache/mmseg_nondecomp``."""
    return expanded(Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache')) / 'mmseg_nondecomp'


def expanded(folder: Path) -> Path:
    """A folder whose name may begin with ``~``.

    Raises:
        OSError: If it does, and the user has no home, as in many containers.
    """
    try:
        return folder.expanduser()
    except RuntimeError as error:
        raise OSError(
            f'Could not keep the class index in {str(folder)!r}: {error} Set HOME or XDG_CACHE_HOME, or choose a '
            '`cache_dir`.'
        ) from error


def load_or_build(folder: Path, identity: str, state: str, build: Callable[[], ClassIndex]) -> ClassIndex:
    """The index that was kept for these annotations, or a new one that is kept from now on.

    One process builds; others that ask meanwhile wait for it, as long as it takes, without a collective operation that
    could time out. The file appears under its name by one atomic rename. Each state of the annotations has a file of
    its own, since machines that share this folder may have copies of the data with times of their own.

    Args:
        folder: Where indices are kept.
        identity: Names the annotations.
        state: What the annotations are like now.
        build: Builds the index.

    Raises:
        OSError: If there is no index yet and the folder cannot be written.
    """
    name = f'class-index-v{VERSION}-{identity}'
    file = folder / f'{name}-{state}.npz'
    index = _read(file, _say_nothing)
    if index is not None:
        return index
    lock = folder / f'{name}.lock'
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.touch()
    except OSError as error:
        raise OSError(f'Could not keep the class index: {error}. Choose a `cache_dir` that can be written.') from error
    with locked(lock) as is_locked:
        index = _read(file, _say)
        if index is None:
            if not file.exists() and any(folder.glob(f'{name}-*.npz')):
                _say(f'The annotations have changed since their classes were counted for {folder}: counting again.')
            index = build()
            try:
                if is_locked:
                    remove_leftovers(folder, f'.{name}')
                _write(file, index, prefix_of_work(f'.{name}'))
            except OSError as error:
                _say(
                    f'Could not keep the class index: {error}. The next start counts again; choose another `cache_dir`.'
                )
    return index


def _read(file: Path, say: Callable[[str], None]) -> ClassIndex | None:
    """The index in a file, or None after a word on what is wrong with it."""
    try:
        return ClassIndex.load(file)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        say(f'Could not read the class index ({error}): counting the classes again.')
        return None
    except Exception as error:  # There is no telling what a damaged file makes its reader raise.
        say(f'{file} is damaged ({type(error).__name__}: {error}): counting the classes again.')
        return None


def _write(file: Path, index: ClassIndex, prefix: str) -> None:
    handle, name = tempfile.mkstemp(prefix=prefix, dir=file.parent)
    try:
        with open(handle, 'wb') as stream:
            index.save(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o666 & ~_umask())  # Temporary files are for their owner alone.
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _say_nothing(message: str) -> None:
    """For the look before the lock, while another process may be writing what is missing."""

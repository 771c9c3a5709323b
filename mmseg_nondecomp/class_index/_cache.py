"""A cached index is read from its file; a missing one is built once."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from mmseg_nondecomp._utils.files import locked, remove_leftovers, temporary_prefix

from ._index import ClassIndex

VERSION = 1  # Part of the file name; increased whenever the same annotations give another index


def default_cache_dir() -> Path:
    """Return the user's cache folder: ``$XDG_CACHE_HOME/mmseg_nondecomp``, or ``~/.cache/mmseg_nondecomp``."""
    return expanded(Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache')) / 'mmseg_nondecomp'


def expanded(folder: Path) -> Path:
    """Expand a leading ``~``; raise OSError if the user has no home, as in many containers."""
    try:
        return folder.expanduser()
    except RuntimeError as error:
        raise OSError(
            f'Could not keep the class index in {str(folder)!r}: {error} Set HOME or XDG_CACHE_HOME, or choose a '
            '`cache_dir`.'
        ) from error


def load_or_build(folder: Path, identity: str, state: str, build: Callable[[], ClassIndex]) -> ClassIndex:
    """Load the cached index of these annotations, or build and cache it.

    One process builds. Others wait for it without a limit of time and without a collective operation that could time
    out. The file appears under its name by one atomic rename. Each state of the annotations has its own file, since
    machines that share the folder may have copies of the data with different modification times.
    """
    name = f'class-index-v{VERSION}-{identity}'
    file = folder / f'{name}-{state}.npz'
    # Without messages: another process may be writing the file.
    index = _read(file, lambda message: None)
    if index is not None:
        return index
    lock = folder / f'{name}.lock'
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.touch()
    except OSError as error:
        raise OSError(f'Could not keep the class index: {error}. Choose a `cache_dir` that can be written.') from error
    with locked(lock) as is_locked:
        index = _read(file, _print)
        if index is None:
            if not file.exists() and any(folder.glob(f'{name}-*.npz')):
                _print(f'The annotations have changed since their classes were counted for {folder}: counting again.')
            index = build()
            try:
                if is_locked:
                    remove_leftovers(folder, f'.{name}')
                _write(file, index, temporary_prefix(f'.{name}'))
            except OSError as error:
                _print(
                    f'Could not keep the class index: {error}. The next start counts again; choose another `cache_dir`.'
                )
    return index


def _read(file: Path, report: Callable[[str], None]) -> ClassIndex | None:
    """Return the index in a file; report an error and return None if there is none that can be read."""
    try:
        return ClassIndex.load(file)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        report(f'Could not read the class index ({error}): counting the classes again.')
        return None
    except Exception as error:  # A damaged file can make the reader raise anything.
        report(f'{file} is damaged ({type(error).__name__}: {error}): counting the classes again.')
        return None


def _write(file: Path, index: ClassIndex, prefix: str) -> None:
    handle, name = tempfile.mkstemp(prefix=prefix, dir=file.parent)
    try:
        with open(handle, 'wb') as stream:
            index.save(stream)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # A temporary file is readable by its owner only.
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise


def _print(message: str) -> None:
    print(message, file=sys.stderr, flush=True)

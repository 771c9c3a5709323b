"""Atomic writing of files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path next to ``path`` to write to; on success it replaces ``path`` at the end.

    Raises:
        OSError: If it cannot be written, for example on a full disk. The previous ``path`` is kept.
    """
    partial = path.with_name(f'.partial-{path.name}')
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise OSError(f'Could not write {path}: {error}. Make room, or choose another folder.') from error
    finally:
        if partial.exists():
            partial.unlink()


def write_whole(path: Path, text: str) -> None:
    """Write a text file atomically.

    Raises:
        OSError: See `whole_file`.
    """
    with whole_file(path) as partial:
        partial.write_text(text, encoding='utf-8')

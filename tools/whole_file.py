"""A file that is there is whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Gives a path beside ``path`` to write to. At the end, and only if all went well, it takes the place of ``path``.

    Raises:
        OSError: If it cannot be written, for want of room for instance. What was at ``path`` before is still there.
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
    """Write a text file, of which nothing is to be seen before all is written.

    Raises:
        OSError: As `whole_file` does.
    """
    with whole_file(path) as partial:
        partial.write_text(text, encoding='utf-8')

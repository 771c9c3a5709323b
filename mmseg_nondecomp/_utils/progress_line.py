"""A line on stderr that shows the progress of long work."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar('T')

TERMINAL_SECONDS, FILE_SECONDS = 0.2, 30


def progress(items: Iterable[T], total: int, title: str) -> Iterator[T]:
    """Yield the items while a line on stderr shows how many of ``total`` are done and the time left."""
    is_terminal = sys.stderr.isatty()
    pause = TERMINAL_SECONDS if is_terminal else FILE_SECONDS
    start = shown = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - shown < pause and done < total:
            continue
        shown = now
        left = (now - start) / done * (total - done)
        end = '\n' if done == total or not is_terminal else ''
        line = f'\r{title}: {done}/{total}, {now - start:.0f} s, {left:.0f} s left '
        print(line if is_terminal else line.strip(), end=end, file=sys.stderr, flush=True)

"""Failures of a process for tests: it is killed, the disk is full, permissions are missing."""

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mmseg_nondecomp.datasets import LongTailShapes

NOBODY = 65534
N_IMAGES = 4


def scenes(root: Any, image_size: int = 48, **arguments: Any) -> LongTailShapes:
    return LongTailShapes(data_root=str(root), num_images=N_IMAGES, image_size=image_size, **arguments)


def start(action: Callable[[], Any]) -> int:
    """Do something in a fork of this process, and give its number."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        action()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def killed(action: Callable[[], Any], call: int | None = None) -> bool:
    """Return whether an action kills its process, which can be killed in its call of that number."""
    return os.WIFSIGNALED(os.waitpid(start(lambda: counted(action, call)), 0)[1])


def counted(action: Callable[[], Any], last: int | None = None) -> int:
    """Count the calls of functions, of Python and of C. The process is killed in call number `last`.

    Calls tell moments of a process apart however busy the machine is.
    """
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ('call', 'c_call')
        if calls == last:
            die()

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def die(*_: Any, **__: Any) -> None:
    """Kill this process, as a machine out of memory does."""
    os.kill(os.getpid(), signal.SIGKILL)


def then_die(function: Callable) -> Callable:
    """Return a function that calls another one and kills its process."""

    def last(*arguments: Any, **keywords: Any) -> None:
        function(*arguments, **keywords)
        die()

    return last


@contextmanager
def full_disk(most: int = 0) -> Iterator[None]:
    """Limit the size of files of this process, so that writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def permissions_bind() -> Iterator[None]:
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)

"""The configs in configs/, each parsed once."""

import copy
import functools
from pathlib import Path
from typing import Any

import pytest
from mmengine.config import Config

CONFIGS = Path(__file__).resolve().parents[1] / 'configs'


def each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize('path', paths, ids=[path.relative_to(CONFIGS).as_posix() for path in paths])


@functools.cache
def _parsed(path: Path) -> Config:
    return Config.fromfile(path)


def load(path: Path) -> Config:
    """Return a copy of a config, which may be changed."""
    return copy.deepcopy(_parsed(path))


def stock(name: str, folder: Path) -> Config:
    """Return a stock config such as ``mmseg::fcn/fcn.py``, read by way of a file in the folder."""
    unchanged = folder / 'unchanged.py'
    unchanged.write_text(f'_base_ = [{name!r}]')
    return Config.fromfile(unchanged)


def differences(ours: Any, theirs: Any, path: str = '') -> dict[str, tuple[Any, Any]]:
    """Return the values in which two configs differ, by their dotted paths; None where one has no such key.

    Two parts of different types differ as a whole.
    """
    if not (isinstance(ours, dict) and isinstance(theirs, dict) and ours.get('type') == theirs.get('type')):
        return {} if ours == theirs else {path: (ours, theirs)}
    found = {}
    for key in ours.keys() | theirs.keys():
        found |= differences(ours.get(key), theirs.get(key), f'{path}.{key}' if path else key)
    return found

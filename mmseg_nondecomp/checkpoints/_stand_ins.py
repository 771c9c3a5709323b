"""Safe substitutes for classes and functions referenced in MMEngine checkpoints.

A pickle is a list of calls of the names in it. Each name is replaced by an object that checks and stores the data and
can do nothing else: no call reaches code that the file chooses, memory that the file has not filled, or more memory
than the size of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, SupportsIndex

import numpy as np
from mmengine.config import ConfigDict
from mmengine.logging import HistoryBuffer
from mmengine.optim import OneCycleParamScheduler


def stand_ins_by_name() -> dict[str, Any]:
    """Return the stand-ins by the names that they have in a pickle."""
    stand_ins: dict[str, Any] = {
        'builtins.bytes': _no_bytes,
        'builtins.getattr': _get_function,
        'numpy.dtype': _DType,
        'numpy.ndarray': _Array,
        'mmengine.config.config.ConfigDict': _new_config_dict,
        'mmengine.logging.history_buffer.HistoryBuffer': _HistoryBuffer,
        'mmengine.optim.scheduler.param_scheduler.OneCycleParamScheduler': _OneCycle,
    }
    for core in ('core', '_core'):  # NumPy 1 and 2, whichever wrote the file.
        stand_ins[f'numpy.{core}.multiarray._reconstruct'] = _new_array
        stand_ins[f'numpy.{core}.multiarray.scalar'] = _scalar
    return stand_ins


def _no_bytes() -> bytes:
    """Replace `bytes`, pickle's spelling of the data of an empty array; `bytes(n)` would allocate n bytes."""
    return b''


class _DType:
    """Replacement of `numpy.dtype`, whose `__setstate__` accepts object fields and wrong sizes."""

    def __init__(self, code: str, align: bool, copy: bool) -> None:
        if not isinstance(code, str) or not re.fullmatch('[biufcSU][0-9]+', code):
            raise UnpicklingError(f'NumPy data of type {code!r} are neither numbers nor text')
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray):
    """Replacement of `numpy.ndarray`, whose constructor reads bytes as pointers to objects."""

    def __new__(cls) -> _Array:
        return super().__new__(cls, 0)

    def __setstate__(self, state: tuple) -> None:
        version, shape, dtype, fortran_order, data = state
        super().__setstate__((version, shape, dtype.dtype, fortran_order, data))

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)  # Saved again, it is a NumPy array.


def _new_array(subtype: type, shape: tuple, code: bytes) -> _Array:
    return _Array()


def _scalar(dtype: _DType, data: bytes) -> Any:
    return np.ndarray((), dtype.dtype, data)[()]


def _new_config_dict(content: dict[str, Any]) -> ConfigDict:
    """Replace `ConfigDict`, which copies its content: nested lists may refer to one list a billion times."""
    result = ConfigDict()
    dict.update(result, content)  # The dicts inside were saved as `ConfigDict`s.
    return result


class _HistoryBuffer:
    """Replacement of `HistoryBuffer`, whose `__setstate__` replaces methods of the class."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        rows = state['_log_history'], state['_count_history']
        if not all(isinstance(row, np.ndarray) and row.ndim == 1 and row.dtype.kind in 'biuf' for row in rows):
            raise UnpicklingError('a `HistoryBuffer` in it does not hold two arrays of numbers')
        self.__class__ = HistoryBuffer
        self.__init__(*rows, state['max_length'])  # type: ignore[misc]


class _OneCycle:
    """Replacement of `OneCycleParamScheduler`, named only as the owner of its annealing functions."""


def _get_function(owner: type, name: str) -> Callable:
    """Replace `getattr`, pickle's spelling of a function of a class."""
    if owner is _HistoryBuffer and name in ('min', 'max', 'mean', 'current'):
        return getattr(HistoryBuffer, name)
    if owner is _OneCycle and name in ('_annealing_cos', '_annealing_linear'):
        return getattr(OneCycleParamScheduler, name)
    raise UnpicklingError(f'it asks for {name!r} of {owner!r}')

"""Load checkpoints on any version of torch and of the OpenMMLab stacks.

Since torch 2.6 `torch.load` refuses objects that MMEngine saves next to the weights: logged values (`HistoryBuffer`),
NumPy arrays and scalars, `ConfigDict`, and functions of classes, which pickle writes as a call of `getattr`. Adding
these names to torch's allow-list undoes the protection: `getattr` reaches any attribute, and `numpy.ndarray` with
`numpy.dtype` reads the bytes of a file as pointers to objects. Here each name is replaced by a *stand-in*, which checks
and stores data and can do nothing else (`_stand_ins.py`). Fields that MMEngine would act on are removed
(`_stripping.py`).
"""

import os
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, wraps
from importlib import metadata
from importlib.util import find_spec
from pickle import UnpicklingError
from typing import Any

import torch
from mmengine.config.utils import MODULE2PACKAGE
from mmengine.runner import checkpoint
from mmengine.utils import get_installed_path
from torch import serialization

from mmseg_nondecomp.checkpoints._stand_ins import stand_ins_by_name
from mmseg_nondecomp.checkpoints._stripping import strip_instructions

FOLDER = 0x10  # Attribute of a folder in a zip archive

LOCAL_ADVICE = (
    'allow what it names with `torch.serialization.add_safe_globals([...])`, or load it once with '
    '`torch.load(path, weights_only=False)` and save the part that you need'
)


def adapt_mmengine() -> None:
    """Make checkpoints and `mmseg::` configs load with the installed versions; a second call changes nothing."""
    # OneDL renamed the distributions that provide `mmseg`, `mmdet`, ...
    installed = metadata.packages_distributions()
    for module, package in MODULE2PACKAGE.items():
        providers = installed.get(module, [package])
        if package not in providers:
            MODULE2PACKAGE[module] = providers[0]
    # The stock MMEngine imports `pkg_resources` to find a package; OneDL does not.
    if 'pkg_resources' in get_installed_path.__code__.co_names and find_spec('pkg_resources') is None:
        warnings.warn(
            'MMEngine finds `mmseg::` configs with `pkg_resources`, which setuptools 82 removed. '
            'If your configs inherit from them: `pip install "setuptools<82"`.',
            stacklevel=2,
        )
    if torch.__version__ >= '2.6':  # Older versions do not restrict `torch.load` by default.
        _replace_loaders()


def _replace_loaders() -> None:
    loader = checkpoint.CheckpointLoader
    loader.register_scheme(prefixes='', loader=load_from_local, force=True)
    # The loaders of https://, openmmlab://, torchvision:// and mmcls:// call each other directly, not through their
    # registration: all of them call this function.
    checkpoint.load_url = load_from_url
    # OneDL's other loaders share a function that loads a refused file a second time, unrestricted.
    if hasattr(checkpoint, '_safe_torch_load'):
        checkpoint._safe_torch_load = partial(torch.load, weights_only=True)
    load = loader.load_checkpoint.__func__
    if hasattr(load, '__wrapped__'):  # By an earlier call.
        return

    @wraps(load)
    def load_and_strip(cls: type, filename: str, *args: Any, **kwargs: Any) -> Any:
        return strip_instructions(load(cls, filename, *args, **kwargs), filename)

    loader.load_checkpoint = classmethod(load_and_strip)


def load_from_local(filename: str, map_location: Any = None) -> Any:
    """Load a checkpoint from a path, including the training state that MMEngine saves in it."""
    filename = os.path.expanduser(filename)
    if not os.path.isfile(filename):
        raise FileNotFoundError(f'{filename} can not be found.')
    with _stand_ins_allowed(), torch.sparse.check_sparse_tensor_invariants(True):
        try:
            _check_sums(filename)
            # `weights_only=True` is the default; not passed, so that torch's environment switches keep working.
            return torch.load(filename, map_location=map_location)
        except UnpicklingError as error:
            raise _refusal(filename, error, LOCAL_ADVICE) from error
        except PermissionError:
            raise
        except Exception as error:  # A damaged file can make the reader raise anything.
            raise UnpicklingError(f'{filename} cannot be loaded: {type(error).__name__}: {error}') from error


def _check_sums(filename: str) -> None:
    """Raise if a record of the archive has a wrong checksum; torch does not check, and loads other numbers."""
    if serialization.get_crc32_options() and zipfile.is_zipfile(filename):
        with zipfile.ZipFile(filename) as archive:
            # For a record that is marked as a folder torch returns uninitialised memory.
            folders = (record.filename for record in archive.infolist() if record.external_attr & FOLDER)
            record = archive.testzip() or next(folders, None)
        if record is not None:
            raise zipfile.BadZipFile(
                f'{record!r} in it has a wrong checksum. If it was saved without checksums, call '
                '`torch.serialization.set_crc32_options(False)`, and none are looked at'
            )


def load_from_url(url: str, **kwargs: Any) -> Any:
    """Download a checkpoint and load it with torch's own restrictions, which `torch.hub` lifts."""
    with torch.sparse.check_sparse_tensor_invariants(True):
        try:
            return torch.hub.load_state_dict_from_url(url, **kwargs, weights_only=True)
        except UnpicklingError as error:
            raise _refusal(url, error, 'download it and give its path instead of the URL') from error


def _refusal(source: str, error: UnpicklingError, advice: str) -> UnpicklingError:
    reason = str(error)
    if match := re.search(r'GLOBAL (\S+)', reason):
        reason = f'it refers to `{match[1]}`'
    elif match := re.search(r'WeightsUnpickler error:\s+(.+)', reason):
        reason = match[1]
    return UnpicklingError(f'{source} is refused: {reason}. If you trust the file, {advice}.')


@contextmanager
def _stand_ins_allowed() -> Iterator[None]:
    """Add the stand-ins to torch's allow-list; they take precedence over names that the user has allowed."""
    stand_ins = stand_ins_by_name()
    ours: list[Any] = [(value, name) for name, value in stand_ins.items()]
    before = serialization.get_safe_globals()
    serialization.clear_safe_globals()
    serialization.add_safe_globals([entry for entry in before if _name(entry) not in stand_ins])
    serialization.add_safe_globals(ours)
    try:
        yield
    finally:
        added = [entry for entry in serialization.get_safe_globals() if entry not in ours]
        serialization.clear_safe_globals()
        serialization.add_safe_globals(before + added)


def _name(entry: Any) -> str:
    return entry[1] if isinstance(entry, tuple) else f'{entry.__module__}.{entry.__qualname__}'

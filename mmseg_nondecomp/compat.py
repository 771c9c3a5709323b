"""The one place that knows about versions of torch and of the OpenMMLab stacks.

Since torch 2.6 `torch.load` refuses what MMEngine saves next to the weights: logged values (`HistoryBuffer`), NumPy
arrays and scalars, `ConfigDict`, and functions of classes, which pickle spells as a call of `getattr`. The usual cure,
to put these names on torch's allow-list, undoes the protection: `getattr` reaches any attribute, and `numpy.ndarray`
with `numpy.dtype` reads the bytes of a file as pointers to objects. Here each name is answered by a *stand-in* that
takes the data, checks them, and can do nothing else (`stand_ins.py`). What was loaded gives MMEngine no orders
(`checkpoint_orders.py`).
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
from torch import serialization

FOLDER = 0x10
"""The attribute of a folder in a zip archive."""

LOCAL_ADVICE = (
    'allow what it names with `torch.serialization.add_safe_globals([...])`, or load it once with '
    '`torch.load(path, weights_only=False)` and save the part that you need'
)


def apply() -> None:
    """Makes checkpoints and `mmseg::` configs load with the installed torch and OpenMMLab stack.

    Does nothing if MMEngine is not installed; a second call changes nothing.
    """
    if find_spec('mmengine') is None:
        return
    _name_installed_packages()
    if _needs_pkg_resources() and find_spec('pkg_resources') is None:
        warnings.warn(
            'MMEngine finds `mmseg::` configs with `pkg_resources`, which setuptools 82 removed. '
            'If your configs inherit from them: `pip install "setuptools<82"`.',
            stacklevel=2,
        )
    if torch.__version__ >= '2.6':  # Older versions do not restrict `torch.load` by default.
        _replace_loaders()


def _name_installed_packages() -> None:
    """Tells MMEngine which distributions provide `mmseg`, `mmdet`, ...: OneDL renamed them."""
    from mmengine.config.utils import MODULE2PACKAGE

    installed = metadata.packages_distributions()
    for module, package in MODULE2PACKAGE.items():
        providers = installed.get(module, [package])
        if package not in providers:
            MODULE2PACKAGE[module] = providers[0]


def _needs_pkg_resources() -> bool:
    """Whether MMEngine imports it to find a package; OneDL does without."""
    from mmengine.utils import get_installed_path

    return 'pkg_resources' in get_installed_path.__code__.co_names


def _replace_loaders() -> None:
    from mmengine.runner import checkpoint

    checkpoint.CheckpointLoader.register_scheme(prefixes='', loader=load_from_local, force=True)
    # The loaders of https://, openmmlab://, torchvision:// and mmcls:// call each other directly, not through their
    # registration: this function is what they share.
    checkpoint.load_url = load_from_url
    # OneDL's other loaders share a function that loads what is refused a second time, unrestricted.
    if hasattr(checkpoint, '_safe_torch_load'):
        checkpoint._safe_torch_load = partial(torch.load, weights_only=True)
    _give_no_orders(checkpoint.CheckpointLoader)


def _give_no_orders(loader: Any) -> None:
    """Has MMEngine's loader of checkpoints, whatever they are loaded from, hand on what gives no orders."""
    from .checkpoint_orders import without_orders

    load = loader.load_checkpoint.__func__
    if hasattr(load, '__wrapped__'):  # By an earlier call.
        return

    @wraps(load)
    def load_without_orders(cls: type, filename: str, *args: Any, **kwargs: Any) -> Any:
        return without_orders(load(cls, filename, *args, **kwargs), filename)

    loader.load_checkpoint = classmethod(load_without_orders)


def load_from_local(filename: str, map_location: Any = None) -> Any:
    """Loads a checkpoint from a path, including the training state that MMEngine saves in it.

    Args:
        filename: Path of the checkpoint.
        map_location: As in `torch.load`.

    Raises:
        FileNotFoundError: If there is no such file.
        PermissionError: If it cannot be read.
        UnpicklingError: If the file needs anything else, or is damaged. The message says what, and how to allow it.
    """
    filename = os.path.expanduser(filename)
    if not os.path.isfile(filename):
        raise FileNotFoundError(f'{filename} can not be found.')
    with _stand_ins_allowed(), torch.sparse.check_sparse_tensor_invariants(True):
        try:
            _check_sums(filename)
            # `weights_only=True` is the default; unsaid, torch's environment switches keep working.
            return torch.load(filename, map_location=map_location)
        except UnpicklingError as error:
            raise _refusal(filename, error, LOCAL_ADVICE) from error
        except PermissionError:
            raise
        except Exception as error:  # There is no telling what a damaged file makes its reader raise.
            raise UnpicklingError(f'{filename} cannot be loaded: {type(error).__name__}: {error}') from error


def _check_sums(filename: str) -> None:
    """Raises if a record of the archive is not as it was written: torch does not look, and loads other numbers."""
    if serialization.get_crc32_options() and zipfile.is_zipfile(filename):
        with zipfile.ZipFile(filename) as archive:
            # Of what says that it is a folder torch gives whatever was in memory.
            folders = (record.filename for record in archive.infolist() if record.external_attr & FOLDER)
            record = archive.testzip() or next(folders, None)
        if record is not None:
            raise zipfile.BadZipFile(
                f'{record!r} in it has a wrong checksum. If it was saved without checksums, call '
                '`torch.serialization.set_crc32_options(False)`, and none are looked at'
            )


def load_from_url(url: str, **kwargs: Any) -> Any:
    """Downloads a checkpoint and loads it with torch's own restrictions, which `torch.hub` lifts.

    Args:
        url: Address of the checkpoint.
        **kwargs: As in `torch.hub.load_state_dict_from_url`.

    Raises:
        UnpicklingError: If the file holds more than weights. The message says what to do.
    """
    with torch.sparse.check_sparse_tensor_invariants(True):
        try:
            return torch.hub.load_state_dict_from_url(url, **kwargs, weights_only=True)
        except UnpicklingError as error:
            raise _refusal(url, error, 'download it and give its path instead of the URL') from error


def _refusal(source: str, error: UnpicklingError, advice: str) -> UnpicklingError:
    text = str(error)
    if found := re.search(r'GLOBAL (\S+)', text):
        reason = f'it refers to `{found[1]}`'
    elif found := re.search(r'WeightsUnpickler error:\s+(.+)', text):
        reason = found[1]
    else:
        reason = text
    return UnpicklingError(f'{source} is refused: {reason}. If you trust the file, {advice}.')


@contextmanager
def _stand_ins_allowed() -> Iterator[None]:
    """Like `torch.serialization.safe_globals`, but wins over what a user allowed by that name."""
    from .stand_ins import stand_ins_by_name

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

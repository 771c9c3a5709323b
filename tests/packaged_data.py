"""Tests that use data files of installed distributions are skipped where these are missing."""

from importlib.metadata import PackageNotFoundError, distribution

import pytest

from mmseg_nondecomp._utils.packaged_files import PackagedFile


def needs_data_of(*files: PackagedFile) -> None:
    """Skip a test or a module if a distribution of these files is missing."""
    if missing := [file.distribution for file in files if not is_installed(file.distribution)]:
        pytest.skip(f'{missing} should be installed', allow_module_level=True)


def is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True

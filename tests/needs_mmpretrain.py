"""Import this first in tests of MMPretrain: it skips them where MMPretrain, or its torchvision, cannot be used."""

from importlib.util import find_spec

import pytest

if find_spec('mmpretrain') is None:
    pytest.skip('MMPretrain has an environment of its own: make test-mmpretrain', allow_module_level=True)

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError) as error:
    pytest.skip(f'torchvision cannot be imported: {error}', allow_module_level=True)

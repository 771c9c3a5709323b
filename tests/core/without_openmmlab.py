"""Import this first in tests of the package as it is installed where no OpenMMLab is: others skip it."""

from importlib.util import find_spec

import pytest

if find_spec('mmengine') is not None:
    pytest.skip('the environment without OpenMMLab is that of make test-core', allow_module_level=True)

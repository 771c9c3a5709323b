"""Import this first in tests of what needs OpenMMLab: it skips them where MMSegmentation is not installed."""

from importlib.util import find_spec

import pytest

if find_spec('mmseg') is None:
    pytest.skip('OpenMMLab is not in the environment of make test-core', allow_module_level=True)

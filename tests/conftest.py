from collections import OrderedDict

import pytest
from mmengine.registry import DefaultScope


@pytest.fixture(autouse=True)
def _no_default_scope(monkeypatch):
    """Each test builds by name as in a new process; a Runner, in a shared fixture too, sets the scope for good."""
    monkeypatch.setattr(DefaultScope, '_instance_dict', OrderedDict())

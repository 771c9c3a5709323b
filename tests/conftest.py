import pytest
from mmengine.registry import DefaultScope


@pytest.fixture(autouse=True)
def _no_default_scope_left_behind():
    """A Runner sets MMEngine's default scope for good; the next test builds by name as in a new process."""
    before = DefaultScope._instance_dict.copy()
    yield
    DefaultScope._instance_dict.clear()
    DefaultScope._instance_dict.update(before)

from collections import OrderedDict
from importlib.util import find_spec

import pytest


@pytest.fixture(autouse=True)
def _no_default_scope(monkeypatch):
    """Each test builds by name as in a new process; a Runner, in a shared fixture too, sets the scope for good."""
    if find_spec('mmengine'):
        from mmengine.registry import DefaultScope

        monkeypatch.setattr(DefaultScope, '_instance_dict', OrderedDict())


@pytest.fixture(autouse=True, scope='session')
def _cache_of_the_tests(tmp_path_factory):
    """Class indices of the tests stay out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('XDG_CACHE_HOME', str(tmp_path_factory.mktemp('cache')))
        yield


@pytest.fixture
def of_any_range(monkeypatch):
    """Sums are computed as where values cannot be read: with the largest numbers apart, whatever the range."""
    monkeypatch.setattr('mmseg_nondecomp.functional.topk._symmetric_sums.can_be_read', lambda tensor: False)


@pytest.fixture(params=['the shortest way', 'of any range'])
def each_arithmetic(request):
    """Sums are computed with and without the shortcut for numbers in range."""
    if request.param == 'of any range':
        request.getfixturevalue('of_any_range')

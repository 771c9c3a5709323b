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
def by_logarithms(monkeypatch):
    """Sums of products are computed in the way that serves where values cannot be looked at."""
    monkeypatch.setattr('mmseg_nondecomp.functional.log_sums.can_be_read', lambda tensor: False)


@pytest.fixture(params=['numbers where they are in range', 'logarithms'])
def each_arithmetic(request):
    """Sums of products are computed in both ways."""
    if request.param == 'logarithms':
        request.getfixturevalue('by_logarithms')

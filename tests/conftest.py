import sys
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / 'tools'))


@pytest.fixture(autouse=True)
def _no_other_runner(monkeypatch):
    """Start as in a new process: a Runner leaves a default scope behind and, if it was interrupted, its log."""
    if find_spec('mmengine'):
        from mmengine.logging import MessageHub
        from mmengine.registry import DefaultScope

        monkeypatch.setattr(DefaultScope, '_instance_dict', OrderedDict())
        monkeypatch.setattr(MessageHub, '_instance_dict', OrderedDict())


@pytest.fixture(autouse=True, scope='session')
def _cache_of_the_tests(tmp_path_factory):
    """Keep class indices of the tests out of the cache of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('XDG_CACHE_HOME', str(tmp_path_factory.mktemp('cache')))
        yield


@pytest.fixture
def of_any_range(monkeypatch):
    """Compute symmetric sums as where values cannot be read, with the largest numbers apart."""
    monkeypatch.setattr('mmseg_nondecomp.functional.topk._symmetric_sums.can_be_read', lambda tensor: False)


@pytest.fixture(params=['the shortest way', 'of any range'])
def each_arithmetic(request):
    """Compute symmetric sums with and without the shortcut for numbers in range."""
    if request.param == 'of any range':
        request.getfixturevalue('of_any_range')

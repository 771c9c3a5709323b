from collections import OrderedDict
from importlib.util import find_spec
from uuid import uuid4

import pytest


@pytest.fixture
def no_other_runner(monkeypatch):
    if find_spec('mmengine'):
        from mmengine.logging import MessageHub

        monkeypatch.setattr(MessageHub, '_instance_dict', OrderedDict())


@pytest.fixture
def hub(no_other_runner):
    hub = pytest.importorskip('mmengine.logging').MessageHub.get_instance(str(uuid4()))
    hub.update_info('loop_stage', 'train')
    return hub

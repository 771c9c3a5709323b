from collections import OrderedDict
from uuid import uuid4

import pytest


@pytest.fixture
def no_other_runner(monkeypatch):
    """No hub of another test tells the time."""
    MessageHub = pytest.importorskip('mmengine.logging').MessageHub
    monkeypatch.setattr(MessageHub, '_instance_dict', OrderedDict())


@pytest.fixture
def hub(no_other_runner):
    """The message hub of a Runner that trains."""
    from mmengine.logging import MessageHub

    hub = MessageHub.get_instance(str(uuid4()))
    hub.update_info('loop_stage', 'train')
    return hub

from uuid import uuid4

import pytest


@pytest.fixture
def hub():
    hub = pytest.importorskip('mmengine.logging').MessageHub.get_instance(str(uuid4()))
    hub.update_info('loop_stage', 'train')
    return hub

"""No loss waits for the device: nothing of its values comes back to the host, and nothing of the host's goes there.

Each of these makes the host wait until the device has done all that it was given, and leaves it without work after
that. What is on the device is told from what is not by its type: `can_be_read` says no to both kinds here.
"""

from collections import Counter, OrderedDict

import pytest
import torch
import torch.nn.functional as F
from calls import step_after_training_batch
from every_loss import EVERY, N_CLASSES, build, every_loss_but, in_box_heads, items, pixels
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

losses_without_reads = every_loss_but('DirectAPLoss')
READ = {'_local_scalar_dense', 'is_nonzero', 'equal', 'nonzero', 'masked_select', 'bincount', '_unique2', 'unique_dim'}
SENT = {'lift_fresh'}  # what `torch.tensor` and an index that is a list make
MASKED = {'index', 'index_put', 'index_put_'}


class Elsewhere(Tensor):
    """On a device, as far as losses can tell; so is all that is computed of it."""


class Waits(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        by_mask = name in MASKED and any(index is not None and index.dtype == torch.bool for index in args[1])
        by_count = name == 'repeat_interleave' and isinstance(args[-1], Tensor)
        if name in READ | SENT or by_mask or by_count:
            self.found[name] += 1
        return function(*args, **(kwargs or {}))


def calls():
    logits, labels = pixels(requires_grad=False)
    of_boxes = [part.detach() for part in items()]
    shares = F.one_hot(labels, N_CLASSES).movedim(-1, 1).float()
    return {
        'pixels': (logits, labels, {}),
        'weights': (logits, labels, dict(weight=torch.ones(labels.shape), ignore_index=3)),
        'boxes': (*of_boxes, dict(weight=torch.ones(len(of_boxes[1])), avg_factor=7.0)),
        'shares': (logits, shares, dict(weight=torch.ones(labels.shape))),
        'half precision': (logits.half(), labels.int(), {}),
    }


def two_steps(loss, logits, labels, how):
    """Run two steps, the second of which may use a state of the first."""
    for _ in range(2):
        logits = logits.detach().requires_grad_()
        loss(logits, labels, **how).backward()
        step_after_training_batch(loss)


@pytest.mark.parametrize('call', calls())
@losses_without_reads
def test_the_size_of_nothing_depends_on_values(name, args, call):
    """Of tensors without values: whatever asks for one fails."""
    logits, labels, how = calls()[call]
    with FakeTensorMode() as mode:
        logits, labels = mode.from_tensor(logits), mode.from_tensor(labels)
        how = {key: mode.from_tensor(value) if isinstance(value, Tensor) else value for key, value in how.items()}
        two_steps(build(name, in_box_heads(name, args)), logits, labels, how)


def test_tensors_without_values_notice():
    with FakeTensorMode():
        values = torch.zeros(3)
        with pytest.raises(DataDependentOutputException):
            bool(values.any())
        with pytest.raises(DynamicOutputShapeException):
            values[values > 0]


def elsewhere(call):
    logits, labels, how = calls()[call]
    how = {key: value.as_subclass(Elsewhere) if isinstance(value, Tensor) else value for key, value in how.items()}
    return logits.as_subclass(Elsewhere), labels.as_subclass(Elsewhere), how


@pytest.mark.parametrize('call', calls())
@losses_without_reads
def test_nothing_is_read_or_sent(name, args, call):
    loss = build(name, in_box_heads(name, args))
    logits, labels, how = elsewhere(call)
    with Waits() as waits:
        two_steps(loss, logits, labels, how)
    assert not waits.found


@pytest.fixture
def hub(monkeypatch):
    """The message hub of a Runner that trains, and no other."""
    message_hub = pytest.importorskip('mmengine.logging').MessageHub
    monkeypatch.setattr(message_hub, '_instance_dict', OrderedDict())
    hub = message_hub.get_instance('training')
    hub.update_info('loop_stage', 'train')
    return hub


@pytest.mark.parametrize(
    ('name', 'args', 'reads'),
    [
        *((*case.values, 1) for case in EVERY if not case.values[0].startswith(('Direct', 'SMeasure'))),
        # Whether there is anything to tell, the measure or the two rates, and by how much the constraint does not hold.
        ('SMeasureLoss', dict(), 3),
        ('SMeasureLoss', dict(measure='precision_at_recall', target=0.8), 4),
        ('SMeasureLoss', dict(measure='auc_pr', anchors=2), 3),
    ],
)
def test_only_logged_values_are_read_while_a_runner_trains(name, args, reads, hub):
    loss = build(name, args)
    logits, labels, _ = elsewhere('pixels')
    for iteration in range(3):
        hub.update_info('iter', iteration)
        with Waits() as waits:
            loss(logits.detach().requires_grad_(), labels).backward()
        assert waits.found == {'_local_scalar_dense': reads}

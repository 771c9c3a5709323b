"""Wrong values are found on any device in the first calls, and cost nothing afterwards.

A device is simulated by tensors that are not read for free: `can_be_read` is False.
"""

import pytest
import torch
import torch.nn.functional as F
from every_loss import CASES, N_CLASSES, build, pixels
from torch.utils._python_dispatch import TorchDispatchMode

from mmseg_nondecomp import functional
from mmseg_nondecomp.functional import _inputs
from mmseg_nondecomp.functional._inputs import FIRST_CALLS
from mmseg_nondecomp.functional.topk import _symmetric_sums, smooth

LOGITS, LABELS = pixels(requires_grad=False)
SHARES = F.one_hot(LABELS, N_CLASSES).movedim(-1, 1).float()
WRONG = {
    'a label beyond the classes': (dict(target=LABELS + 2), r'labels in \[0, [45]\]'),
    'a negative label': (dict(target=LABELS - 1), 'labels in'),
    'a label between classes': (dict(target=LABELS + 0.5), 'whole numbers'),
    'a share above 1': (dict(target=2 * SHARES), r'shares of classes in \[0, 1\]'),
    'a negative weight': (dict(target=LABELS, weight=-torch.ones(LABELS.shape)), '`weight` should'),
}
FIRST_OF_EACH = [pytest.param(name, cases[0][1], id=name) for name, cases in CASES.items()]
each_loss = pytest.mark.parametrize(('name', 'args'), FIRST_OF_EACH)


@pytest.fixture
def device(monkeypatch):
    for module in (_inputs, smooth, _symmetric_sums):
        monkeypatch.setattr(module, 'can_be_read', lambda tensor: False)
    monkeypatch.setattr(_inputs, '_checked_by_functions', {})


class Reads(TorchDispatchMode):
    """Counts the values that are read back, and the assertions in graphs."""

    def __init__(self):
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        self.number += name in ('_local_scalar_dense', 'is_nonzero', '_assert_async')
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize('mistake', WRONG)
@each_loss
def test_wrong_values_are_named_in_the_first_calls_of_each_layout(name, args, mistake, device):
    call, message = WRONG[mistake]
    for calls in range(FIRST_CALLS):
        loss = build(name, args)
        for _ in range(calls):
            loss(LOGITS, LABELS)
            loss(LOGITS, SHARES)
        with pytest.raises(ValueError, match=message):
            loss(LOGITS, **call)


@pytest.mark.parametrize(
    'target', [LABELS, SHARES, LABELS.float(), LABELS.unsqueeze(1)], ids=['labels', 'shares', 'floats', 'maps']
)
@pytest.mark.parametrize(('name', 'args'), [case for case in FIRST_OF_EACH if case.values[0] != 'DirectAPLoss'])
def test_nothing_is_read_after_the_first_calls(name, args, target, device):
    loss = build(name, args)
    for call in range(FIRST_CALLS + 2):
        with Reads() as reads:
            loss(LOGITS, target)
        assert (reads.number > 0) == (call < FIRST_CALLS)


@each_loss
def test_a_mask_of_255_is_named(name, args, device):
    if 'TopK' in name or name == 'DirectAPLoss' or 'class_weight' in args:
        pytest.skip('not for one channel, or with a read of its own')
    loss = build(name, args)
    with pytest.raises(ValueError, match='Found a mask of 0 and 255'):
        loss(LOGITS[:, :1], 255 * (LABELS == 1))


@pytest.mark.parametrize('mistake', ['a label beyond the classes', 'a share above 1', 'a negative weight'])
@pytest.mark.parametrize('name', sorted(set(CASES) - {'DirectAPLoss'}))
def test_a_compiled_graph_asserts_the_values_of_its_first_call(name, mistake):
    torch._dynamo.reset()
    call, message = WRONG[mistake]
    loss = torch.compile(build(name, CASES[name][0][1]), fullgraph=True, backend='aot_eager')
    with pytest.raises(RuntimeError, match=message):
        loss(LOGITS, **call)


def test_functions_check_their_first_calls(device):
    probs = LOGITS.softmax(1)
    for _ in range(2):
        with pytest.raises(ValueError, match='labels in'):
            functional.lovasz_softmax(probs, LABELS + 2)
    functional.lovasz_softmax(probs, LABELS)
    with Reads() as reads:
        functional.lovasz_softmax(probs, LABELS)
    assert reads.number == 0
    with pytest.raises(ValueError, match='`losses` should be non-negative'):
        functional.loss_max_pooling(-probs)
    with pytest.raises(ValueError, match='`target` should be 0 or 1'):
        functional.direct_ap_loss(LOGITS.flatten(), 2 * torch.ones(LOGITS.numel()))

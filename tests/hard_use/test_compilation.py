"""A compiled loss is the loss: values, gradients and what it keeps, in any call form, with no graph for each value."""

import copy
import shutil

import pytest
import torch
import torch.nn.functional as F
from calls import assert_same, step_after_training_batch, value_and_gradient
from every_loss import CASES, EVERY, N_CLASSES, build, every_loss_but, in_box_heads
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

compiled_losses = every_loss_but('DirectAPLoss')  # what it ranks has a size that depends on the labels
KEPT = [('LovaszSoftmaxLoss', dict(memory=9, bins=16)), ('LovaszHingeLoss', dict(memory=9, bins=16, scope='world'))]


@pytest.fixture(autouse=True)
def _no_graph_of_another_test():
    torch._dynamo.reset()


@pytest.fixture
def backend():
    """Counts the graphs, and runs the operations of theirs, forward and backward, one by one."""
    return CompileCounterWithBackend('aot_eager')


def random(seed):
    return torch.Generator().manual_seed(seed)


def boxes(seed, ignored=0.2, number=40):
    generator = random(seed)
    logits = 3 * torch.randn(number, N_CLASSES, generator=generator)
    labels = torch.randint(0, N_CLASSES, (number,), generator=generator)
    return logits, labels.masked_fill(torch.rand(number, generator=generator) < ignored, 255)


def crop(seed, height, width):
    generator = random(seed)
    images = torch.randn(2, 3, height, width, generator=generator)
    labels = torch.randint(0, N_CLASSES, (2, height, width), generator=generator)
    labels[:, :1] = 255
    return images, labels


def assert_same_state(loss, other):
    kept, expected = (torch.utils._pytree.tree_leaves(each.state_dict()) for each in (loss, other))
    assert_same(kept, expected, equal_nan=True)  # NaN stands for an example that is no positive


@compiled_losses
def test_values_that_change_need_no_new_graph(name, args, backend):
    """Other scores, labels, shares of ignored items, batches of nothing else, and what a head averages by."""
    loss, other = (build(name, in_box_heads(name, args)) for _ in range(2))
    compiled = torch.compile(other, fullgraph=True, backend=backend)
    graphs = []
    for step, ignored in enumerate((0, 0.1, 0.9, 1, 0.5, 0.3)):
        logits, labels = boxes(step, ignored)
        weight = torch.rand(len(labels), generator=random(step)).round()
        how = dict(weight=weight, avg_factor=(7.0, 8.5, 100, 1, 0.25, 9.75)[step])
        expected = value_and_gradient(loss, logits, labels, **how)
        assert_same(value_and_gradient(compiled, logits, labels, **how), expected)
        step_after_training_batch(loss)
        step_after_training_batch(other)
        graphs.append(backend.frame_count)
    assert graphs[0] == 1
    assert graphs[-1] == graphs[1] <= 2  # a loss that keeps something has a graph for when it has nothing yet
    assert_same_state(loss, other)


class Segmentor(nn.Module):
    def __init__(self, name, args):
        super().__init__()
        self.head = nn.Conv2d(3, N_CLASSES, 3, padding=1)
        self.loss = build(name, args)

    def forward(self, images, labels):
        return self.loss(self.head(images), labels, weight=None, ignore_index=255)


@compiled_losses
def test_in_a_model_with_crops_of_any_size(name, args, backend):
    """One more graph for the second size, and none for others; labels as a PNG has them, images as cuDNN likes."""
    torch.manual_seed(0)
    model = Segmentor(name, args)
    other = copy.deepcopy(model)
    compiled = torch.compile(other, fullgraph=True, backend=backend)
    graphs = []
    for step, size in enumerate([(6, 8), (6, 8), (7, 9), (9, 5), (12, 14)]):
        images, labels = crop(step, *size)
        images, labels = images.to(memory_format=torch.channels_last), labels.to(torch.uint8)
        assert_same(step_of(compiled, images, labels), step_of(model, images, labels))
        graphs.append(backend.frame_count)
    assert graphs[2] == graphs[-1] <= graphs[1] + 1
    assert_same_state(model, other)


def step_of(model, images, labels):
    model.zero_grad()
    value = model(images, labels)
    value.backward()
    return value.detach(), *(parameter.grad for parameter in model.parameters())


@pytest.mark.parametrize('form', ['shares in float16, weights', 'int32 in float64, another label is ignored'])
@pytest.mark.parametrize('name', sorted(set(CASES) - {'DirectAPLoss'}))
def test_types(name, form, backend):
    args = CASES[name][0][1]
    logits, labels = boxes(0, 0)
    if form.startswith('shares'):
        logits, target, how = (
            logits.half(),
            F.one_hot(labels, N_CLASSES) * 0.9 + 0.02,
            dict(weight=(labels != 3).float()),
        )
    else:
        logits, target, how = logits.double(), labels.int(), dict(ignore_index=3)
    compiled = torch.compile(build(name, args), fullgraph=True, backend=backend)
    found, expected = (value_and_gradient(loss, logits, target, **how) for loss in (compiled, build(name, args)))
    assert [part.dtype for part in found] == [part.dtype for part in expected]
    assert_same(found, expected)


@pytest.mark.skipif(shutil.which('g++') is None, reason='needs a C++ compiler')
@pytest.mark.parametrize('name', sorted(set(CASES) - {'DirectAPLoss'}))
def test_with_kernels_of_its_own(name):
    args = CASES[name][0][1]
    logits, labels = boxes(0)
    weight = torch.rand(len(labels), generator=random(0)).round()
    compiled = torch.compile(build(name, args), fullgraph=True)
    found, expected = (
        value_and_gradient(loss, logits, labels, weight=weight) for loss in (compiled, build(name, args))
    )
    assert_same(found, expected)


@pytest.mark.parametrize(('name', 'args'), KEPT)
def test_a_memory_is_one_graph_whatever_its_content(name, args, backend):
    loss, other = build(name, args), build(name, args)
    compiled = torch.compile(other, fullgraph=True, backend=backend)
    for step in range(12):
        for each in (loss, other):
            each.train(step != 6)
        logits, labels = boxes(step)
        assert_same(value_and_gradient(compiled, logits, labels), value_and_gradient(loss, logits, labels))
    assert backend.frame_count == 3  # nothing kept, something kept, evaluation
    assert_same_state(loss, other)


BROKEN = [
    *((name, args, {}) for name, args in (case.values for case in EVERY) if name == 'DirectAPLoss'),
    ('SMeasureLoss', dict(per_example=True), dict(ids=torch.arange(12))),
    ('LovaszHingeLoss', dict(proximal=1.0), {}),
    ('LovaszSoftmaxLoss', {}, dict(reduction_override='none')),
    ('SoftIoULoss', {}, dict(reduction_override='none')),
]


@pytest.mark.parametrize(('name', 'args', 'how'), BROKEN)
def test_with_breaks_in_the_graph(name, args, how):
    """Losses that read values or take an inner gradient compile in several graphs, with the same result."""
    loss, other = build(name, args), build(name, args)
    compiled = torch.compile(other, backend='eager')
    for step in range(2):
        logits, labels = boxes(step, number=12)
        found, expected = (value_and_gradient(each, logits, labels, **how) for each in (compiled, loss))
        assert_same(found, expected)
        step_after_training_batch(loss)
        step_after_training_batch(other)
    assert_same_state(loss, other)

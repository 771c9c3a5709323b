"""Training in mixed precision: a loss in and out of autocast, and MMEngine's AmpOptimWrapper with its scaled losses."""

import needs_openmmlab  # noqa: F401  isort: skip

from functools import partial

import pytest
import torch
from calls import assert_same, step_after_training_batch
from every_loss import EVERY, N_CLASSES, build, every_loss
from mmengine.optim import AmpOptimWrapper, OptimWrapper
from torch import nn

SCALE = 2.0**16
OVERFLOW = 3
"""The step whose gradient is infinite."""

REGIONS = ('in', 'in a region without autocast')
WAYS = [(region, options) for region in REGIONS for options in (dict(), dict(cache_enabled=False))]


class Network(nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, N_CLASSES, 3, padding=1)
        )


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, N_CLASSES, (2, 12, 12), generator=generator)
    labels[:, :2] = 255
    return torch.randn(2, 3, 12, 12, generator=generator), labels


def value_and_gradients(network, loss, way, dtype, scale, **options):
    images, labels = batch(0)
    with torch.autocast('cpu', dtype, enabled=dtype is not None, **options):
        logits = 3 * network(images)
        if way == 'in':
            value = loss(logits, labels)
        elif way == 'in a region without autocast':
            with torch.autocast('cpu', enabled=False):
                value = loss(logits, labels)
    if way == 'out':
        value = loss(logits, labels)
    (value * scale).backward()
    assert value.dtype == torch.float32
    return value.detach(), torch.cat([parameter.grad.flatten() for parameter in network.parameters()]) / scale


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
@every_loss
def test_autocast_ends_where_the_loss_begins(name, args, dtype):
    scale = 1024 if dtype == torch.float16 else 1
    expected = value_and_gradients(Network(), build(name, args), 'out', dtype, scale)
    for way, options in WAYS:
        found = value_and_gradients(Network(), build(name, args), way, dtype, scale, **options)
        assert_same(found, expected, rtol=0, atol=0)
    precise = value_and_gradients(Network(), build(name, args), 'out', None, 1)
    torch.testing.assert_close(expected[0], precise[0], rtol=1e-2, atol=0)
    # Close scores change their places when they are rounded, and a ranking has no other gradient than that of places.
    limit = 0.5 if name == 'DirectAPLoss' and args.get('mode') in (None, 'negative') else 0.1
    assert (expected[1] - precise[1]).norm() < limit * precise[1].norm()


@pytest.fixture
def scaled_wrapper(monkeypatch):
    """MMEngine's, which asks for a GPU, with torch's scaler for the CPU."""
    module = 'mmengine.optim.optimizer.amp_optimizer_wrapper'
    monkeypatch.setattr(f'{module}.is_cuda_available', lambda: True)
    monkeypatch.setattr(f'{module}.GradScaler', partial(torch.amp.GradScaler, 'cpu'))
    return partial(AmpOptimWrapper, loss_scale=dict(init_scale=SCALE))


def trained(name, args, wrapper, accumulative_counts, scaled):
    """Return losses, scales, weights and the state of the loss after a training."""
    network, loss, losses, scales = Network(), build(name, args), [], []
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    optimizer = wrapper(
        optimizer=optimizer, accumulative_counts=accumulative_counts, clip_grad=dict(max_norm=1.0, norm_type=2)
    )
    for step in range(6 * accumulative_counts):
        images, labels = batch(step)
        overflows = step // accumulative_counts == OVERFLOW
        with optimizer.optim_context(network), torch.autocast('cpu', torch.bfloat16):
            value = loss(network(images), labels)
        losses.append(value.detach())
        if scaled or not overflows:  # which is what a scaler is to make of such a step
            optimizer.update_params(value * torch.tensor(torch.inf if overflows else 1.0))
        step_after_training_batch(loss)
        if scaled:
            scales.append(optimizer.loss_scaler.get_scale())
    return torch.stack(losses), scales, network.state_dict(), loss.state_dict()


@pytest.mark.parametrize('accumulative_counts', [1, 2])
@pytest.mark.parametrize(('name', 'args'), [*EVERY, ('LovaszSoftmaxLoss', dict(memory=3))])
def test_a_scaled_training_is_the_training(name, args, accumulative_counts, scaled_wrapper):
    """With a step that overflows: it is left out, the scale is halved, and what a loss keeps goes on."""
    found = trained(name, args, scaled_wrapper, accumulative_counts, True)
    expected = trained(name, args, OptimWrapper, accumulative_counts, False)
    scales = found[1][accumulative_counts - 1 :: accumulative_counts]
    assert scales == [SCALE] * OVERFLOW + [SCALE / 2] * (6 - OVERFLOW)
    for part, of_plain in zip((found[0], *found[2:]), (expected[0], *expected[2:]), strict=True):
        leaves, others = (torch.utils._pytree.tree_leaves(each) for each in (part, of_plain))
        assert all(leaf.isfinite().all() for leaf in leaves)
        assert_same(leaves, others, rtol=1e-5, atol=1e-6)
    start = torch.cat([part.flatten() for part in Network().parameters()])
    end = torch.cat([found[2][key].flatten() for key, _ in Network().named_parameters()])
    assert (end - start).norm() > 1e-3 * start.norm()


@pytest.mark.parametrize('poison', [torch.nan, torch.inf])
@pytest.mark.parametrize(
    ('name', 'args'),
    [('SMeasureLoss', dict()), ('SMeasureLoss', dict(proxy=False)), ('LovaszSoftmaxLoss', dict(memory=2))],
)
def test_the_state_survives_logits_that_overflow(name, args, poison):
    """The loss shows it, the scaler leaves the step out, and the next one is as good as ever."""
    loss = build(name, args)
    for step in range(6):
        logits, labels = torch.randn(2, N_CLASSES, 6, 8), torch.randint(0, N_CLASSES, (2, 6, 8))
        if step == OVERFLOW:
            logits[0, :, 1, 1] = poison
        value = loss(logits.requires_grad_(), labels)
        value.backward()
        step_after_training_batch(loss)
        finite = value.isfinite() and logits.grad.isfinite().all()
        assert finite != (step == OVERFLOW)
        assert all(part.isfinite().all() for part in torch.utils._pytree.tree_leaves(loss.state_dict()))

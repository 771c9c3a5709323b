"""Losses in float16, bfloat16 and float32 against float64, on the same logits: how far values and gradients are off."""

import pytest
import torch
import torch.nn.functional as F
from every_loss import CASES, N_CLASSES, build, every_loss

SCALE = 65536.0
"""Initial scale of torch.amp.GradScaler."""

CELLS = 3e-4
"""Tolerance where float32 and float64 put an error into different bins of a histogram."""


TIES = {None: 1e-2, 1: 0.15}
"""The same where float32 cannot tell which of two is larger: with `bins=None` an order, with `p=1` who is the last."""


def tolerance(args):
    return TIES[None] if args.get('bins', 0) is None else TIES.get(args.get('p', 0), CELLS)


def scene(shape, size, dtype):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64) * size
    return logits.to(dtype), torch.randint(0, N_CLASSES, (shape[0], *shape[2:]), generator=generator)


def value_and_scaled_gradient(loss, logits, labels, factor):
    """Return the value and the scaled gradient, divided by the scale in float64."""
    logits = logits.detach().requires_grad_()
    value = loss(logits, labels)
    (value * factor).backward()
    return value.detach(), logits.grad.double() / factor


def assert_near(name, args, logits, labels, factor):
    dtype = logits.dtype
    value, gradient = value_and_scaled_gradient(build(name, args), logits, labels, factor)
    expected, its_gradient = value_and_scaled_gradient(build(name, args), logits.double(), labels, 1)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-9)
    # Rounding to the type, by half a unit at most, and what is below its smallest number.
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps / factor
    limit = (
        (torch.finfo(dtype).eps / 2 + tolerance(args)) * its_gradient.norm() + smallest * logits.numel() ** 0.5 + 1e-11
    )
    assert (gradient - its_gradient).norm() <= limit


@pytest.mark.parametrize('size', [0.1, 3, 30])
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32])
@every_loss
def test_gradients_are_those_of_float64(name, args, dtype, size):
    """From one item to a map, from a network that knows nothing to one that is sure."""
    for shape in ((1, N_CLASSES), (96, N_CLASSES), (2, N_CLASSES, 12, 12)):
        if shape[0] == 1 and size == 30 and args.get('classes') == 'all':
            continue  # an absent class has a loss where any probability is above 0, which may be below all of float32
        logits, labels = scene(shape, size, dtype)
        # With one item the gradients of cross-entropy itself come near 65504, the largest number of float16.
        factor = SCALE if dtype == torch.float16 and shape[0] > 1 else 1
        assert_near(name, args, logits, labels, factor)


def share_lost(loss, logits, labels):
    """Return the share of gradients that vanish in float16 at the initial scale, and not in float64."""
    _, found = value_and_scaled_gradient(loss, logits, labels, SCALE)
    _, expected = value_and_scaled_gradient(loss, logits.double(), labels, 1)
    assert found.isfinite().all()
    return ((found == 0) & (expected != 0)).double().mean()


@pytest.mark.parametrize('shape', [(96, N_CLASSES), (2, N_CLASSES, 64, 64)], ids=str)
@every_loss
def test_no_gradient_vanishes_or_overflows_where_that_of_cross_entropy_does_not(name, args, shape):
    if args.get('mode') == 'negative' and name == 'DirectAPLoss' and len(shape) > 2:
        pytest.skip('as many operations as pairs')
    logits, labels = scene(shape, 0.1, torch.float16)
    assert (
        share_lost(lambda x, y: F.cross_entropy(x.float() if x.dtype == torch.float16 else x, y), logits, labels) == 0
    )
    assert share_lost(build(name, args), logits, labels) == 0


@pytest.mark.parametrize('name', sorted(set(CASES) - {'DirectAPLoss'}))
def test_a_crop_of_512_x_512(name):
    args = CASES[name][0][1]
    logits, labels = scene((1, N_CLASSES, 512, 512), 3, torch.float16)
    assert_near(name, args, logits, labels, SCALE)


@pytest.mark.parametrize('name', sorted(set(CASES) - {'DirectAPLoss'}))  # whose rankings are finer the more there is
def test_more_pixels_than_float32_can_count(name):
    """A set of many copies is the set: 16.8 million pixels, more than 2^24, have the loss of a thousand."""
    n_copies = 16800
    args = CASES[name][0][1] | (dict(k=1) if 'TopK' in name else {})
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(1, 2, 1, 1000, generator=generator)
    labels = torch.randint(0, 2, (1, 1, 1000), generator=generator)
    logits[..., 3], labels[..., 3] = 0.5, 255
    assert n_copies * 999 > 2**24
    expected, its_gradient = value_and_scaled_gradient(build(name, args), logits.double(), labels, 1)
    logits, labels = logits.expand(1, 2, n_copies, 1000), labels.expand(1, n_copies, 1000)
    value, gradient = value_and_scaled_gradient(build(name, args), logits, labels, 1)
    torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=0)
    assert (gradient.sum(2, keepdim=True) - its_gradient).norm() <= 1e-5 * its_gradient.norm()

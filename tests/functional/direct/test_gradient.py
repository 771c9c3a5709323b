"""A loss of several rows of scores, each with the gradient that it was given; and the calls of the two functions."""

import math

import pytest
import torch
from ranking_scenes import items, value_and_gradient_of

from mmseg_nondecomp.functional import direct_ap_loss, direct_zero_one_loss
from mmseg_nondecomp.functional.direct._gradient import MODES, with_gradient


def rows(dtype=torch.float64):
    """Scores, losses that have nothing to do with them, and gradients; of three rows, in double precision."""
    generator = torch.Generator().manual_seed(0)
    scores, gradient = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    return scores.to(dtype).requires_grad_(), torch.tensor([0.1, 0.0, 7.0]).double(), gradient


def test_the_gradient_is_the_given_one_with_the_factors_of_the_loss_and_the_chain_goes_on_before_the_scores():
    scores, losses, gradient = rows()
    factors = torch.tensor([2.0, 0.0, -0.5]).double()
    actual = with_gradient(3 * scores, losses, gradient, factor=0.25)
    assert torch.equal(actual, losses)
    (factors * actual).sum().backward()
    torch.testing.assert_close(scores.grad, 0.75 * factors.unsqueeze(1) * gradient, rtol=1e-15, atol=0)


@pytest.mark.parametrize(
    ('dtype', 'expected'),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
    ids=str,
)
def test_losses_are_float32_or_better_and_gradients_of_the_type_of_the_scores(dtype, expected):
    scores, losses, gradient = rows(dtype)
    actual = with_gradient(scores, losses, gradient)
    assert actual.dtype == expected
    torch.testing.assert_close(actual.detach(), losses.to(expected), rtol=0, atol=0)
    actual.sum().backward()
    assert scores.grad.dtype == dtype
    torch.testing.assert_close(scores.grad.double(), gradient, rtol=torch.finfo(dtype).eps, atol=1e-6)


def test_a_factor_is_applied_before_the_gradient_is_rounded():
    """So a sum over many items is no infinity in half precision where their mean is a number."""
    scores, losses, gradient = rows(torch.float16)
    (with_gradient(scores, losses, 1e6 * gradient.sign()).sum() / 1e6).backward()
    assert torch.equal(scores.grad.double(), gradient.sign())


def test_only_scores_that_are_trained_are_differentiated_and_once():
    scores, losses, gradient = rows()
    actual = with_gradient(scores, losses.requires_grad_(), gradient.requires_grad_())
    actual.sum().backward()
    assert losses.grad is None
    assert gradient.grad is None
    with torch.no_grad():
        actual.mul_(2)
    assert losses.tolist() == rows()[1].tolist()
    scores, losses, gradient = rows()
    squares = with_gradient(scores, losses, gradient).square().sum()
    (first,) = torch.autograd.grad(squares, scores, create_graph=True)
    with pytest.raises(RuntimeError, match='once_differentiable'):
        first.sum().backward()
    assert not with_gradient(scores.detach(), losses, gradient).requires_grad
    with torch.no_grad():
        assert not with_gradient(scores, losses, gradient).requires_grad


each_function = pytest.mark.parametrize('function', [direct_ap_loss, direct_zero_one_loss])
each_mode = pytest.mark.parametrize('mode', MODES)


@each_mode
@each_function
def test_a_weight_of_0_removes_an_item(function, mode):
    scores, target = items(30)
    weight = (torch.arange(30) % 3 > 0).double()
    kept = weight > 0
    value, gradient = value_and_gradient_of(function, scores.where(kept, math.nan), target, 0.5, mode, weight=weight)
    expected, of_kept = value_and_gradient_of(function, scores[kept], target[kept], 0.5, mode)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient[kept], of_kept)
    assert not gradient[~kept].any()
    value, gradient = value_and_gradient_of(function, scores, target, 0.5, mode, weight=torch.zeros(30))
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        (dict(epsilon=0.0), ValueError, '`epsilon`'),
        (dict(mode='both'), ValueError, "`mode`.*'both'"),
        (dict(scores=torch.ones(3).long()), TypeError, '`scores`.*int64'),
        (dict(scores=torch.ones(3, 1)), ValueError, '`scores`'),
        (dict(target=torch.ones(4)), ValueError, '`target`.*4'),
        (dict(target=torch.tensor([0, 1, 2])), ValueError, '`target`.*2'),
        (dict(weight=torch.ones(2)), ValueError, '`weight`'),
        (dict(weight=torch.tensor([1.0, 0.5, 1.0])), ValueError, r'`weight`.*0\.5'),
    ],
)
@each_function
def test_bad_input(function, arguments, error, message):
    with pytest.raises(error, match=message):
        function(**{**dict(scores=torch.ones(3), target=torch.tensor([0, 1, 1])), **arguments})

"""A loss of several rows of scores, each with the gradient that it was given."""

import pytest
import torch

from mmseg_nondecomp.functional.direct._gradient import with_gradient


def rows(dtype=torch.float64):
    """Scores, losses that have nothing to do with them, and gradients; of three rows, in double precision."""
    generator = torch.Generator().manual_seed(0)
    scores, gradient = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    return scores.to(dtype).requires_grad_(), torch.tensor([0.1, 0.0, 7.0]).double(), gradient


def test_the_gradient_is_the_given_one():
    scores, losses, gradient = rows()
    found = with_gradient(scores, losses, gradient)
    assert torch.equal(found, losses)
    found.sum().backward()
    assert torch.equal(scores.grad, gradient)


def test_each_row_has_the_factor_of_its_loss():
    scores, losses, gradient = rows()
    factors = torch.tensor([2.0, 0.0, -0.5]).double()
    (factors * with_gradient(scores, losses, gradient)).sum().backward()
    assert torch.equal(scores.grad, factors.unsqueeze(1) * gradient)


def test_a_constant_factor():
    scores, losses, gradient = rows()
    with_gradient(scores, losses, gradient, factor=0.25).sum().backward()
    assert torch.equal(scores.grad, 0.25 * gradient)


def test_the_chain_goes_on_before_the_scores():
    scores, losses, gradient = rows()
    with_gradient(3 * scores, losses, gradient).sum().backward()
    torch.testing.assert_close(scores.grad, 3 * gradient, rtol=1e-15, atol=0)


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
    found = with_gradient(scores, losses, gradient)
    assert found.dtype == expected
    torch.testing.assert_close(found.detach(), losses.to(expected), rtol=0, atol=0)
    found.sum().backward()
    assert scores.grad.dtype == dtype
    torch.testing.assert_close(scores.grad.double(), gradient, rtol=torch.finfo(dtype).eps, atol=1e-6)


def test_a_factor_is_applied_before_the_gradient_is_rounded():
    """So a sum over many items is no infinity in half precision where their mean is a number."""
    scores, losses, gradient = rows(torch.float16)
    (with_gradient(scores, losses, 1e6 * gradient.sign()).sum() / 1e6).backward()
    assert torch.equal(scores.grad.double(), gradient.sign())


def test_neither_the_losses_nor_the_gradient_are_differentiated():
    scores, losses, gradient = rows()
    found = with_gradient(scores, losses.requires_grad_(), gradient.requires_grad_())
    found.sum().backward()
    assert losses.grad is None
    assert gradient.grad is None


def test_there_is_no_second_derivative_to_be_wrong():
    scores, losses, gradient = rows()
    squares = with_gradient(scores, losses, gradient).square().sum()
    (first,) = torch.autograd.grad(squares, scores, create_graph=True)
    with pytest.raises(RuntimeError, match='once_differentiable'):
        first.sum().backward()


def test_scores_that_are_not_trained_have_no_graph():
    scores, losses, gradient = rows()
    assert not with_gradient(scores.detach(), losses, gradient).requires_grad
    with torch.no_grad():
        assert not with_gradient(scores, losses, gradient).requires_grad


def test_the_losses_that_were_given_stay_as_they_are():
    scores, losses, gradient = rows()
    found = with_gradient(scores, losses, gradient)
    found.mul_(2)
    assert losses.tolist() == rows()[1].tolist()

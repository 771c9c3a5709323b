"""Calls of losses, and comparisons of the values and gradients that they return."""

import torch


def value_and_gradient(loss, scores, *args, **kwargs):
    """Return the value of a loss and the gradient of its sum with respect to the scores, both detached."""
    scores = scores.detach().requires_grad_()
    value = loss(scores, *args, **kwargs)
    return value.detach(), torch.autograd.grad(value.sum(), scores)[0]


def assert_same(found, expected, **tolerance):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, check_dtype=False, **tolerance)


def step_after_training_batch(loss):
    """Take the step of a loss that has one, as DualAscentHook does after each iteration."""
    if hasattr(loss, 'step'):
        loss.step()

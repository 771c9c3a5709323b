"""Equal to masked_fill and gather, in value and in gradients of both orders."""

import pytest
import torch

from mmseg_nondecomp.functional._inputs import label_scores

FILL = -7.0


def call(broadcast):
    """Scores, labels and a mask that leaves out no label, or whole items."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 4, 6, dtype=torch.float64, generator=generator).requires_grad_()
    label = torch.randint(4, (2, 1, 6), generator=generator)
    masked = torch.rand(2, 1 if broadcast else 4, 6, generator=generator) < 0.3
    return scores, label, masked


def reference(scores, label, masked):
    return torch.where(masked, FILL, scores), scores.gather(1, label)


@pytest.mark.parametrize('broadcast', [True, False])
def test_value_and_gradients_of_both_orders_are_those_of_the_definition(broadcast):
    scores, label, masked = call(broadcast)
    for found, expected in zip(label_scores(scores, label, masked, FILL), reference(*call(broadcast)), strict=True):
        assert torch.equal(found, expected)

    def cubes(scores):
        return [part**3 for part in label_scores(scores, label, masked, FILL)]

    def total(scores):
        rest, own = label_scores(scores, label, masked, FILL)
        return (rest**2).sum() + own.sum()

    assert torch.autograd.gradcheck(cubes, scores)
    assert torch.autograd.gradgradcheck(cubes, scores)
    expected = torch.autograd.grad(total(scores), scores)[0]
    torch.testing.assert_close(torch.func.grad(total)(scores.detach()), expected)


def test_one_gradient_of_two():
    scores, label, masked = call(True)
    _, own = label_scores(scores, label, masked, FILL)
    own.sum().backward()
    assert torch.equal(scores.grad, torch.zeros_like(scores).scatter(1, label, 1.0))

import pytest
import torch

from mmseg_nondecomp.functional.activations import activate, pull_back


@pytest.mark.parametrize('activation', ['softmax', 'sigmoid', 'margin', None])
@pytest.mark.parametrize('shape', [(2, 3, 5), (2, 1, 5), (4, 3)], ids=str)
def test_pulling_back_is_the_derivative(activation, shape):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(shape, generator=generator, dtype=torch.float64)
    scores = activate(logits, activation)
    (expected,) = torch.autograd.grad(scores, logits, upstream)
    torch.testing.assert_close(pull_back(upstream, scores.detach(), activation), expected, rtol=1e-13, atol=1e-15)


def test_scores_of_logits():
    logits = torch.tensor([[0.0, 1.0]])
    torch.testing.assert_close(activate(logits, 'softmax'), torch.tensor([[0.26894142, 0.73105858]]))
    torch.testing.assert_close(activate(logits, 'sigmoid'), torch.tensor([[0.5, 0.73105858]]))
    assert activate(logits, 'margin').tolist() == [[1.0, 2.0]]
    assert activate(logits, None) is logits

"""Theorem 1 of the paper: the gradient of an expected loss, for the inference of a user."""

import math

import pytest
import torch
from ranking_scenes import items, value_and_gradient_of
from reference.direct_loss import direct_loss_of_table

from mmseg_nondecomp.functional import (
    direct_ap_loss,
    direct_loss,
    direct_zero_one_loss,
    loss_augmented_ranking,
)
from mmseg_nondecomp.functional.direct._gradient import MODES

each_mode = pytest.mark.parametrize('mode', MODES)


def best_class(logits, loss, epsilon=0.1, mode='positive', truth=None):
    """Direct loss of logits [n, C] with the loss [n, C] of each class."""
    return direct_loss(
        lambda y: logits.gather(1, y.unsqueeze(1)).squeeze(1),
        lambda: logits.argmax(1),
        lambda weight: (logits + weight * loss).argmax(1),
        lambda y: loss.gather(1, y.unsqueeze(1)).squeeze(1),
        epsilon,
        mode,
        truth,
    )


def best_set(scores, label, k, epsilon, mode):
    """Direct loss of the k highest of scores [n, C]: 1 where the label is not among them."""
    label = label.unsqueeze(1)

    def highest(weight=0.0):
        # A set has the loss 1 unless it has the label: its score is as much higher with the label as the loss is lower.
        return scores.scatter_add(1, label, scores.new_full(label.shape, -weight)).topk(k).indices

    return direct_loss(
        lambda y: scores.gather(1, y).sum(1),
        highest,
        highest,
        lambda y: (y != label).all(1).to(scores.dtype),
        epsilon,
        mode,
    )


@each_mode
def test_it_is_the_enumeration_of_all_labellings(mode):
    generator = torch.Generator().manual_seed(0)
    scores, loss = torch.rand(2, 40, 6, generator=generator, dtype=torch.float64)
    truth, scores = loss.argmin(1), scores.requires_grad_()
    values = best_class(scores, loss, 0.4, mode, truth)
    upstream = torch.linspace(-1, 1, 40).double()
    (gradient,) = torch.autograd.grad(values, scores, upstream)
    for i, factor in enumerate(upstream.tolist()):
        expected = direct_loss_of_table(scores[i].tolist(), loss[i].tolist(), 0.4, mode, int(truth[i]))
        assert values[i].item() == pytest.approx(expected.value, abs=1e-14)
        assert gradient[i].tolist() == pytest.approx([factor * share for share in expected.gradient], abs=1e-13)


COST = torch.tensor([[0, 1, 5, 2], [1, 0, 1, 3], [1, 1, 0, 1], [4, 1, 2, 0]], dtype=torch.float64)
PROBLEMS = {
    'the cost of a class': lambda scores, label, *update: best_class(scores, COST[label], *update),
    'the label among the best two': lambda scores, label, *update: best_set(scores, label, 2, *update),
}


@pytest.mark.parametrize('mode', ['positive', 'negative'])
@pytest.mark.parametrize('losses', PROBLEMS.values(), ids=PROBLEMS.keys())
def test_the_gradient_of_an_expectation_is_the_limit(losses, mode):
    """Of a network with a hidden layer; the input is so finely sampled that its mean is differentiable."""
    x = torch.linspace(-4, 4, 60_001, dtype=torch.float64)
    density = torch.exp(-(x**2) / 2)
    label = torch.where(x.sin() > 0.3, 0, torch.where(x > -1, 1, 3))
    generator = torch.Generator().manual_seed(2)
    weights, *directions = torch.randn(4, 40, generator=generator, dtype=torch.float64)

    def expected_loss(weights, epsilon=0.1):
        (slope, shift), (*of_hidden, bias) = weights[:12].view(2, 6), weights[12:].view(7, 4)
        logits = torch.tanh(x.unsqueeze(1) * slope + shift) @ torch.stack(of_hidden) + bias
        return (density * losses(logits, label, epsilon, mode)).sum() / density.sum()

    steps = [0.02 * direction / direction.norm() for direction in directions]
    slopes = torch.stack([expected_loss(weights + step) - expected_loss(weights - step) for step in steps]) / 2
    assert slopes.norm() > 0.1 * 0.02, 'too small to compare'
    weights.requires_grad_()

    def error(epsilon):
        (gradient,) = torch.autograd.grad(expected_loss(weights, epsilon), weights)
        return ((torch.stack(steps) @ gradient - slopes).norm() / slopes.norm()).item()

    assert error(0.01) < min(0.03, error(0.3) / 3)


@each_mode
def test_average_precision_is_one_use(mode):
    scores, target = items(25)
    scores = scores.sort(descending=True).values
    expected = value_and_gradient_of(direct_ap_loss, scores, target, 0.8, mode)

    def of_ranking(scores, target, epsilon, mode):
        pos, neg = (scores[target == label].sort(descending=True).values for label in (1, 0))
        n_pairs = len(pos) * len(neg)

        def score(above):
            is_above = torch.arange(len(neg)) < above.unsqueeze(1)
            y = torch.where(is_above, -1.0, 1.0).to(scores)
            return (y * (pos.unsqueeze(1) - neg)).sum() / n_pairs

        def ranking(weight=0.0):
            return loss_augmented_ranking(pos, neg, abs(weight), 'positive' if weight >= 0 else 'negative')

        def loss(above):
            rank = torch.arange(1, len(pos) + 1).to(scores)
            return 1 - (rank / (rank + above)).mean()

        return direct_loss(score, ranking, ranking, loss, epsilon, mode, truth=torch.zeros(len(pos)).long())

    actual = value_and_gradient_of(of_ranking, scores, target, 0.8, mode)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-13)


@each_mode
def test_the_zero_one_loss_is_another(mode):
    scores, target = items(25)
    expected = value_and_gradient_of(direct_zero_one_loss, scores, target, 0.8, mode)

    def of_labels(scores, target, epsilon, mode):
        y = 2.0 * target - 1
        return direct_loss(
            lambda labels: (labels * scores).mean(),
            lambda: scores.sign(),
            lambda weight: (scores - weight * y / 2).sign(),
            lambda labels: (labels != y).double().mean(),
            epsilon,
            mode,
            truth=y,
        )

    actual = value_and_gradient_of(of_labels, scores, target, 0.8, mode)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-13)


def test_half_precision_and_an_infinite_score_of_another_class():
    logits = torch.tensor([[1.0, 0.9, -math.inf]], dtype=torch.bfloat16, requires_grad=True)
    value = best_class(logits, torch.tensor([[0.0, 1.0, 1.0]]), epsilon=0.5)
    assert value.dtype == torch.float32
    value.sum().backward()
    assert logits.grad.tolist() == [[-2.0, 2.0, 0.0]]


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (dict(epsilon=0.0), '`epsilon`'),
        (dict(mode='both'), "`mode`.*'both'"),
        (dict(mode='hinge'), r"`truth` should be given with `mode='hinge'`\. Found None"),
        (dict(mode='perceptron'), '`truth`'),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        best_class(torch.zeros(2, 3), torch.zeros(2, 3), **arguments)


def test_a_loss_of_another_shape():
    logits = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r'`loss` should return a value for each score, of shape \(2,\). Found \(\)'):
        direct_loss(lambda y: logits[:, 0], lambda: 0, lambda weight: 0, lambda y: torch.tensor(1.0))

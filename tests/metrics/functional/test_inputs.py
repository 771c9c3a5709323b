import pytest
import torch

from mmseg_nondecomp.metrics.segmentation import decided_classes, probability_items


def test_probabilities_stay_and_logits_become_probabilities():
    probs = torch.rand(2, 3, 4).softmax(1)
    target = torch.zeros(2, 4, dtype=torch.long)
    assert torch.equal(probability_items(probs, target, 3, None).scores, probs)
    torch.testing.assert_close(probability_items(probs.log(), target, 3, None).scores, probs)
    one = torch.randn(2, 4)
    torch.testing.assert_close(probability_items(one * 3, target, 1, None).scores[:, 0], (one * 3).sigmoid())


def test_a_decision_needs_a_score():
    preds = torch.tensor([[0, 2, 7, 1]])  # 7 is no class
    items = probability_items(preds, torch.zeros(1, 4, dtype=torch.long), 3, None)
    assert decided_classes(preds, items).tolist() == [[0, 2, 3, 1]]


def test_a_single_class_decides_at_a_half():
    preds = torch.tensor([[0.2, 0.5, 0.7]])
    items = probability_items(preds, torch.tensor([[0, 1, 1]]), 1, None)
    assert decided_classes(preds, items).tolist() == [[1, 1, 0]]  # 1 for none
    assert items.target.tolist() == [[1, 0, 0]]


@pytest.mark.parametrize('shape', [(2, 3), (1, 3, 4), (2, 3, 2, 5)], ids=str)
def test_nearly_equal_scores_decide(shape):
    preds = 1e-9 * torch.randn(shape)
    items = probability_items(preds, torch.zeros(shape[0], *shape[2:]).long(), 3, None)
    decided = decided_classes(preds, items)
    assert decided.shape == items.target.shape
    assert torch.equal(decided.flatten(), preds.argmax(1).flatten())


@pytest.mark.parametrize(
    'preds',
    [torch.rand(2, 4), torch.rand(2, 2, 4), torch.rand(4), torch.rand(()), torch.tensor(1)],
    ids=lambda p: f'{p.dtype} {tuple(p.shape)}',
)
def test_shapes_that_do_not_fit_are_named(preds):
    with pytest.raises(ValueError, match=r'`preds`.*\[N, 3, \*\]'):
        probability_items(preds, torch.zeros(2, 4, dtype=torch.long), 3, None)


@pytest.mark.parametrize('shape', [(6,), (2, 1, 3), (2, 3)], ids=str)
def test_shares_of_a_single_class_have_the_shape_of_the_scores(shape):
    preds, shares = torch.rand(shape), torch.rand(shape)
    items = probability_items(preds, shares, 1, None)
    assert items.scores.shape == items.target.shape
    assert torch.equal(items.scores.flatten(), preds.flatten())
    assert torch.equal(items.target.flatten(), shares.flatten())

import pytest
import torch

from mmseg_nondecomp.metrics.functional._inputs import decided_classes, decided_inputs, layout_of, probability_inputs

TARGET = torch.zeros(2, 4, dtype=torch.long)


def decided(preds, target, num_classes):
    layout = layout_of(num_classes)
    classes = decided_classes(preds, probability_inputs(preds, target, layout))
    assert torch.equal(classes, decided_inputs(preds, target, layout)[0])
    return classes


def test_logits_become_probabilities_and_decided_labels_one_hot():
    probs = torch.rand(2, 3, 4).softmax(1)
    assert torch.equal(probability_inputs(probs, TARGET, layout_of(3)).scores, probs)
    torch.testing.assert_close(probability_inputs(probs.log(), TARGET, layout_of(3)).scores, probs)
    one = 3 * torch.randn(2, 4)
    torch.testing.assert_close(probability_inputs(one, TARGET, layout_of(1)).scores[:, 0], one.sigmoid())
    assert decided(torch.tensor([[0, 2, 7, 1]]), TARGET[:1], 3).tolist() == [[0, 2, 3, 1]]
    preds, target = torch.tensor([[0.2, 0.5, 0.7]]), torch.tensor([[0, 1, 1]])
    assert decided(preds, target, 1).tolist() == [[1, 1, 0]]  # 1 for none
    assert probability_inputs(preds, target, layout_of(1)).target.tolist() == [[1, 0, 0]]
    assert decided_inputs(preds, target, layout_of(1))[1].tolist() == [[1, 0, 0]]


@pytest.mark.parametrize('shape', [(2, 3), (1, 3, 4), (2, 3, 2, 5)], ids=str)
def test_nearly_equal_scores_are_decided_by_the_highest(shape):
    preds, target = 1e-9 * torch.randn(shape), torch.zeros(shape[0], *shape[2:]).long()
    found = decided(preds, target, 3)
    assert found.shape == probability_inputs(preds, target, layout_of(3)).target.shape
    assert torch.equal(found.flatten(), preds.argmax(1).flatten())


@pytest.mark.parametrize('read', [probability_inputs, decided_inputs])
@pytest.mark.parametrize(
    'preds',
    [torch.rand(2, 4), torch.rand(2, 2, 4), torch.rand(4), torch.rand(()), torch.tensor(1)],
    ids=lambda p: f'{p.dtype} {tuple(p.shape)}',
)
def test_shapes_that_do_not_fit_are_named(read, preds):
    with pytest.raises(ValueError, match=r'`preds`.*\[N, 3, \*\]'):
        read(preds, TARGET, layout_of(3))


@pytest.mark.parametrize('shape', [(6,), (2, 1, 3), (2, 3)], ids=str)
def test_soft_labels_of_a_single_class_have_the_shape_of_the_scores(shape):
    preds, shares = torch.rand(shape), torch.rand(shape)
    inputs = probability_inputs(preds, shares, layout_of(1))
    assert inputs.scores.shape == inputs.target.shape
    assert torch.equal(inputs.scores.flatten(), preds.flatten())
    assert torch.equal(inputs.target.flatten(), shares.flatten())

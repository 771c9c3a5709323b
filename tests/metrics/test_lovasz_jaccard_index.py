import pytest
import torch
from reference import lovasz as reference
from torchmetrics.classification import BinaryJaccardIndex, MulticlassJaccardIndex

from mmseg_nondecomp.metrics import LovaszJaccardIndex

N_CLASSES = 5


def images(seed=0, n=3):
    generator = torch.Generator().manual_seed(seed)
    probs = torch.randn(n, N_CLASSES, 6, 7, generator=generator, dtype=torch.float64).mul(2).softmax(1)
    target = torch.randint(0, N_CLASSES - 1, (n, 6, 7), generator=generator)  # one class is never true
    target[:, :, 0] = 255
    return probs, target


@pytest.mark.parametrize('classes', ['present', 'all', [0, 2, 4]], ids=str)
@pytest.mark.parametrize('bins', [16, 1024])
def test_is_one_minus_the_loss_of_the_definition(classes, bins):
    probs, target = images()
    expected = reference.lovasz_softmax(
        probs.flatten(2).numpy(), target.flatten(1).numpy(), classes=classes, ignore_index=255
    )
    found = LovaszJaccardIndex(N_CLASSES, classes=classes, bins=bins)(probs, target)
    assert found.item() == pytest.approx(1 - float(expected), abs=1 / (2 * bins))


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize('average', ['macro', None])
def test_on_decisions_it_is_the_index_of_torchmetrics(seed, average):
    probs, target = images(seed)
    decided = probs.argmax(1)
    found = LovaszJaccardIndex(N_CLASSES, average=average, ignore_index=255)(decided, target)
    expected = MulticlassJaccardIndex(N_CLASSES, average=average or 'none', ignore_index=255)(decided, target)
    torch.testing.assert_close(found, expected)


def test_a_class_that_is_neither_true_nor_decided_does_not_count():
    decided, target = torch.tensor([[0, 0, 1]]), torch.tensor([[0, 1, 1]])
    found = LovaszJaccardIndex(3)(decided, target)
    assert found.item() == pytest.approx(0.5)
    torch.testing.assert_close(found, MulticlassJaccardIndex(3)(decided, target))
    each = LovaszJaccardIndex(3, average=None)(decided, target)
    torch.testing.assert_close(each, torch.tensor([0.5, 0.5, torch.nan]), equal_nan=True)


def test_of_a_single_class_it_is_the_binary_index():
    generator = torch.Generator().manual_seed(0)
    preds, target = torch.rand(2, 9, 9, generator=generator), torch.randint(0, 2, (2, 9, 9), generator=generator)
    hard = preds.round()
    torch.testing.assert_close(LovaszJaccardIndex(1)(hard, target), BinaryJaccardIndex()(preds, target))
    torch.testing.assert_close(LovaszJaccardIndex(1)(hard.unsqueeze(1), target), BinaryJaccardIndex()(preds, target))


def test_the_state_does_not_grow():
    metric = LovaszJaccardIndex(N_CLASSES)
    metric.update(*images())
    size = sum(state.numel() for state in metric.metric_state.values())
    for seed in range(3):
        metric.update(*images(seed))
    assert sum(state.numel() for state in metric.metric_state.values()) == size


def test_descending_its_gradient_raises_it():
    probs, target = images()
    logits = probs.log().requires_grad_()
    before = LovaszJaccardIndex(N_CLASSES, classes='present')(logits.softmax(1), target)
    (gradient,) = torch.autograd.grad(before, logits)
    after = LovaszJaccardIndex(N_CLASSES, classes='present')((logits + 10 * gradient).softmax(1), target)
    assert after > before + 1e-3


@pytest.mark.parametrize('bins', [None, 2.0])
def test_bins_are_an_integer(bins):
    with pytest.raises(TypeError, match='`bins`'):
        LovaszJaccardIndex(3, bins=bins)


def test_a_listed_class_has_to_exist():
    with pytest.raises(ValueError, match=r'`classes`.*Found 3'):
        LovaszJaccardIndex(3, classes=[0, 3])
    with pytest.raises(ValueError, match=r"`classes`.*Found 'some'"):
        LovaszJaccardIndex(3, classes='some')
    with pytest.raises(ValueError, match=r"`average`.*Found 'micro'"):
        LovaszJaccardIndex(3, average='micro')

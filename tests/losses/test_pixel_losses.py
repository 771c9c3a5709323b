import math

import pytest
import torch
import torch.nn.functional as F

from mmseg_nondecomp.functional.pixel_losses import binary_cross_entropy, cross_entropy, focal, one_vs_rest

LOSSES = [cross_entropy, binary_cross_entropy, focal]
SIGMOID_LOSSES = [binary_cross_entropy, focal]
SHAPES = [(6, 4), (2, 4, 5), (2, 4, 5, 3), (2, 4, 2, 3, 2)]


def example(shape, dtype=torch.float64):
    """Logits, labels in which 255 is no class, and which of them are."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator, dtype=dtype) * 3
    labels = torch.randint(0, max(shape[1], 2), (shape[0], *shape[2:]), generator=generator)
    labels.view(-1)[::4] = 255
    return logits, labels, labels != 255


def binary_definition(loss, logit, is_class):
    """One decision, from the formula: -log p, and for the focal loss -α (1 - p)² log p, of the true outcome."""
    p = 1 / (1 + math.exp(-logit))
    p_true = is_class * p + (1 - is_class) * (1 - p)
    cross_entropy_ = -is_class * math.log(p) - (1 - is_class) * math.log(1 - p)
    if loss is focal:
        return (0.25 * is_class + 0.75 * (1 - is_class)) * (1 - p_true) ** 2 * cross_entropy_
    return cross_entropy_


@pytest.mark.parametrize('shape', SHAPES, ids=str)
def test_cross_entropy_by_definition(shape):
    logits, labels, valid = example(shape)
    log_probability = logits.log_softmax(1).movedim(1, -1)
    expected = -log_probability.gather(-1, labels.where(valid, torch.tensor(0))[..., None])[..., 0]
    torch.testing.assert_close(cross_entropy(logits, labels, valid), expected.where(valid, torch.tensor(0.0).double()))


@pytest.mark.parametrize('n_channels', [1, 3])
@pytest.mark.parametrize('loss', SIGMOID_LOSSES)
def test_sigmoid_losses_by_definition(loss, n_channels):
    logits, labels, valid = example((7, n_channels))
    found = loss(logits, labels, valid)
    for item, label in enumerate(labels.tolist()):
        is_class = [float(label == 1)] if n_channels == 1 else [float(label == c) for c in range(n_channels)]
        terms = [binary_definition(loss, x, y) for x, y in zip(logits[item].tolist(), is_class, strict=True)]
        expected = sum(terms) / n_channels if label != 255 else 0
        assert found[item].item() == pytest.approx(expected, rel=1e-12)


def test_cross_entropy_of_one_channel_is_that_of_its_sigmoid():
    logits, labels, valid = example((2, 1, 5, 3))
    two_channels = torch.cat([torch.zeros_like(logits), logits], 1)
    torch.testing.assert_close(cross_entropy(logits, labels, valid), cross_entropy(two_channels, labels, valid))


@pytest.mark.parametrize('loss', SIGMOID_LOSSES)
def test_label_c_is_background_in_sigmoid_losses(loss):
    logits = torch.randn(3, 4)
    background, valid = torch.full((3,), 4), torch.ones(3, dtype=torch.bool)
    assert not one_vs_rest(background, valid, logits).any()
    torch.testing.assert_close(loss(logits, background, valid), loss(logits, torch.zeros_like(logits), valid))


@pytest.mark.parametrize('shape', [*SHAPES, (6, 1), (2, 1, 5, 3)], ids=str)
@pytest.mark.parametrize('loss', LOSSES)
def test_probabilities_of_zero_and_one_are_labels(loss, shape):
    logits, labels, valid = example(shape)
    n_classes = max(shape[1], 2)
    soft = F.one_hot(labels.where(valid, torch.tensor(0)), n_classes).movedim(-1, 1).double()
    soft = soft[:, 1:] if shape[1] == 1 else soft
    torch.testing.assert_close(loss(logits, soft, valid), loss(logits, labels, valid))


def test_cross_entropy_and_bce_are_linear_in_the_probabilities():
    logits, labels, _ = example((8, 4))
    valid = torch.ones(8, dtype=torch.bool)
    a, b = (F.one_hot(x, 4).double() for x in (labels.clamp(max=3), labels.clamp(max=3).flip(0)))
    for loss in (cross_entropy, binary_cross_entropy):
        expected = 0.3 * loss(logits, a, valid) + 0.7 * loss(logits, b, valid)
        torch.testing.assert_close(loss(logits, 0.3 * a + 0.7 * b, valid), expected)


@pytest.mark.parametrize('shape', SHAPES, ids=str)
def test_class_weights(shape):
    logits, labels, valid = example(shape)
    weight = torch.tensor([0.5, 2.0, 0.0, 3.0]).double()
    of_label = weight[labels.where(valid, torch.tensor(0))]
    expected = of_label * cross_entropy(logits, labels, valid)
    torch.testing.assert_close(cross_entropy(logits, labels, valid, weight), expected)
    for loss in SIGMOID_LOSSES:
        # A weight of zero for all but one class leaves the decision about that class.
        by_class = torch.stack([loss(logits, labels, valid, row) for row in torch.eye(4).double()])
        torch.testing.assert_close(loss(logits, labels, valid, weight), torch.tensordot(weight, by_class, 1))
        torch.testing.assert_close(by_class.sum(0), loss(logits, labels, valid))


@pytest.mark.parametrize('soft', [False, True], ids=['labels', 'probabilities'])
@pytest.mark.parametrize('n_channels', [1, 4])
@pytest.mark.parametrize('loss', LOSSES)
def test_invalid_items_are_zero_and_send_no_gradient(loss, n_channels, soft):
    logits, labels, valid = example((2, n_channels, 5, 3))
    target = torch.full_like(logits, 0.3) if soft else labels
    logits.requires_grad_()
    losses = loss(logits, target, valid)
    losses.sum().backward()
    assert (losses[~valid] == 0).all()
    assert (losses[valid] > 0).all()
    sent = logits.grad.abs().sum(1)
    assert (sent[~valid] == 0).all()
    assert (sent[valid] > 0).all()


@pytest.mark.parametrize('label', [255, -100, 10**6])
@pytest.mark.parametrize('loss', LOSSES)
def test_invalid_items_may_carry_any_label(loss, label):
    logits, labels, valid = example((2, 4, 5, 3))
    expected = loss(logits, labels, valid)
    torch.testing.assert_close(loss(logits, labels.where(valid, torch.tensor(label)), valid), expected)


@pytest.mark.parametrize('dtype', [torch.uint8, torch.int16, torch.int32])
@pytest.mark.parametrize('loss', LOSSES)
def test_integer_types_of_labels(loss, dtype):
    logits, labels, valid = example((2, 4, 5, 3))
    torch.testing.assert_close(loss(logits, labels.to(dtype), valid), loss(logits, labels, valid))


@pytest.mark.parametrize('loss', LOSSES)
def test_nan_of_an_invalid_item_does_not_reach_the_value(loss):
    logits, labels, valid = example((2, 4, 5, 3))
    poisoned = logits.masked_fill(~valid[:, None], math.nan)
    torch.testing.assert_close(loss(poisoned, labels, valid), loss(logits, labels, valid))
    assert loss(logits.fill_(math.nan), labels, valid)[valid].isnan().all()


@pytest.mark.parametrize('weight', [None, [0.5, 2.0, 0.0, 3.0]], ids=['plain', 'class weights'])
@pytest.mark.parametrize('loss', LOSSES)
def test_gradcheck(loss, weight):
    logits, labels, valid = example((2, 4, 3))
    weight = None if weight is None else torch.tensor(weight).double()
    soft = torch.rand(2, 4, 3).double().softmax(1)
    for target in (labels, soft):
        assert torch.autograd.gradcheck(lambda x, t=target: loss(x, t, valid, weight), logits.requires_grad_())


@pytest.mark.parametrize('loss', LOSSES)
def test_huge_logits_stay_finite(loss):
    logits = torch.tensor([[1e4, -1e4, 1e4], [-1e4, 1e4, -1e4]]).requires_grad_()
    losses = loss(logits, torch.tensor([1, 1]), torch.ones(2, dtype=torch.bool))
    losses.sum().backward()
    assert losses[0] > 1e3
    assert losses[1] == 0
    assert logits.grad.isfinite().all()

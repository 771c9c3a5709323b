import pytest
import torch

from mmseg_nondecomp import SoftIoULoss
from mmseg_nondecomp.functional import soft_iou


def batch(n_classes=4):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, n_classes, 6, 8, generator=generator, dtype=torch.float64) * 3
    labels = torch.randint(0, max(n_classes - 1, 2), (3, 6, 8), generator=generator)
    labels[0, :2] = labels[-1] = 255
    return logits.requires_grad_(), labels


@pytest.mark.parametrize('scope', ['image', 'batch'])
@pytest.mark.parametrize('classes', ['present', 'all', [0, 2]], ids=str)
def test_is_the_functional(scope, classes):
    logits, labels = batch()
    weight = [1.0, 0.5, 2.0, 3.0]
    found = SoftIoULoss(classes=classes, scope=scope, class_weight=weight)(logits, labels)
    expected = soft_iou(logits.softmax(1), labels, classes, scope == 'image', 255, weight)
    torch.testing.assert_close(found, expected)


def test_a_pixel_of_weight_two_is_two_pixels():
    logits, labels = batch()
    weight = torch.ones(labels.shape)
    weight[..., :4] = 2
    twice = torch.cat([logits, logits[..., :4]], -1), torch.cat([labels, labels[..., :4]], -1)
    torch.testing.assert_close(SoftIoULoss()(logits, labels, weight=weight), SoftIoULoss()(*twice))


def test_one_channel_is_the_foreground():
    logits, labels = batch(1)
    torch.testing.assert_close(SoftIoULoss()(logits, labels), soft_iou(logits.sigmoid(), labels, ignore_index=255))


def test_matching_soft_labels_is_the_minimum():
    logits, _ = batch()
    soft = logits.detach().softmax(1)
    assert SoftIoULoss()(logits, soft).item() == pytest.approx(0, abs=1e-12)
    assert SoftIoULoss()(logits * 1.5, soft) > 1e-2
    assert SoftIoULoss()(logits * 0.5, soft) > 1e-2


def test_contributions_have_the_gradient_of_the_loss():
    logits, labels = batch()
    terms = SoftIoULoss(scope='batch')(logits, labels, reduction_override='none')
    assert terms.shape == labels.shape
    assert (terms >= 0).all()
    (found,) = torch.autograd.grad(terms.sum(), logits)
    (expected,) = torch.autograd.grad(SoftIoULoss(scope='batch')(logits, labels), logits)
    torch.testing.assert_close(found, expected)

import pytest
import torch
from torchmetrics.classification import BinaryJaccardIndex, MulticlassJaccardIndex

from mmseg_nondecomp import LovaszHingeLoss, LovaszSoftmaxLoss, SoftIoULoss


def batch(n_channels):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, n_channels, 6, 8, generator=generator) * 2
    labels = torch.randint(0, max(n_channels, 2), (2, 6, 8), generator=generator)
    labels[0, :2] = 255
    return logits, labels


def logged(loss, logits, labels):
    """What is shown as ``train/<loss_name>_miou``."""
    return loss.jaccard_index(loss.items(logits, labels, None, 255)).float()


@pytest.mark.parametrize('loss', [LovaszSoftmaxLoss(), SoftIoULoss()], ids=str)
def test_the_logged_measure_is_the_index_of_the_choices(loss):
    logits, labels = batch(4)
    expected = MulticlassJaccardIndex(4, ignore_index=255)(logits.argmax(1), labels)
    torch.testing.assert_close(logged(loss, logits, labels), expected)


@pytest.mark.parametrize('loss', [LovaszSoftmaxLoss(), LovaszHingeLoss(), SoftIoULoss()], ids=str)
def test_of_one_channel_it_is_the_index_of_the_foreground(loss):
    logits, labels = batch(1)
    expected = BinaryJaccardIndex(ignore_index=255)((logits[:, 0] > 0).long(), labels)
    torch.testing.assert_close(logged(loss, logits, labels), expected)


def test_of_two_channels_the_hinge_decides_by_their_difference():
    logits, labels = batch(2)
    expected = BinaryJaccardIndex(ignore_index=255)(logits.argmax(1), labels)
    torch.testing.assert_close(logged(LovaszHingeLoss(), logits, labels), expected)


def test_of_decisions_it_is_the_mean_of_their_indices():
    logits, _ = batch(3)
    target = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)).round()
    each = [BinaryJaccardIndex()((logits[:, c] > 0).long(), target[:, c].long()) for c in range(3)]
    found = logged(LovaszSoftmaxLoss(use_sigmoid=True), logits, target)
    torch.testing.assert_close(found, torch.stack(each).mean())

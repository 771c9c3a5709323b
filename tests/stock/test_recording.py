"""The checks of the matrix find a loss that reads its targets the wrong way round, and a wrong value of masks."""

import pytest
import torch
from torch import nn

pytest.importorskip('mmseg')

from mmseg.models.losses import CrossEntropyLoss
from stock.recording import descent, direction_error, gradient_error, mask_error, recorded

from mmseg_nondecomp import LovaszHingeLoss, MaskLoss, SoftIoULoss


class Inverted(nn.Module):
    """A loss that takes every other class for the true one."""

    def forward(self, pred, target, **_):
        return SoftIoULoss()(-pred, target)


def calls_of(loss, pred, *args, **keywords):
    with recorded([loss]) as calls:
        loss(pred * 1.0, *args, **keywords).sum().backward()
    return calls


@pytest.fixture
def scores():
    return torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)


@pytest.fixture
def labels():
    return torch.randint(0, 3, (2, 4, 4), generator=torch.Generator().manual_seed(1))


def test_the_descent_of_cross_entropy_leads_to_the_labels(scores, labels):
    (call,) = calls_of(SoftIoULoss(), scores, labels)
    assert torch.equal(descent(call, CrossEntropyLoss(), 0.0).argmax(1), labels)


def test_an_inverted_loss_is_found(scores, labels):
    for loss, is_right in ((SoftIoULoss(), True), (Inverted(), False)):
        calls = calls_of(loss, scores, labels)
        assert (direction_error(calls, loss, [CrossEntropyLoss()]) is None) == is_right


def test_a_gradient_of_ignored_pixels_is_found(scores, labels):
    labels[:, 0] = 2
    loss = SoftIoULoss()
    assert gradient_error(calls_of(loss, scores, labels), loss, 255) is None
    assert gradient_error(calls_of(loss, scores, labels), loss, 2) == 'ignored pixels have a gradient'


def test_a_wrong_value_of_masks_is_found():
    masks = torch.randn(3, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss, plain = MaskLoss(dict(type='LovaszHingeLoss', bins=None)), LovaszHingeLoss(bins=None, mode='binary')
    calls = calls_of(loss, masks, (masks > 0.3).float(), avg_factor=3)
    assert mask_error(calls, loss, plain, 'CondInstMaskHead') is None
    assert 'that of the masks' in mask_error(calls, loss, SoftIoULoss(mode='binary'), 'CondInstMaskHead')

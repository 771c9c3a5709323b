import needs_openmmlab  # noqa: F401  isort: skip

import math

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import nn

from mmseg_nondecomp.losses.registered_pixel_loss import RegisteredPixelLoss


class _Elementwise(nn.Module):
    """An elementwise loss with the call form of MMSegmentation: what `terms` makes of the logits [N, C, *]."""

    def __init__(self, terms):
        super().__init__()
        self.terms = terms

    def forward(self, pred, target, reduction_override=None, **kwargs):
        assert reduction_override == 'none'
        return self.terms(pred)


@pytest.fixture
def of_terms(monkeypatch):
    """Builds the pixel loss of an elementwise loss that is registered for the test only."""
    monkeypatch.setitem(MODELS.module_dict, 'ElementwiseOfATest', _Elementwise)
    return lambda terms: RegisteredPixelLoss(dict(type='ElementwiseOfATest', terms=terms))


def example(n_classes=4):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, n_classes, 3, 5, generator=generator)
    labels = torch.randint(0, n_classes, (2, 3, 5), generator=generator)
    labels[:, 0] = 255
    return logits, labels, labels != 255


STOCK = {
    'mmseg.CrossEntropyLoss': dict(),
    'mmseg.CrossEntropyLoss, with class weights': dict(class_weight=[1.0, 2.0, 3.0, 4.0], avg_non_ignore=True),
    'mmdet.CrossEntropyLoss': dict(),
}


@pytest.mark.parametrize('name', STOCK)
@pytest.mark.filterwarnings('ignore:Default ``avg_non_ignore``')
def test_stock_cross_entropy(name):
    pytest.importorskip(name.partition('.')[0])
    logits, labels, valid = example()
    loss = RegisteredPixelLoss(dict(type=name.split(',')[0], **STOCK[name]))
    weight = torch.tensor(STOCK[name].get('class_weight', [1.0] * 4))
    expected = F.cross_entropy(logits, labels, weight, ignore_index=255, reduction='none')
    for dtype in (torch.int64, torch.int32, torch.uint8):
        torch.testing.assert_close(loss(logits, labels.to(dtype), valid), expected)


@pytest.mark.filterwarnings('ignore:Default ``avg_non_ignore``')
def test_stock_sigmoid_cross_entropy_is_averaged_over_channels():
    logits, labels, valid = example()
    loss = RegisteredPixelLoss(dict(type='mmseg.CrossEntropyLoss', use_sigmoid=True))
    is_class = F.one_hot(labels.where(valid, torch.tensor(0)), 4).movedim(-1, 1).float()
    expected = F.binary_cross_entropy_with_logits(logits, is_class, reduction='none').mean(1) * valid
    torch.testing.assert_close(loss(logits, labels, valid), expected)


def test_stock_focal_loss():
    """By probabilities: with labels, mmsegmentation 1.2.2 computes it on CUDA only."""
    logits, _, valid = example()
    is_class = torch.eye(4)[torch.randint(0, 4, (2, 3, 5))].movedim(-1, 1)
    p_true = torch.where(is_class == 1, logits.sigmoid(), 1 - logits.sigmoid())
    expected = (-0.5 * (1 - p_true) ** 3 * p_true.log()).mean(1) * valid
    loss = RegisteredPixelLoss(dict(type='mmseg.FocalLoss', gamma=3.0))
    torch.testing.assert_close(loss(logits, is_class, valid), expected)


@pytest.mark.filterwarnings('ignore:Default ``avg_non_ignore``')
def test_255_may_be_a_class():
    logits, labels = torch.randn(3, 300), torch.tensor([0, 255, 299])
    loss = RegisteredPixelLoss(dict(type='mmseg.CrossEntropyLoss'))
    found = loss(logits, labels, torch.ones(3, dtype=torch.bool))
    torch.testing.assert_close(found, F.cross_entropy(logits, labels, reduction='none'))


def test_stock_focal_loss_of_mmdetection():
    pytest.importorskip('mmdet')
    loss = RegisteredPixelLoss(dict(type='mmdet.FocalLoss'))
    assert loss(torch.randn(6, 4), torch.arange(6) % 5, torch.ones(6, dtype=torch.bool)).shape == (6,)


def test_invalid_items_are_zero_and_send_no_gradient(of_terms):
    logits, labels, valid = example()
    logits.requires_grad_()
    losses = of_terms(lambda pred: pred.square())(logits, labels, valid)
    losses.sum().backward()
    torch.testing.assert_close(losses, logits.square().mean(1) * valid)
    assert not logits.grad.movedim(1, -1)[~valid].any()


def test_nan_is_not_hidden(of_terms):
    logits, labels, valid = example()
    loss = of_terms(lambda pred: pred.square().mean(1))
    logits[0, 0, 0, 0], logits[0, 0, 2, 0] = math.nan, math.nan  # The first row is ignored.
    assert loss(logits, labels, valid).isnan().sum() == 1


def test_a_loss_of_the_whole_image_is_refused(of_terms):
    logits, labels, valid = example()
    with pytest.raises(ValueError, match=r'`pixel_loss` .*ElementwiseOfATest.*\(2,\).*\(2, 3, 5\)'):
        of_terms(lambda pred: pred.mean((1, 2, 3)))(logits, labels, valid)
    with pytest.raises(ValueError, match=r'`pixel_loss` .*DiceLoss'):
        RegisteredPixelLoss(dict(type='mmseg.DiceLoss'))(logits, labels, valid)


def test_a_negative_loss_is_refused(of_terms):
    logits, labels, valid = example()
    with pytest.raises(ValueError, match=r'`pixel_loss` .*ElementwiseOfATest returned -1\.5'):
        of_terms(lambda pred: 0 * pred.mean(1) - 1.5)(logits, labels, valid)


@pytest.mark.parametrize('cfg', [dict(gamma=2.0), None, 3, ['FocalLoss']])
def test_a_config_without_type_is_refused(cfg):
    with pytest.raises(TypeError, match='`pixel_loss`'):
        RegisteredPixelLoss(cfg)


def test_class_weights_belong_into_the_config():
    with pytest.raises(ValueError, match=r'`class_weight`.*`pixel_loss`.*FocalLoss'):
        RegisteredPixelLoss(dict(type='mmseg.FocalLoss'), [1.0, 2.0])


def test_an_unregistered_name_is_refused_at_construction():
    with pytest.raises(KeyError, match='NoSuchLoss'):
        RegisteredPixelLoss(dict(type='NoSuchLoss'))

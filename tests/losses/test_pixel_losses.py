import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mmseg_nondecomp.functional._inputs import AS_CLASSES, Reading, read_inputs
from mmseg_nondecomp.losses._pixel_losses import RegisteredPixelLoss, binary_cross_entropy, cross_entropy, focal

LOSSES = [cross_entropy, binary_cross_entropy, focal]
SIGMOID_LOSSES = [binary_cross_entropy, focal]
SHAPES = [(6, 4), (2, 4, 5), (2, 4, 5, 3), (2, 4, 2, 3, 2)]
each_loss = pytest.mark.parametrize('loss', LOSSES)


def example(shape=(2, 4, 5, 3), dtype=torch.float64):
    """Return logits, labels of which some are 255, and the mask of those that are not."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator, dtype=dtype) * 3
    labels = torch.randint(0, max(shape[1], 2), (shape[0], *shape[2:]), generator=generator)
    labels.view(-1)[::4] = 255
    return logits, labels, labels != 255


ONE_VS_REST = Reading(overlaps=True, has_background=True, is_stated=True)


def losses_of(loss, logits, target, class_weight=None, valid=None):
    """Return the losses of a call, in its layout [N, *]; where ``valid`` is given, others have the weight 0."""
    weight = None if valid is None else valid.to(logits.dtype)
    inputs = read_inputs(logits, target, weight, reading=AS_CLASSES if loss is cross_entropy else ONE_VS_REST)
    return inputs.as_called(loss(inputs) if class_weight is None else loss(inputs, class_weight))


def is_class(labels, n_channels):
    classes = torch.arange(n_channels) if n_channels > 1 else torch.tensor([1])
    return (labels.unsqueeze(1) == classes.view(1, -1, *[1] * (labels.dim() - 1))).double()


def binary_definition(loss, logit, is_class):
    """Return -log p of the true outcome of one decision, or the focal loss -α (1 - p)² log p."""
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
    expected = -log_probability.gather(-1, labels.where(valid, 0)[..., None])[..., 0]
    torch.testing.assert_close(losses_of(cross_entropy, logits, labels), expected.where(valid, 0))
    one = logits[:, :1]  # a channel alone is the logit of a sigmoid
    two = torch.cat([torch.zeros_like(one), one], 1)
    found, expected = (losses_of(cross_entropy, pred, labels.clamp(max=1)) for pred in (one, two))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('n_channels', [1, 3])
@pytest.mark.parametrize('loss', SIGMOID_LOSSES)
def test_sigmoid_losses_by_definition(loss, n_channels):
    logits, labels, valid = example((7, n_channels))
    found = losses_of(loss, logits, labels)
    for item, targets in enumerate(is_class(labels, n_channels).tolist()):
        terms = [binary_definition(loss, x, y) for x, y in zip(logits[item].tolist(), targets, strict=True)]
        expected = sum(terms) / n_channels if valid[item] else 0
        assert found[item].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize('shape', SHAPES, ids=str)
def test_class_weights(shape):
    logits, labels, valid = example(shape)
    weight = torch.tensor([0.5, 2.0, 0.0, 3.0]).double()
    expected = weight[labels.where(valid, 0)] * losses_of(cross_entropy, logits, labels)
    torch.testing.assert_close(losses_of(cross_entropy, logits, labels, weight), expected)
    for loss in SIGMOID_LOSSES:
        # A weight of zero for all but one class leaves the decision about that class.
        by_class = torch.stack([losses_of(loss, logits, labels, row) for row in torch.eye(4).double()])
        torch.testing.assert_close(losses_of(loss, logits, labels, weight), torch.tensordot(weight, by_class, 1))
        torch.testing.assert_close(by_class.sum(0), losses_of(loss, logits, labels))


@pytest.mark.parametrize('weight', [None, [0.5, 2.0, 0.0, 3.0]], ids=['plain', 'class weights'])
@each_loss
def test_gradcheck(loss, weight):
    logits, labels, _ = example((2, 4, 3))
    weight = None if weight is None else torch.tensor(weight).double()
    for target in (labels, torch.rand(2, 4, 3).double().softmax(1)):
        call = lambda x, target=target: losses_of(loss, x, target, weight)  # noqa: E731
        assert torch.autograd.gradcheck(call, logits.requires_grad_())


class _Elementwise(nn.Module):
    """An elementwise loss with the call form of MMSegmentation: a function of the logits [N, C, *]."""

    def __init__(self, terms):
        super().__init__()
        self.terms = terms

    def forward(self, pred, target, reduction_override=None, **kwargs):
        assert reduction_override == 'none'
        return self.terms(pred)


STOCK = {
    'mmseg.CrossEntropyLoss': dict(),
    'mmseg.CrossEntropyLoss, with class weights': dict(class_weight=[1.0, 2.0, 3.0, 4.0], avg_non_ignore=True),
    'mmdet.CrossEntropyLoss': dict(),
}


@pytest.mark.filterwarnings('ignore:Default ``avg_non_ignore``')
class TestRegisteredPixelLoss:
    @pytest.fixture(autouse=True)
    def _needs_openmmlab(self):
        pytest.importorskip('mmseg')

    @pytest.fixture
    def of_terms(self, monkeypatch):
        """Build the pixel loss of an elementwise loss that is registered for the test only."""
        from mmengine.registry import MODELS

        monkeypatch.setitem(MODELS.module_dict, 'ElementwiseOfATest', _Elementwise)
        return lambda terms: RegisteredPixelLoss(dict(type='ElementwiseOfATest', terms=terms))

    @pytest.mark.parametrize('name', STOCK)
    def test_stock_cross_entropy(self, name):
        pytest.importorskip(name.partition('.')[0])
        logits, labels, _ = example(dtype=torch.float32)
        loss = RegisteredPixelLoss(dict(type=name.split(',')[0], **STOCK[name]))
        weight = torch.tensor(STOCK[name].get('class_weight', [1.0] * 4))
        expected = F.cross_entropy(logits, labels, weight, ignore_index=255, reduction='none')
        for dtype in (torch.int64, torch.int32, torch.uint8):
            torch.testing.assert_close(losses_of(loss, logits, labels.to(dtype)), expected)

    def test_stock_sigmoid_cross_entropy_is_averaged_over_channels_and_255_may_be_a_class(self):
        logits, labels, valid = example(dtype=torch.float32)
        loss = RegisteredPixelLoss(dict(type='mmseg.CrossEntropyLoss', use_sigmoid=True))
        target = is_class(labels, 4).float()
        expected = F.binary_cross_entropy_with_logits(logits, target, reduction='none').mean(1) * valid
        torch.testing.assert_close(losses_of(loss, logits, labels), expected)
        logits, labels = torch.randn(3, 300), torch.tensor([0, 255, 299])
        found = losses_of(RegisteredPixelLoss(dict(type='mmseg.CrossEntropyLoss')), logits, labels)
        torch.testing.assert_close(found, F.cross_entropy(logits, labels, reduction='none'))

    def test_stock_focal_losses_take_soft_labels_and_those_of_mmdetection_labels(self):
        """With labels, mmsegmentation 1.2.2 computes it on CUDA only."""
        logits, labels, valid = example()
        target = is_class(labels, 4)
        p_true = torch.where(target == 1, logits.sigmoid(), 1 - logits.sigmoid())
        expected = (-0.5 * (1 - p_true) ** 3 * p_true.log()).mean(1) * valid
        loss = RegisteredPixelLoss(dict(type='mmseg.FocalLoss', gamma=3.0))
        torch.testing.assert_close(losses_of(loss, logits, target, valid=valid), expected)
        pytest.importorskip('mmdet')
        loss = RegisteredPixelLoss(dict(type='mmdet.FocalLoss'))
        assert losses_of(loss, torch.randn(6, 4), torch.arange(6) % 5).shape == (6,)

    def test_only_items_that_count_have_a_loss_which_is_elementwise_and_not_negative(self, of_terms):
        logits, labels, valid = example()
        losses = losses_of(of_terms(lambda pred: pred.square()), logits.requires_grad_(), labels)
        losses.sum().backward()
        torch.testing.assert_close(losses, logits.square().mean(1) * valid)
        assert not logits.grad.movedim(1, -1)[~valid].any()
        logits, labels, valid = example()
        with pytest.raises(ValueError, match=r'`pixel_loss` .*ElementwiseOfATest. Found -1\.5'):
            losses_of(of_terms(lambda pred: 0 * pred.mean(1) - 1.5), logits, labels)
        for n, *place in ((~valid).nonzero()[0], valid.nonzero()[0]):
            logits[(n, 0, *place)] = math.nan
        assert losses_of(of_terms(lambda pred: pred.square().mean(1)), logits, labels).isnan().sum() == 1
        logits, labels, _ = example()
        with pytest.raises(ValueError, match=r'`pixel_loss` .*ElementwiseOfATest.*\(2,\).*\(2, 5, 3\)'):
            losses_of(of_terms(lambda pred: pred.mean((1, 2, 3))), logits, labels)
        with pytest.raises(ValueError, match=r'`pixel_loss` .*DiceLoss'):
            losses_of(RegisteredPixelLoss(dict(type='mmseg.DiceLoss')), logits, labels)

    @pytest.mark.parametrize(
        ('args', 'error', 'message'),
        [
            *(([cfg], TypeError, '`pixel_loss`') for cfg in (dict(gamma=2.0), None, 3, ['FocalLoss'])),
            ([dict(type='mmseg.FocalLoss'), [1.0, 2.0]], ValueError, r'`class_weight`.*`pixel_loss`.*FocalLoss'),
            ([dict(type='NoSuchLoss')], KeyError, 'NoSuchLoss'),
        ],
    )
    def test_configs_that_do_not_fit_are_refused_at_construction(self, args, error, message):
        with pytest.raises(error, match=message):
            RegisteredPixelLoss(*args)

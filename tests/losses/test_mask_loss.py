"""Each mask is a set of its own, whatever the layout in which a mask head hands masks to its losses."""

import pytest
import torch
from calls import assert_same, value_and_gradient

import mmseg_nondecomp
from mmseg_nondecomp import LovaszHingeLoss, MaskLoss, SoftIoULoss

LOSSES = {
    'Lovász hinge': ('LovaszHingeLoss', dict(bins=None)),
    'Lovász hinge by histograms': ('LovaszHingeLoss', {}),
    'Lovász hinge, proximal': ('LovaszHingeLoss', dict(proximal=1.0)),
    'Lovász-Softmax': ('LovaszSoftmaxLoss', dict(bins=None)),
    'soft IoU': ('SoftIoULoss', {}),
    'Dice': ('SoftIoULoss', dict(alpha=0.5, beta=0.5, loss_weight=2.0)),
    'max-pooling': ('LossMaxPooling', {}),
    'average precision': ('DirectAPLoss', {}),
    '0-1': ('DirectZeroOneLoss', dict(epsilon=4.0)),
}
every_loss = pytest.mark.parametrize('which', LOSSES)
N, H, W = 4, 5, 6


def masks():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(N, H, W, generator=generator)
    return logits, torch.rand(N, H, W, generator=generator) > torch.arange(1, N + 1).view(-1, 1, 1) / 5


def built(which, **args):
    name, settings = LOSSES[which]
    return MaskLoss(getattr(mmseg_nondecomp, name)(scope='image', **settings), **args)


def of_each(which, logits, target):
    """Return the loss of each mask: that of an image with one channel."""
    name, settings = LOSSES[which]
    loss = getattr(mmseg_nondecomp, name)(**settings)
    pairs = zip(logits, target.long(), strict=True)
    return torch.stack([loss(x.reshape(1, 1, -1), y.reshape(1, -1)) for x, y in pairs])


@every_loss
def test_the_value_is_the_sum_over_masks_by_their_number(which):
    logits, target = masks()
    expected = value_and_gradient(lambda x: of_each(which, x, target).sum() / 7, logits)
    for same in (target, target.long(), target.byte(), target.float()):
        found = value_and_gradient(built(which), logits, same, avg_factor=7)
        assert_same(found, expected, rtol=1e-5, atol=1e-6)
    each = of_each(which, logits, target)
    assert_same([built(which)(logits, target)], [each.mean()])
    assert_same([built(which, loss_weight=3.0)(logits, target, reduction_override='sum')], [3 * each.sum()])
    assert_same([built(which)(logits, target, reduction_override='none')], [each])
    weight = torch.tensor([1.0, 0.0, 2.0, 0.5])
    assert_same([built(which)(logits, target, weight, avg_factor=2.0)], [(each * weight).sum() / 2])


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (dict(weight=torch.ones(N, H, W)), r'`weight` should be of shape \[4\], a number for each mask'),
        (dict(weight=torch.ones(N, 1)), r'`weight` should be of shape \[4\]'),
        (dict(from_logits=False), r'`pred` should hold probabilities in \[0, 1\]'),
    ],
)
def test_a_mistake_is_named(change, message):
    logits, target = masks()
    loss = MaskLoss(SoftIoULoss(scope='image'), from_logits=change.pop('from_logits', True))
    with pytest.raises(ValueError, match=message):
        loss(logits, target, **change)


def call_of(layout, logits, target):
    """Return the arguments of a head, and the factor by which it averages over N masks."""
    if layout == 'SOLO, CondInst, RTMDet-Ins':
        return (logits, target.float()), N
    if layout == 'loss_dice of Mask2Former':
        return (logits.reshape(N, -1), target.reshape(N, -1).float()), torch.tensor(float(N))
    if layout == 'loss_mask of Mask2Former':  # the points come from `grid_sample` as [N, 1, P, 1]
        points = (logits * 1).reshape(N, 1, -1, 1)
        points = points.clone().squeeze(3).squeeze(1)
        return (points.reshape(-1), target.reshape(-1).float()), torch.tensor(float(N * H * W))
    if layout == 'loss_mask of MaskFormer':
        return ((logits.unsqueeze(1) * 1).squeeze(1).reshape(-1, 1), 1 - target.long().reshape(-1)), N * H * W
    if layout == 'loss_mask_dice of SAN':
        return (logits.reshape(N, -1), target.reshape(N, -1).float()), torch.tensor([float(N)])
    classes = torch.tensor([2, 0, 1, 2])
    channels = torch.full((N, 3, H, W), 9.0)
    channels = channels.index_put((torch.arange(N), classes), logits)
    return (channels, target.float(), classes), None


@pytest.mark.parametrize(
    'layout',
    [
        'SOLO, CondInst, RTMDet-Ins',
        'loss_dice of Mask2Former',
        'loss_mask of Mask2Former',
        'loss_mask of MaskFormer',
        'loss_mask_dice of SAN',
        'Mask R-CNN',
    ],
)
@every_loss
def test_the_layouts_of_heads_have_the_same_value_and_gradient(which, layout):
    logits, target = masks()
    expected = value_and_gradient(lambda x: of_each(which, x, target).mean(), logits)

    def as_called(x):
        call, avg_factor = call_of(layout, x, target)
        return built(which)(*call, avg_factor=avg_factor)

    value, gradient = value_and_gradient(as_called, logits)
    assert value.shape == ()
    assert_same((value, gradient), expected, rtol=1e-5, atol=1e-6)


def test_the_factor_of_the_points_of_san_is_known_by_its_name():
    logits, target = (part.reshape(N, -1) for part in masks())
    loss = built('soft IoU', loss_name='loss_mask_ce')
    expected = of_each('soft IoU', logits, target).mean()
    assert_same([loss(logits, target.float(), avg_factor=torch.tensor([float(logits.numel())]))], [expected])


def test_probabilities_have_the_value_of_their_logits():
    logits, target = masks()
    for which in LOSSES:
        found = built(which, from_logits=False)(logits.sigmoid(), target)
        assert_same([found], [built(which)(logits, target)], rtol=1e-4, atol=1e-5)


def test_shares_of_the_object_are_soft_labels_but_of_losses_that_need_a_decision():
    logits, target = masks()
    shares = target.float() * 0.8 + 0.1
    of_shares = torch.stack([SoftIoULoss()(x[None, None], y[None, None]) for x, y in zip(logits, shares, strict=True)])
    assert_same([built('soft IoU')(logits, shares)], [of_shares.mean()])
    assert_same([built('average precision')(logits, shares)], [built('average precision')(logits, target)])


def test_no_mask_is_a_zero_that_can_be_differentiated():
    for reduction, shape in ((None, ()), ('none', (0,))):
        pred = torch.zeros(0, H, W, requires_grad=True)
        value = built('soft IoU')(pred, torch.zeros(0, H, W), reduction_override=reduction, avg_factor=1)
        assert value.shape == shape
        value.sum().backward()
        assert pred.grad.shape == pred.shape


def test_ignored_points_are_left_out():
    logits, target = masks()
    labels = target.long().masked_fill(torch.rand(N, H, W) < 0.3, 255)
    expected = torch.stack([SoftIoULoss()(x[None, None], y[None]) for x, y in zip(logits, labels, strict=True)]).mean()
    for loss in (built('soft IoU'), built('soft IoU', ignore_index=255)):
        assert_same([loss(logits, labels, ignore_index=255)], [expected])
    labels = labels.masked_fill(labels == 255, -100)
    assert_same([built('soft IoU', ignore_index=-100)(logits, labels)], [expected])


@pytest.mark.parametrize(
    ('loss', 'error', 'message'),
    [
        (dict(type='SMeasureLoss'), TypeError, r"`loss`.*a value for each image.*'SMeasureLoss'"),
        (dict(type='SmoothTopKLoss', k=2), TypeError, "'SmoothTopKLoss'"),
        (dict(type='CrossEntropyLoss'), TypeError, "'CrossEntropyLoss'"),
        (dict(type='LovaszHingeLoss', scope='batch'), ValueError, "`scope`.*'image'.*'batch'"),
        ('LovaszHingeLoss', TypeError, '`loss`'),
        (LovaszHingeLoss(), ValueError, "`scope`.*'batch'"),
    ],
)
def test_losses_without_a_value_for_each_mask_are_refused(loss, error, message):
    pytest.importorskip('mmengine')
    with pytest.raises(error, match=message):
        MaskLoss(loss)


def test_masks_that_cannot_be_told_apart_and_shapes_that_differ_are_refused():
    logits, target = masks()
    loss = built('soft IoU')
    with pytest.raises(ValueError, match=r'masks cannot be told apart.*`loss_dice`'):
        loss(logits.flatten().clone(), target.flatten().float(), avg_factor=1)
    with pytest.raises(ValueError, match=r'`target` should have the shape of `pred`'):
        loss(logits, target[:2])
    with pytest.raises(ValueError, match=r'`weight` should hold the class of each mask'):
        loss(torch.zeros(N, 3, H, W), target, torch.rand(N))
    with pytest.raises(TypeError, match=r'`target`.*a tensor'):
        loss(logits, None)


@pytest.mark.parametrize(
    'call',
    [
        (torch.zeros(3, 20), torch.rand(3, 20).round(), dict(avg_factor=torch.tensor(3.0))),
        (torch.zeros(60), torch.rand(60).round(), dict(avg_factor=60.0)),
        (torch.zeros(3, 4, 5), torch.rand(3, 4, 5).round(), dict(avg_factor=3.0)),
        (torch.zeros(3, 7, 4, 5), torch.rand(3, 4, 5).round(), dict(weight=torch.tensor([1, 0, 2]))),
    ],
    ids=['points', 'all points', 'maps', 'classes'],
)
@pytest.mark.parametrize(
    'name', ['LovaszHingeLoss', 'LovaszSoftmaxLoss', 'SoftIoULoss', 'LossMaxPooling', 'SMeasureLoss']
)
def test_without_it_such_calls_are_refused_by_a_message_that_names_it(name, call):
    pred, target, how = call
    with pytest.raises(ValueError, match='MaskLoss'):
        getattr(mmseg_nondecomp, name)()(pred, target, **how)

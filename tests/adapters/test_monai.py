"""Losses in the place of those of MONAI."""

import doctest
import sys

import pytest
import torch
from torch.testing import assert_close

from mmseg_nondecomp import (
    LossMaxPooling,
    LovaszHingeLoss,
    LovaszSoftmaxLoss,
    SoftIoULoss,
    SumOfLosses,
    metric_loss,
)
from mmseg_nondecomp.adapters.monai import MonaiLoss
from mmseg_nondecomp.metrics import JaccardIndexByImage, LovaszJaccardIndex

monai = pytest.importorskip('monai')
DiceLoss, TverskyLoss = monai.losses.DiceLoss, monai.losses.TverskyLoss
one_hot = monai.networks.one_hot

SIZES = pytest.mark.parametrize('size', [(6, 5), (4, 3, 5)], ids=['2d', '3d'])
HALVES = dict(alpha=0.5, beta=0.5)
EXACT = dict(smooth_nr=0, smooth_dr=0)


def scene(*size, n=2, n_classes=3):
    """Return logits and labels [B, 1, *] with each class in each image."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, n_classes, *size, generator=generator, requires_grad=True)
    label = torch.randint(n_classes, (n, 1, *size), generator=generator)
    label.flatten(1)[:, :n_classes] = torch.arange(n_classes)
    return logits, label


def assert_same(first, second, logits, tolerance=1e-6):
    """Compare values and gradients of two losses."""
    gradients = [torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (first, second)]
    assert_close(first, second, rtol=0, atol=tolerance)
    assert gradients[0].abs().sum() > 0
    assert_close(*gradients, rtol=0, atol=tolerance)


def test_example():
    assert doctest.testmod(sys.modules[MonaiLoss.__module__]) == (0, 3)


@SIZES
@pytest.mark.parametrize('batch', [False, True])
@pytest.mark.parametrize('loss', [SoftIoULoss, LovaszSoftmaxLoss])
def test_equals_direct_call(size, batch, loss):
    logits, label = scene(*size)
    scope = 'batch' if batch else 'image'
    for activation, mode in (('softmax', 'multiclass'), ('sigmoid', 'multilabel')):
        direct = loss(mode=mode, scope=scope)
        ours = MonaiLoss(loss, batch=batch, to_onehot_y=True, **{activation: True})
        assert_same(ours(logits, label), direct(logits, label[:, 0]), logits)
        ours = MonaiLoss(direct, batch=batch, **{activation: True})
        assert_same(ours(logits, one_hot(label, 3)), direct(logits, one_hot(label, 3)), logits)


@SIZES
@pytest.mark.parametrize('batch', [False, True])
@pytest.mark.parametrize('include_background', [False, True])
@pytest.mark.parametrize('activation', ['softmax', 'sigmoid', 'other_act'])
def test_soft_iou_equals_losses_of_monai(size, batch, include_background, activation):
    logits, label = scene(*size)
    shared = dict(include_background=include_background, to_onehot_y=True, batch=batch)
    theirs = {**shared, **EXACT, activation: torch.sigmoid if activation == 'other_act' else True}
    shared |= {} if activation == 'other_act' else {activation: True}
    scores = logits.sigmoid() if activation == 'other_act' else logits
    for ours, oracle in (
        (MonaiLoss(SoftIoULoss, **HALVES, **shared), DiceLoss(**theirs)),
        (MonaiLoss(SoftIoULoss, **shared), DiceLoss(jaccard=True, **theirs)),
        (MonaiLoss(SoftIoULoss, alpha=0.3, beta=0.7, **shared), TverskyLoss(alpha=0.3, beta=0.7, **theirs)),
    ):
        assert_same(ours(scores, label), oracle(logits, label), logits)


def test_probabilities_equal_logits():
    logits, label = scene(6, 5)
    loss = MonaiLoss(LovaszSoftmaxLoss, to_onehot_y=True)
    assert_same(
        loss(logits.softmax(1), label),
        MonaiLoss(LovaszSoftmaxLoss, to_onehot_y=True, softmax=True)(logits, label),
        logits,
    )
    half = loss(logits.softmax(1).half(), label)
    assert_close(half, loss(logits.softmax(1), label), rtol=0, atol=1e-3)
    certain = one_hot(label, 3).requires_grad_()
    loss(certain, label).backward()
    assert certain.grad.isfinite().all()


def test_absent_classes_count_with_all_only():
    logits, label = scene(6, 5, n_classes=4)
    label.clamp_(max=2)
    shared = dict(include_background=False, to_onehot_y=True, softmax=True)
    theirs = DiceLoss(jaccard=True, reduction='none', **shared, **EXACT)(logits, label).flatten(1)
    assert_close(theirs[:, 2], torch.ones(2))
    assert_close(MonaiLoss(SoftIoULoss, classes='all', **shared)(logits, label), theirs.mean())
    assert_close(MonaiLoss(SoftIoULoss, **shared)(logits, label), theirs[:, :2].mean())
    weighted = MonaiLoss(SoftIoULoss, classes='all', weight=[1, 2, 5], **shared)(logits, label)
    assert_close(weighted, (theirs * torch.tensor([1, 2, 5])).sum(1).mean() / 8)


def test_images_without_foreground_leave_the_mean():
    logits, label = scene(6, 5)
    label[1] = 0
    loss = MonaiLoss(SoftIoULoss, include_background=False, to_onehot_y=True, softmax=True)
    assert_same(loss(logits, label), loss(logits[:1], label[:1]), logits)
    assert loss(logits, torch.zeros_like(label)) == 0


def test_background_counts_in_cross_entropy():
    logits, label = scene(6, 5)
    shared = dict(to_onehot_y=True, softmax=True)
    dice = MonaiLoss(SoftIoULoss, include_background=False, batch=True, **HALVES, **shared)(logits, label)
    loss = MonaiLoss('dice', include_background=False, **shared)(logits, label)
    assert_same(loss, dice + torch.nn.functional.cross_entropy(logits, label[:, 0]), logits)


def test_name_states_the_set():
    logits, label = scene(6, 5)
    shared = dict(to_onehot_y=True, softmax=True)
    for name, scope in (('miou', 'batch'), ('image_miou', 'image')):
        direct = metric_loss('miou', cross_entropy=0, scope=scope)(logits, label[:, 0])
        assert_same(MonaiLoss(name, cross_entropy=0, **shared)(logits, label), direct, logits)
    with pytest.raises(ValueError, match='`batch` should be None'):
        MonaiLoss('miou', batch=False)


def test_ignored_voxels():
    logits, label = scene(6, 5)
    label[:, :, 0] = 7
    loss = MonaiLoss(LovaszSoftmaxLoss, to_onehot_y=True, softmax=True, ignore_index=7)
    assert_same(loss(logits, label), loss(logits[:, :, 1:], label[:, :, 1:]), logits)
    assert loss(logits, torch.full_like(label, 7)) == 0
    with pytest.raises(ValueError, match='`ignore_index` should be None for one-hot'):
        MonaiLoss(SoftIoULoss, softmax=True, ignore_index=7)(logits, one_hot(label.clamp(max=2), 3))


def test_single_channel():
    logits, label = scene(6, 5, n_classes=2)
    logits = logits[:, :1]
    oracle = DiceLoss(sigmoid=True, **EXACT)(logits, label)
    assert_same(MonaiLoss(SoftIoULoss, sigmoid=True, **HALVES)(logits, label), oracle, logits)
    assert_same(MonaiLoss(SoftIoULoss, **HALVES)(logits.sigmoid(), label), oracle, logits)
    for wrong in (dict(softmax=True), dict(to_onehot_y=True), dict(sigmoid=True, include_background=False)):
        with pytest.raises(ValueError, match='a single channel takes `sigmoid=True` alone'):
            MonaiLoss(SoftIoULoss, **wrong)(logits, label)


def test_mistakes_in_calls():
    logits, label = scene(6, 5)
    for as_type in (torch.Tensor, monai.data.MetaTensor):
        with pytest.raises(ValueError, match='logits need `softmax=True`'):
            MonaiLoss(SoftIoULoss, to_onehot_y=True)(as_type(logits), as_type(label))
    with pytest.raises(ValueError, match='Labels need `to_onehot_y=True`'):
        MonaiLoss(SoftIoULoss, softmax=True)(logits, label)
    with pytest.raises(ValueError, match='Add the channel'):
        MonaiLoss(SoftIoULoss, softmax=True, to_onehot_y=True)(logits, label[:, 0])
    with pytest.raises(ValueError, match='One-hot targets need `to_onehot_y=False`'):
        MonaiLoss(SoftIoULoss, softmax=True, to_onehot_y=True)(logits, one_hot(label, 3))


@pytest.mark.parametrize(
    ('loss', 'wrong', 'message'),
    [
        (SoftIoULoss, dict(reduction='none'), '`reduction` should be one of'),
        (SoftIoULoss, dict(sigmoid=True, softmax=True), 'not both be True'),
        (SoftIoULoss(mode='multiclass'), dict(), "should have `mode='multilabel'`"),
        (SoftIoULoss(mode='multiclass'), dict(softmax=True, batch=False), "should have `scope='image'`"),
        (SoftIoULoss(mode='multiclass'), dict(softmax=True, include_background=False), 'have their defaults'),
        (LossMaxPooling, dict(softmax=True, include_background=False), 'unless classes are averaged'),
        (SoftIoULoss, dict(softmax=True, class_weight=[1, 2, 3]), '`class_weight` should be passed as `weight`'),
        (SoftIoULoss, dict(softmax=True, batch=True, scope='image'), '`scope` should be passed as `batch`'),
        (SoftIoULoss, dict(softmax=True, include_background=False, classes=[0]), "`classes` should be 'present'"),
        ('LovaszSoftmaxLoss', dict(softmax=True), 'pass `mmseg_nondecomp.LovaszSoftmaxLoss`'),
    ],
)
def test_arguments_that_cannot_be_honoured(loss, wrong, message):
    with pytest.raises(ValueError, match=message):
        MonaiLoss(loss, **wrong)


def test_metrics_agree_on_hard_predictions():
    logits, label = scene(12, 12, n=4)
    hard = one_hot(logits.argmax(1, keepdim=True), 3)
    iou = monai.metrics.MeanIoU()(hard, one_hot(label, 3))
    ours = JaccardIndexByImage(3)
    ours.update(hard, label[:, 0])
    assert_close(ours.compute()['image'].double(), iou.mean().double())
    # The index of the data set is that of its images as one.
    joined = monai.metrics.MeanIoU()(
        *(part.movedim(0, -2).flatten(-2).unsqueeze(0) for part in (hard, one_hot(label, 3)))
    )
    index = LovaszJaccardIndex(3)
    index.update(hard, label[:, 0])
    assert_close(index.compute().double(), joined.mean().double(), rtol=0, atol=1e-6)
    dice = monai.metrics.DiceMetric()(hard, one_hot(label, 3))
    assert_close(dice, 2 * iou / (1 + iou))


@SIZES
@pytest.mark.parametrize(
    'loss',
    [
        MonaiLoss('image_miou', softmax=True, to_onehot_y=True),
        MonaiLoss(LovaszHingeLoss, sigmoid=True, to_onehot_y=True),
        MonaiLoss(
            SumOfLosses([torch.nn.CrossEntropyLoss(), SoftIoULoss(mode='multiclass')]), softmax=True, to_onehot_y=True
        ),
    ],
    ids=['miou', 'hinge', 'sum'],
)
def test_trains_unet(size, loss):
    torch.manual_seed(0)
    size = tuple(8 for _ in size)
    model = monai.networks.nets.UNet(len(size), 1, 3, channels=(4, 8), strides=(2,))
    optimizer = torch.optim.Adam(model.parameters())
    images, label = torch.randn(2, 1, *size), monai.data.MetaTensor(scene(*size)[1])
    for _ in range(2):
        before = [parameter.detach().clone() for parameter in model.parameters()]
        optimizer.zero_grad()
        value = loss(monai.data.MetaTensor(model(images)), label)
        value.backward()
        optimizer.step()
        assert value.isfinite()
        assert type(value) is torch.Tensor
        assert any(not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))

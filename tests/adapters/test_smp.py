"""Losses in the place of those of segmentation_models_pytorch."""

import doctest
import sys

import pytest
import torch
from torch.testing import assert_close

from mmseg_nondecomp import LovaszHingeLoss, LovaszSoftmaxLoss, SoftIoULoss, metric_loss
from mmseg_nondecomp.adapters.smp import SMPLoss
from mmseg_nondecomp.metrics import LovaszJaccardIndex

smp = pytest.importorskip('segmentation_models_pytorch')

HALVES = dict(alpha=0.5, beta=0.5)
MODES = [smp.losses.BINARY_MODE, smp.losses.MULTICLASS_MODE, smp.losses.MULTILABEL_MODE]


def scene(mode, n_classes=3, n=2):
    """Return logits [N, C, 6, 5], and the targets of a mode with each class in each image."""
    generator = torch.Generator().manual_seed(0)
    n_channels = 1 if mode == 'binary' else n_classes
    logits = torch.randn(n, n_channels, 6, 5, generator=generator, requires_grad=True)
    label = torch.randint(n_classes if mode == 'multiclass' else 2, (n, n_channels, 6, 5), generator=generator)
    if mode == 'multiclass':
        label = label[:, 0]
        label.flatten(1)[:, :n_classes] = torch.arange(n_classes)
    return logits, label


def probabilities(logits, mode):
    return logits.softmax(1) if mode == 'multiclass' else logits.sigmoid()


def assert_same(first, second, logits, tolerance=1e-6):
    """Compare values and gradients of two losses."""
    gradients = [torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (first, second)]
    assert_close(first, second, rtol=0, atol=tolerance)
    assert gradients[0].abs().sum() > 0
    assert_close(*gradients, rtol=0, atol=tolerance)


def test_example():
    assert doctest.testmod(sys.modules[SMPLoss.__module__]) == (0, 3)


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('loss', [SoftIoULoss, LovaszSoftmaxLoss, LovaszHingeLoss])
def test_equals_direct_call(mode, loss):
    logits, target = scene(mode)
    direct = loss(mode=mode)(logits, target)
    for ours in (SMPLoss(loss, mode), SMPLoss(loss(mode=mode), mode)):
        assert_same(ours(logits, target), direct, logits)
    if loss is not LovaszHingeLoss or mode != 'multiclass':  # a hinge has no inverse of the softmax
        ours = SMPLoss(loss, mode, from_logits=False)
        assert_same(ours(probabilities(logits, mode), target), direct, logits)


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('from_logits', [True, False])
def test_soft_iou_equals_losses_of_smp(mode, from_logits):
    logits, target = scene(mode)
    scores = logits if from_logits else probabilities(logits, mode)
    for ours, oracle in (
        (dict(), smp.losses.JaccardLoss(mode, from_logits=from_logits, smooth=0)),
        (HALVES, smp.losses.DiceLoss(mode, from_logits=from_logits, smooth=0)),
        (dict(alpha=0.3, beta=0.7), smp.losses.TverskyLoss(mode, None, False, from_logits, alpha=0.3, beta=0.7)),
    ):
        ours = SMPLoss(SoftIoULoss, mode, from_logits, **ours)
        assert_same(ours(scores, target), oracle(scores, target), logits)


def test_absent_classes_lower_the_loss_of_smp():
    logits, target = scene('multiclass', n_classes=4)
    target.clamp_(max=2)
    theirs = smp.losses.JaccardLoss('multiclass')(logits, target)
    assert_same(SMPLoss(SoftIoULoss, 'multiclass')(logits, target) * 3 / 4, theirs, logits)
    listed = [0, 2]
    theirs = smp.losses.JaccardLoss('multiclass', classes=listed)(logits, target)
    assert_same(SMPLoss(SoftIoULoss, 'multiclass', classes=listed)(logits, target), theirs, logits)


def test_ignored_pixels():
    for mode in MODES[:2]:
        logits, target = scene(mode)
        target[..., 0] = 9
        for ours, theirs in (
            (SoftIoULoss, smp.losses.JaccardLoss(mode, ignore_index=9)),
            (LovaszSoftmaxLoss if mode == 'multiclass' else LovaszHingeLoss, smp.losses.LovaszLoss(mode, False, 9)),
        ):
            exact = {} if ours is SoftIoULoss else dict(bins=None)
            ours = SMPLoss(ours, mode, ignore_index=9, **exact)
            assert_same(ours(logits, target), theirs(logits, target), logits)
            assert ours(logits, torch.full_like(target, 9)) == 0
    assert smp.losses.LovaszLoss('multiclass', False, 9)(logits, torch.full_like(target, 9)).numel() == 0
    with pytest.raises(ValueError, match="`ignore_index` should be None with `mode='multilabel'`"):
        SMPLoss(SoftIoULoss, 'multilabel', ignore_index=9)


@pytest.mark.parametrize('per_image', [False, True])
def test_equals_lovasz_loss_of_smp(per_image):
    scope = 'image' if per_image else 'batch'
    for mode, loss in (('binary', LovaszHingeLoss), ('multiclass', LovaszSoftmaxLoss)):
        logits, target = scene(mode)
        theirs = smp.losses.LovaszLoss(mode, per_image)(logits, target)
        assert_same(SMPLoss(loss, mode, bins=None, scope=scope)(logits, target), theirs, logits)
    # In mode 'multilabel', theirs has one set of the pixels of all classes; ours has a set for each class.
    logits, target = scene('multilabel')
    target[:, 0, 1:] = 0
    theirs = smp.losses.LovaszLoss('multilabel', per_image)(logits, target)
    ours = SMPLoss(LovaszHingeLoss, 'multilabel', bins=None, scope=scope)(logits, target)
    joined = SMPLoss(LovaszHingeLoss, 'binary', bins=None, scope=scope)(
        *(x.flatten(1).unsqueeze(1) for x in (logits, target))
    )
    assert_same(joined, theirs, logits)
    assert (ours - theirs).abs() > 1e-3


def test_lovasz_loss_of_smp_does_not_read_from_logits():
    logits, target = scene('multiclass')
    probs = logits.softmax(1)
    theirs = smp.losses.LovaszLoss('multiclass', from_logits=False)(probs, target)
    ours = SMPLoss(LovaszSoftmaxLoss, 'multiclass', from_logits=False, bins=None)(probs, target)
    assert_close(ours, smp.losses.LovaszLoss('multiclass')(logits, target))
    assert (ours - theirs).abs() > 1e-3


def test_half_precision_and_certain_predictions():
    logits, target = scene('multiclass')
    for scores in ((4 * logits).half().softmax(1), (4 * logits).bfloat16().softmax(1)):
        ours = SMPLoss(LovaszSoftmaxLoss, 'multiclass', from_logits=False)(scores, target)
        assert_close(ours, LovaszSoftmaxLoss(mode='multiclass')(4 * logits, target), rtol=0, atol=1e-2)
        single = SMPLoss(LovaszSoftmaxLoss, 'multiclass', from_logits=False)(scores.float(), target)
        assert_close(ours, single, rtol=0, atol=1e-6)
    certain = torch.nn.functional.one_hot(target, 3).movedim(-1, 1).float().requires_grad_()
    loss = SMPLoss(SoftIoULoss, 'multiclass', from_logits=False)(certain, target)
    loss.backward()
    assert loss < 1e-5
    assert certain.grad.isfinite().all()


def test_mistakes():
    logits, target = scene('multiclass')
    with pytest.raises(ValueError, match='logits need `from_logits=True`'):
        SMPLoss(SoftIoULoss, 'multiclass', from_logits=False)(logits, target)
    with pytest.raises(ValueError, match='should add up to 1'):
        SMPLoss(SoftIoULoss, 'multiclass', from_logits=False)(logits.sigmoid(), target)
    with pytest.raises(ValueError, match='reads a single channel'):
        SMPLoss(SoftIoULoss, 'multiclass')(*scene('binary'))
    with pytest.raises(ValueError, match='`mode` should be one of'):
        SMPLoss(SoftIoULoss, 'multi-class')
    with pytest.raises(ValueError, match=r"`mode='multilabel'`.*Found SoftIoULoss with `mode=None`"):
        SMPLoss(SoftIoULoss(), 'multilabel')
    with pytest.raises(TypeError, match='Instead of `class_weights`: `class_weight`'):
        SMPLoss(SoftIoULoss, 'multiclass', class_weights=[1, 2, 3])
    with pytest.raises(TypeError, match='`loss` should be a loss'):
        SMPLoss(None, 'multiclass')


def test_metrics_agree():
    logits, target = scene('multiclass')
    counts = smp.metrics.get_stats(logits.argmax(1), target, mode='multiclass', num_classes=3)
    index = LovaszJaccardIndex(3)
    index.update(logits.argmax(1), target)
    assert_close(smp.metrics.iou_score(*counts, reduction='macro'), index.compute(), rtol=0, atol=1e-6)


def test_sums_state_their_settings_as_a_whole():
    logits, label = scene('multiclass')
    label[:, 0] = 255
    direct = metric_loss('image_miou', mode='multiclass', ignore_index=255, class_weight=[1.0, 2.0, 3.0])
    same = SMPLoss(direct, 'multiclass', ignore_index=255)
    assert_same(same(logits, label), direct(logits, label), logits)
    loss = SoftIoULoss(mode='multiclass', class_weight=[1.0, 2.0, 3.0])
    assert SMPLoss(loss, 'multiclass', class_weight=[1.0, 2.0, 3.0]).loss is loss
    with pytest.raises(ValueError, match='should have `ignore_index=7`'):
        SMPLoss(direct, 'multiclass', ignore_index=7)


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('from_logits', [True, False])
def test_trains_unet(mode, from_logits):
    torch.manual_seed(0)
    target = scene(mode)[1].new_zeros(2, *scene(mode)[1].shape[1:-2], 32, 32)
    target[..., :16] = 1
    activation = None if from_logits else 'softmax2d' if mode == 'multiclass' else 'sigmoid'
    n_classes = 1 if mode == 'binary' else 3
    model = smp.Unet('resnet18', encoder_weights=None, classes=n_classes, activation=activation)
    optimizer = torch.optim.Adam(model.parameters())
    loss = SMPLoss('miou', mode, from_logits)
    for _ in range(2):
        before = [parameter.detach().clone() for parameter in model.parameters()]
        optimizer.zero_grad()
        value = loss(model(torch.randn(2, 3, 32, 32)), target)
        value.backward()
        optimizer.step()
        assert value.isfinite()
        assert any(not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))

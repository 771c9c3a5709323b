"""The registered top-k losses: equal to the functions, in stock heads, with the top-k accuracy beside them."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from mmseg_nondecomp import HardTopKLoss, SmoothTopKLoss
from mmseg_nondecomp.functional import hard_topk_loss, smooth_topk_loss

PAIRS = [
    (SmoothTopKLoss(k=3, tau=0.5, margin=2.0), partial(smooth_topk_loss, k=3, tau=0.5, margin=2.0)),
    (HardTopKLoss(k=3, margin=2.0), partial(hard_topk_loss, k=3, margin=2.0)),
]


def pixels():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 6, 4, 5, generator=generator)
    labels = torch.randint(6, (2, 4, 5), generator=generator)
    labels[0, 0] = 255
    return logits, labels


def soft_labels(labels):
    return F.one_hot(labels.where(labels < 6, 0), 6).movedim(-1, 1).float()


@pytest.mark.parametrize(('loss', 'function'), PAIRS)
@pytest.mark.parametrize('reduction', [None, 'mean', 'sum', 'none'])
def test_equals_the_function(loss, function, reduction):
    logits, labels = pixels()
    weight = torch.rand(labels.shape).round()
    actual = loss(logits, labels, weight=weight, reduction_override=reduction, ignore_index=255)
    expected = function(logits, labels, weight=weight, reduction=reduction or 'mean', ignore_index=255)
    assert torch.equal(actual, expected)


@pytest.mark.parametrize('ks', [1, [1, 3]])
@pytest.mark.parametrize('soft', [False, True])
@pytest.mark.parametrize('reduction', [None, 'sum'])
def test_accuracy_is_logged_while_a_runner_trains(hub, ks, soft, reduction):
    logits, labels = pixels()
    target, weight = (soft_labels(labels), (labels < 6).float()) if soft else (labels, None)
    loss = SmoothTopKLoss(k=ks)
    hub.update_info('loop_stage', 'val')
    loss(logits, target, weight=weight, reduction_override=reduction)
    assert not hub.log_scalars
    hub.update_info('loop_stage', 'train')
    loss(logits, target, weight=weight, reduction_override=reduction)
    for k in [ks] if isinstance(ks, int) else ks:
        hits = (logits.topk(k, 1).indices == labels.unsqueeze(1)).any(1)[labels < 6]
        assert hub.get_scalar(f'train/loss_topk_top{k}').current() == pytest.approx(hits.float().mean().item())


@pytest.mark.parametrize('sampler', [None, dict(type='OHEMPixelSampler', min_kept=10)], ids=['', 'ohem'])
@pytest.mark.parametrize('loss', [dict(type='SmoothTopKLoss', k=2), dict(type='HardTopKLoss', k=2)], ids=str)
def test_in_a_decode_head(loss, sampler):
    head = pytest.importorskip('mmseg.models.decode_heads').FCNHead(
        in_channels=3,
        channels=4,
        num_convs=1,
        concat_input=False,
        num_classes=6,
        norm_cfg=None,
        loss_decode=loss,
        sampler=sampler,
    )
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample

    labels = pixels()[1]
    samples = [SegDataSample(gt_sem_seg=PixelData(data=label[None])) for label in labels]
    losses = head.loss([torch.randn(2, 3, 4, 5)], samples, None)
    losses['loss_topk'].backward()
    assert head.conv_seg.weight.grad.any()


@pytest.mark.parametrize(
    ('arguments', 'error', 'name'),
    [
        (dict(k=0), ValueError, 'k'),
        (dict(k=[]), ValueError, 'k'),
        (dict(k=[1, 1]), ValueError, 'k'),
        (dict(k=[1, 5], k_weights=[1.0]), ValueError, 'k_weights'),
        (dict(k=[1, 5], k_weights=[1.0, 0.0]), ValueError, 'k_weights'),
        (dict(tau=0), ValueError, 'tau'),
        (dict(margin=-1.0), ValueError, 'margin'),
    ],
)
def test_mistakes_are_found_at_construction(arguments, error, name):
    with pytest.raises(error, match=f'`{name}`'):
        SmoothTopKLoss(**arguments)


@pytest.mark.parametrize(('loss', 'function'), [(SmoothTopKLoss, smooth_topk_loss), (HardTopKLoss, hard_topk_loss)])
@pytest.mark.parametrize('soft', [False, True])
def test_several_k_have_the_mean_of_their_losses(loss, function, soft):
    logits, labels = pixels()
    target = soft_labels(labels) if soft else labels
    of_1, of_3 = (function(logits, target, k=k) for k in (1, 3))
    torch.testing.assert_close(loss(k=[1, 3])(logits, target), (of_1 + of_3) / 2)
    torch.testing.assert_close(loss(k=(3, 1), k_weights=(6, 2))(logits, target), 0.75 * of_3 + 0.25 * of_1)


def test_settings_are_shown():
    shown = 'SmoothTopKLoss(k=[1, 5], k_weights=(0.25, 0.75), margin=1.0, tau=1.0)'
    assert repr(SmoothTopKLoss(k=[1, 5], k_weights=[1, 3])) == shown
    assert repr(SmoothTopKLoss(k=3)) == 'SmoothTopKLoss(k=3, margin=1.0, tau=1.0)'
    assert repr(HardTopKLoss(k=3)) == 'HardTopKLoss(k=3, margin=1.0)'

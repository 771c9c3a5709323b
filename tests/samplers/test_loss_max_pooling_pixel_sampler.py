import needs_openmmlab  # noqa: F401  isort: skip

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from mmengine.structures import PixelData
from mmseg.models.decode_heads import FCNHead
from mmseg.registry import TASK_UTILS
from mmseg.structures import SegDataSample

from mmseg_nondecomp import LossMaxPooling, LossMaxPoolingPixelSampler
from mmseg_nondecomp.functional import max_pooling_weights

CROSS_ENTROPY = dict(type='CrossEntropyLoss', avg_non_ignore=True)
SIGMOID = dict(type='CrossEntropyLoss', avg_non_ignore=True, use_sigmoid=True, loss_name='loss_bce')
DICE = dict(type='DiceLoss', loss_name='loss_dice')


def batch():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 4, 6, 8, generator=generator) * 3
    labels = torch.randint(0, 4, (2, 1, 6, 8), generator=generator)
    labels[0, :, :2] = 255
    return logits, labels


def head(loss_decode=CROSS_ENTROPY, n_channels=4, **sampler):
    sampler = dict(type='LossMaxPoolingPixelSampler', **sampler) if sampler else None
    channels = dict(num_classes=4) if n_channels == 4 else dict(num_classes=2, out_channels=1, threshold=0.5)
    return FCNHead(in_channels=2, channels=2, num_convs=0, loss_decode=loss_decode, sampler=sampler, **channels)


def loss_of(a_head, logits, labels):
    samples = [SegDataSample(gt_sem_seg=PixelData(data=label)) for label in labels]
    return a_head.loss_by_feat(logits, samples)


def test_weights_are_those_of_each_image_times_its_valid_pixels():
    logits, labels = batch()
    weights = head(p=1.3, ratio=0.3).sampler.sample(logits, labels)
    losses = F.cross_entropy(logits, labels[:, 0], ignore_index=255, reduction='none')
    assert weights.shape == (2, 6, 8)
    for weight, loss, label in zip(weights, losses, labels[:, 0], strict=True):
        valid = label != 255
        n = valid.sum().item()
        torch.testing.assert_close(weight[valid], n * max_pooling_weights(loss[valid], 1.3, 0.3 * n))
        assert not weight[~valid].any()


def test_the_head_then_trains_on_the_pooled_loss():
    """For images of one size the sum over their pixels is the loss of LossMaxPooling, and so is its gradient."""
    logits, labels = batch()
    labels[1, :, :2] = 255
    gradients = []
    for a_head in (head(p=1.3), head(dict(type=LossMaxPooling, p=1.3, loss_name='loss_ce'))):
        logits.requires_grad_()
        value = loss_of(a_head, logits, labels)['loss_ce']
        gradients.append((value.detach(), torch.autograd.grad(value, logits)[0]))
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize('loss_decode', [CROSS_ENTROPY, [CROSS_ENTROPY, SIGMOID]], ids=['one loss', 'two losses'])
def test_p_infinite_leaves_the_losses_of_the_head_as_they_are(loss_decode):
    logits, labels = batch()
    found, expected = (loss_of(a_head, logits, labels) for a_head in (head(loss_decode, p=math.inf), head(loss_decode)))
    assert set(found) == set(expected)
    torch.testing.assert_close(found, expected)


def test_losses_add_up_before_they_are_pooled_and_dice_takes_no_part():
    logits, labels = batch()
    light = dict(type='CrossEntropyLoss', avg_non_ignore=True, loss_weight=0.1)
    weights = head([light, SIGMOID, DICE], p=1.3).sampler.sample(logits, labels)
    is_class = F.one_hot(labels[1, 0], 4).movedim(-1, 0).float()
    losses = 0.1 * F.cross_entropy(logits[1:], labels[1], reduction='none')[0]
    losses += F.binary_cross_entropy_with_logits(logits[1], is_class, reduction='none').mean(0)
    expected = 48 * max_pooling_weights(losses.flatten(), 1.3, 12)
    torch.testing.assert_close(weights[1].flatten(), expected)


@pytest.mark.parametrize('other', ['SMeasureLoss', 'DirectZeroOneLoss'])
def test_losses_without_terms_take_no_part(other):
    logits, labels = batch()
    both = head([CROSS_ENTROPY, dict(type=other)], p=1.3).sampler.sample(logits, labels)
    torch.testing.assert_close(both, head(p=1.3).sampler.sample(logits, labels))


def test_one_channel():
    logits, labels = batch()
    logits, labels = logits[:, :1], labels.where(labels == 255, labels % 2)
    a_head = head(SIGMOID, n_channels=1, p=1, ratio=0.5)
    weights = a_head.sampler.sample(logits, labels)
    hard = F.binary_cross_entropy_with_logits(logits[1, 0], labels[1, 0].float(), reduction='none')
    assert torch.equal(weights[1] > 0, hard >= hard.flatten().topk(24).values[-1])


def test_nothing_valid_weighs_nothing():
    logits, labels = batch()
    assert not head(p=1.3).sampler.sample(logits, torch.full_like(labels, 255)).any()
    value = loss_of(head(p=1.3), logits.requires_grad_(), torch.full_like(labels, 255))['loss_ce']
    value.backward()
    assert value == 0
    assert not logits.grad.any()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
def test_floating_point_types_and_no_gradient(dtype):
    logits, labels = batch()
    logits = logits.to(dtype).requires_grad_()
    weights = head(p=1.3).sampler.sample(logits, labels)
    assert weights.dtype == torch.float32
    assert not weights.requires_grad
    torch.testing.assert_close(weights, head(p=1.3).sampler.sample(logits.float(), labels), rtol=2e-2, atol=2e-2)


def test_is_built_by_name_with_the_head_as_context():
    context = SimpleNamespace()
    sampler = TASK_UTILS.build(dict(type='LossMaxPoolingPixelSampler', p=2.0), default_args=dict(context=context))
    assert isinstance(sampler, LossMaxPoolingPixelSampler)
    assert (sampler.context, sampler.p, sampler.ratio) == (context, 2.0, 0.25)


@pytest.mark.parametrize('bad', [dict(p=0.5), dict(ratio=0.0), dict(ratio=1.1)])
def test_configuration_errors_come_at_construction(bad):
    with pytest.raises(ValueError, match=f'`{next(iter(bad))}`'):
        head(**bad)


def test_needs_an_elementwise_loss():
    logits, labels = batch()
    with pytest.raises(ValueError, match=r'`loss_decode`.*DiceLoss'):
        head(DICE, p=1.3).sampler.sample(logits, labels)

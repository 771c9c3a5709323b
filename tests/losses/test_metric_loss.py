"""The recommended losses are those of docs/choosing.md, put together as they are called."""

import math

import pytest
import torch
import torch.nn.functional as F

from mmseg_nondecomp import (
    DirectAPLoss,
    LovaszSoftmaxLoss,
    MetricLoss,
    SMeasureLoss,
    SmoothTopKLoss,
    SoftIoULoss,
    metric_loss,
)
from mmseg_nondecomp.losses._recommended import CHOICES, NAMES
from mmseg_nondecomp.registry import HAS_MMENGINE, MODELS

DICE = dict(alpha=0.5, beta=0.5)
EXPECTED = {
    'dice': [(1.0, SoftIoULoss, DICE)],
    'image_dice': [(1.0, SoftIoULoss, dict(scope='image', **DICE))],
    'class_dice': [(1.0, SoftIoULoss, dict(scope='class', **DICE))],
    'accuracy': [],
}
ALONE = {
    'top3': (SmoothTopKLoss, dict(k=3)),
    'ap': (DirectAPLoss, {}),
    'f_beta': (SMeasureLoss, dict(measure='f_beta')),
    'auc_roc': (SMeasureLoss, dict(measure='auc_roc')),
    'auc_pr': (SMeasureLoss, dict(measure='auc_pr')),
    'precision_at_recall': (SMeasureLoss, dict(measure='precision_at_recall', target=0.8)),
    'recall_at_precision': (SMeasureLoss, dict(measure='recall_at_precision', target=0.8)),
}


def maps(n_classes=5, ignore_index=None):
    generator = torch.Generator().manual_seed(n_classes)
    logits = torch.randn(3, n_classes, 8, 9, generator=generator, requires_grad=True)
    labels = torch.randint(0, max(n_classes, 2), (3, 8, 9), generator=generator)
    if ignore_index is not None:
        labels[:, :2] = ignore_index
    return logits, labels


def iou_loss(logits, labels, several=False):
    """Return 3 L - log(1 - 0.999 L) of the present classes, each computed alone, and the weight of cross-entropy."""
    truth = [labels[:, c] if several else labels == c for c in range(logits.shape[1])]
    mode = 'multilabel' if several else 'multiclass'
    losses = [
        LovaszSoftmaxLoss([c], mode=mode)(logits, labels, ignore_index=-100) for c, of in enumerate(truth) if of.any()
    ]
    index = sum(1 - loss.item() for loss in losses)
    value = sum(3 * loss - torch.log(1 - 0.999 * loss) for loss in losses) / len(losses)
    return value, weight_of(index / len(losses) if several else max(0, (index - 1) / (len(losses) - 1)))


def weight_of(share):
    """Return the weight of cross-entropy: 0 at a share of 0, a half at 1/16, near 2/3 at 1."""
    return 2 * share / (3 * share + 1 / 16)


def mean_of(weight, cross_entropy, loss):
    return weight * cross_entropy + (1 - weight) * loss


def same(found, expected, scores):
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(value, scores)[0] for value in (found, expected)))


@pytest.mark.parametrize('measure', EXPECTED)
@pytest.mark.parametrize('ignore_index', [None, -100])
def test_measures_of_decisions_have_cross_entropy_beside_them(measure, ignore_index):
    logits, labels = maps(5, ignore_index)
    found = metric_loss(measure, ignore_index=ignore_index)(logits, labels)
    parts = [factor * kind(**args)(logits, labels, ignore_index=-100) for factor, kind, args in EXPECTED[measure]]
    same(found, F.cross_entropy(logits, labels, ignore_index=-100) + sum(parts), logits)


@pytest.mark.parametrize('ignore_index', [None, -100])
def test_cross_entropy_beside_the_loss_of_iou_has_a_rising_weight(ignore_index):
    logits, labels = maps(5, ignore_index)
    logits = (logits + 2 * F.one_hot(labels.clamp(0), 5).movedim(-1, 1)).detach().requires_grad_()
    loss, weight = iou_loss(logits, labels)
    assert 0.1 < weight < 0.9
    expected = mean_of(weight, F.cross_entropy(logits, labels, ignore_index=-100), loss)
    same(metric_loss('miou', ignore_index=ignore_index)(logits, labels), expected, logits)


def test_measures_of_images_average_their_losses():
    logits, labels = maps()
    by_image = [iou_loss(logits[[i]], labels[[i]])[0] for i in range(len(logits))]
    same(metric_loss('image_miou', cross_entropy=0)(logits, labels), sum(by_image) / len(by_image), logits)


@pytest.mark.parametrize('measure', EXPECTED)
def test_one_channel_and_several_labels_are_decisions_of_their_own(measure):
    logits, labels = maps(1)
    for name in (measure, measure.replace('dice', 'miou')):
        expected = F.binary_cross_entropy_with_logits(logits[:, 0], labels.float())
        parts = [factor * kind(**args)(logits, labels) for factor, kind, args in EXPECTED[measure]]
        same(metric_loss(name, mode='binary')(logits, labels), expected + sum(parts), logits)
    logits, several = several_labels()
    expected = F.binary_cross_entropy_with_logits(logits, several.float())
    parts = [factor * kind(mode='multilabel', **args)(logits, several) for factor, kind, args in EXPECTED[measure]]
    same(metric_loss(measure, mode='multilabel')(logits, several), expected + sum(parts), logits)


def several_labels():
    logits, _ = maps(5)
    return logits, (torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)) < 0.3).long()


def test_several_labels_have_a_rising_weight():
    logits, several = several_labels()
    loss, weight = iou_loss(logits, several, several=True)
    expected = mean_of(weight, F.binary_cross_entropy_with_logits(logits, several.float()), loss)
    same(metric_loss('miou', mode='multilabel')(logits, several), expected, logits)


@pytest.mark.parametrize('measure', ALONE)
def test_other_measures_have_one_loss(measure):
    kind, args = ALONE[measure]
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(40, 6, generator=generator, requires_grad=True), torch.arange(40) % 6
    options = {name: value for name, value in args.items() if name == 'target'}
    same(metric_loss(measure, **options)(scores, labels), kind(**args)(scores, labels), scores)


def test_every_measure_is_tested_and_every_name_is_one_of_a_measure():
    ious = {'miou', 'image_miou', 'class_miou'}
    assert {*EXPECTED, *ALONE} - {'top3'} | ious == set(CHOICES) - {'top5'}
    assert set(NAMES.values()) == set(CHOICES)


@pytest.mark.parametrize(
    ('one', 'other'),
    [
        ('mIoU', 'miou'),
        ('mean IoU', 'miou'),
        ('F1', 'dice'),
        ('mAP', 'ap'),
        ('Image-mIoU', 'image_miou'),
        ('AUROC', 'auc_roc'),
    ],
)
def test_usual_names_stand_for_the_same_loss(one, other):
    assert metric_loss(one).because == metric_loss(other).because
    assert [str(loss) for loss in metric_loss(one).losses] == [str(loss) for loss in metric_loss(other).losses]


def test_cross_entropy_and_the_settings_of_the_loss_can_be_changed():
    logits, labels = maps()
    alone = metric_loss('miou', cross_entropy=0, classes='all', bins=None, loss_weight=0.5)
    same(alone(logits, labels), 0.5 * iou_loss(logits, labels)[0], logits)
    both = metric_loss('top5', cross_entropy=2.0, tau=0.1, k=2)
    expected = 2 * F.cross_entropy(logits, labels) + SmoothTopKLoss(k=2, tau=0.1)(logits, labels)
    same(both(logits, labels), expected, logits)


def test_cross_entropy_enters_as_the_iou_rises():
    """The weight is 0 where all pixels have one class, and 32 / 49 where all are right."""
    labels = torch.arange(4).repeat_interleave(16).view(1, 8, 8)
    decided = labels.clone()
    decided[labels == 3] = 0
    for predicted, share in ((labels, 1), (decided, (2.5 / 4 - 1 / 4) / (3 / 4)), (torch.zeros_like(labels), 0)):
        logits = (40.0 * F.one_hot(predicted, 4)).movedim(-1, 1).requires_grad_()
        for measure in ('miou', 'image_miou', 'class_miou'):
            alone = metric_loss(measure, cross_entropy=0)(logits, labels)
            expected = mean_of(weight_of(share), F.cross_entropy(logits, labels), alone)
            same(metric_loss(measure)(logits, labels), expected, logits)


def test_the_weight_is_that_of_all_sets_together():
    """Two images: without errors in three classes, and one class of two everywhere."""
    labels = torch.stack([torch.arange(3).repeat_interleave(12).view(6, 6), torch.arange(36).view(6, 6) // 18])
    logits = 40.0 * F.one_hot(torch.stack([labels[0], torch.zeros(6, 6, dtype=torch.long)]), 3).movedim(-1, 1)
    weight = weight_of((3 + 1 / 2 - 2) / (3 + 2 - 2))
    alone = metric_loss('image_miou', cross_entropy=0)(logits, labels)
    expected = mean_of(weight, F.cross_entropy(logits, labels), alone)
    torch.testing.assert_close(metric_loss('image_miou')(logits, labels), expected)


def test_batches_of_one_class_and_without_objects():
    logits, labels = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(2, 4, 4).long()
    alone = metric_loss('miou', cross_entropy=0)
    torch.testing.assert_close(metric_loss('miou')(logits, labels), alone(logits, labels))
    one = logits[:, :1]  # a sigmoid: without an object, only cross-entropy has a gradient
    expected = weight_of(1) * F.binary_cross_entropy_with_logits(one[:, 0], labels.float())
    torch.testing.assert_close(metric_loss('miou')(one, labels), expected)
    for nothing in (metric_loss('miou')(logits, labels + 255), metric_loss('miou')(logits[:0], labels[:0])):
        assert nothing.item() == 0


def test_cross_entropy_is_left_out_while_one_class_is_nearly_everything():
    """With a constant weight, cross-entropy has most of the gradient; with the rising one, none."""
    labels = torch.zeros(1, 32, 32, dtype=torch.long)
    labels[:, :4, :8] = 1
    logits = torch.stack([torch.full((1, 32, 32), 3.4), torch.zeros(1, 32, 32)], 1).requires_grad_()
    alone = metric_loss('miou', cross_entropy=0)(logits, labels)
    same(metric_loss('miou')(logits, labels), alone, logits)


def test_a_constant_factor_takes_the_place_of_the_rising_weight():
    logits, labels = maps()
    logits = (logits + 2 * F.one_hot(labels, 5).movedim(-1, 1)).detach().requires_grad_()
    expected = 0.5 * F.cross_entropy(logits, labels) + iou_loss(logits, labels)[0]
    same(metric_loss('miou', cross_entropy=0.5)(logits, labels), expected, logits)


def test_terms_of_items_have_the_gradient_of_the_loss():
    logits, labels = maps()
    found = metric_loss('miou')
    terms = found(logits, labels, reduction_override='none')
    assert terms.shape == labels.shape
    gradients = [torch.autograd.grad(loss, logits)[0] for loss in (terms.sum(), found(logits, labels))]
    torch.testing.assert_close(*gradients)


def test_the_value_is_finite_where_everything_is_wrong():
    logits = 1e4 * F.one_hot(torch.zeros(1, 4, 4).long(), 3).movedim(-1, 1).float().requires_grad_()
    loss = metric_loss('miou')(logits, torch.ones(1, 4, 4).long())
    assert loss.item() == pytest.approx(3 - math.log(0.001), rel=1e-2)
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def test_the_gradient_at_the_start_has_the_size_of_that_of_cross_entropy():
    """For any number of classes, while that of the Lovász loss falls with the square of their number."""
    for n_classes in (4, 16, 64):
        logits = torch.zeros(2, n_classes, 64, 64, requires_grad=True)
        labels = torch.randint(0, n_classes, (2, 64, 64), generator=torch.Generator().manual_seed(0))
        losses = (metric_loss('miou'), LovaszSoftmaxLoss())
        ours, lovasz = (torch.autograd.grad(loss(logits, labels), logits)[0].norm() for loss in losses)
        size = torch.autograd.grad(F.cross_entropy(logits, labels), logits)[0].norm()
        assert 0.5 < ours / size < 2
        assert lovasz / size < 2 / n_classes


def test_cross_entropy_has_the_set_of_a_scope():
    logits, labels = maps()
    labels[0, :4] = 255
    pixels = F.cross_entropy(logits, labels, ignore_index=255, reduction='none').flatten(1)
    expected = (pixels.sum(1) / (labels != 255).flatten(1).sum(1)).mean()
    same(metric_loss('accuracy', scope='image')(logits, labels), expected, logits)


def test_the_choice_and_its_reason_are_printed():
    text = repr(metric_loss('top3'))
    assert "'top3': 1 * SmoothTopKLoss, because confusions within the k cost little" in text
    assert 'SmoothTopKLoss(k=3' in text
    assert "'miou': w * CrossEntropy + (1 - w) * IoULoss, because" in repr(metric_loss('miou'))


def test_step_moves_the_multipliers_and_is_allowed_everywhere():
    scores, labels = torch.randn(64, 1), (torch.arange(64) % 8 == 0).long()
    loss, direct = metric_loss('f_beta'), SMeasureLoss()
    for each in (loss, direct):
        each(scores.requires_grad_(), labels)
        each.step()
    assert str(loss.losses[0].get_extra_state()) == str(direct.get_extra_state())
    assert str(SMeasureLoss().get_extra_state()) != str(direct.get_extra_state())
    metric_loss('miou').step()


@pytest.mark.parametrize(
    ('options', 'error', 'message'),
    [
        (dict(measure='mio'), ValueError, r"`measure` should be 'miou', .* Found 'mio'. Did you mean 'miou'\?"),
        (dict(measure='boundary'), ValueError, "'precision_at_recall', .* Found 'boundary'.$"),
        (dict(measure=5), TypeError, '`measure` should be the name of a measure.* Found 5'),
        (dict(measure='precision_at_recall'), ValueError, '`target` should be a number'),
        (dict(measure='miou', cross_entropy=-1), ValueError, '`cross_entropy` should be'),
        (dict(measure='miou', cross_entropy='growing'), TypeError, '`cross_entropy` should be'),
        (dict(measure='top5', cross_entropy='rising'), TypeError, '`cross_entropy` should be'),
        (dict(measure='miou', per_image=True), TypeError, "Instead of `per_image`: `scope='image'`"),
        (dict(measure='miou', mode='binary', memory=8), TypeError, "loss for 'miou' is SoftIoULoss. .*`memory`"),
        (dict(measure='accuracy', cross_entropy=0), ValueError, "`cross_entropy` should be None for 'accuracy'"),
        (dict(measure='dice', mode='binry'), ValueError, '`mode` should be'),
        (dict(measure='top5', mode='multilabel'), ValueError, '`mode` should be'),
    ],
)
def test_a_mistake_is_named(options, error, message):
    with pytest.raises(error, match=message):
        metric_loss(**options)


@pytest.mark.skipif(not HAS_MMENGINE, reason='needs MMEngine')
def test_it_is_built_by_name():
    built = MODELS.build(dict(type='MetricLoss', measure='dice', loss_name='loss_of_mine'))
    assert isinstance(built, MetricLoss)
    assert built.loss_name == 'loss_of_mine'

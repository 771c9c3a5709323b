"""The recommended losses are those of docs/choosing.md, put together as they are called."""

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
    'miou': [(3.0, LovaszSoftmaxLoss, {})],
    'image_miou': [(3.0, LovaszSoftmaxLoss, dict(scope='image'))],
    'class_miou': [(3.0, LovaszSoftmaxLoss, dict(scope='class'))],
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


def rising(logits, labels, several=False):
    """Return the factor of cross-entropy for IoU, from the loss of each class alone."""
    present = [
        c for c in range(logits.shape[1]) if ((labels[:, c] if several else labels) == (1 if several else c)).any()
    ]
    mode = 'multilabel' if several else 'multiclass'
    index = [1 - LovaszSoftmaxLoss([c], mode=mode)(logits, labels, ignore_index=-100).item() for c in present]
    return sum(index) / len(index) if several else max(0, (sum(index) - 1) / (len(index) - 1))


def same(found, expected, scores):
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(value, scores)[0] for value in (found, expected)))


@pytest.mark.parametrize('measure', sorted({*EXPECTED} - {'image_miou', 'class_miou'}))
@pytest.mark.parametrize('ignore_index', [None, -100])
def test_measures_of_decisions_have_cross_entropy_beside_them(measure, ignore_index):
    logits, labels = maps(5, ignore_index)
    found = metric_loss(measure, ignore_index=ignore_index)(logits, labels)
    parts = [factor * kind(**args)(logits, labels, ignore_index=-100) for factor, kind, args in EXPECTED[measure]]
    factor = rising(logits, labels) if measure == 'miou' else 1
    same(found, factor * F.cross_entropy(logits, labels, ignore_index=-100) + sum(parts), logits)


@pytest.mark.parametrize('measure', EXPECTED)
def test_one_channel_and_several_labels_are_decisions_of_their_own(measure):
    logits, labels = maps(1)
    measure = measure.replace('image_miou', 'image_dice').replace('class_miou', 'class_dice')
    expected = F.binary_cross_entropy_with_logits(logits[:, 0], labels.float())
    parts = [factor * kind(**args)(logits, labels) for factor, kind, args in EXPECTED[measure.replace('miou', 'dice')]]
    same(metric_loss(measure, mode='binary')(logits, labels), expected + sum(parts), logits)
    logits, _ = maps(5)
    several = (torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)) < 0.3).long()
    expected = F.binary_cross_entropy_with_logits(logits, several.float())
    parts = [factor * kind(mode='multilabel', **args)(logits, several) for factor, kind, args in EXPECTED[measure]]
    expected = (rising(logits, several, True) if measure == 'miou' else 1) * expected + sum(parts)
    same(metric_loss(measure, mode='multilabel')(logits, several), expected, logits)


@pytest.mark.parametrize('measure', ALONE)
def test_other_measures_have_one_loss(measure):
    kind, args = ALONE[measure]
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(40, 6, generator=generator, requires_grad=True), torch.arange(40) % 6
    options = {name: value for name, value in args.items() if name == 'target'}
    same(metric_loss(measure, **options)(scores, labels), kind(**args)(scores, labels), scores)


def test_every_measure_is_tested_and_every_name_is_one_of_a_measure():
    assert {*EXPECTED, *ALONE} - {'top3'} == set(CHOICES) - {'top5'}
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
    same(alone(logits, labels), 1.5 * LovaszSoftmaxLoss('all', bins=None)(logits, labels), logits)
    both = metric_loss('top5', cross_entropy=2.0, tau=0.1, k=2)
    expected = 2 * F.cross_entropy(logits, labels) + SmoothTopKLoss(k=2, tau=0.1)(logits, labels)
    same(both(logits, labels), expected, logits)


def test_cross_entropy_enters_as_the_iou_rises():
    """The factor is 0 where all pixels have one class, and 1 where all are right."""
    labels = torch.arange(4).repeat_interleave(16).view(1, 8, 8)
    decided = labels.clone()
    decided[labels == 3] = 0
    for predicted, factor in ((labels, 1), (decided, (2.5 / 4 - 1 / 4) / (3 / 4)), (torch.zeros_like(labels), 0)):
        logits = (40.0 * F.one_hot(predicted, 4)).movedim(-1, 1).requires_grad_()
        for measure in ('miou', 'image_miou', 'class_miou'):
            alone = metric_loss(measure, cross_entropy=0)(logits, labels)
            same(metric_loss(measure)(logits, labels), factor * F.cross_entropy(logits, labels) + alone, logits)


def test_the_factor_is_that_of_all_sets_together():
    """Two images: without errors in three classes, and one class of two everywhere."""
    labels = torch.stack([torch.arange(3).repeat_interleave(12).view(6, 6), torch.arange(36).view(6, 6) // 18])
    logits = 40.0 * F.one_hot(torch.stack([labels[0], torch.zeros(6, 6, dtype=torch.long)]), 3).movedim(-1, 1)
    expected = (3 + 1 / 2 - 2) / (3 + 2 - 2) * F.cross_entropy(logits, labels)
    alone = metric_loss('image_miou', cross_entropy=0)(logits, labels)
    torch.testing.assert_close(metric_loss('image_miou')(logits, labels), expected + alone)


def test_batches_of_one_class_and_without_objects():
    logits, labels = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(2, 4, 4).long()
    alone = metric_loss('miou', cross_entropy=0)
    torch.testing.assert_close(metric_loss('miou')(logits, labels), alone(logits, labels))
    one = logits[:, :1]  # a sigmoid: without an object, only cross-entropy has a gradient
    expected = F.binary_cross_entropy_with_logits(one[:, 0], labels.float())
    torch.testing.assert_close(metric_loss('miou')(one, labels), expected)
    for nothing in (metric_loss('miou')(logits, labels + 255), metric_loss('miou')(logits[:0], labels[:0])):
        assert nothing.item() == 0


def test_cross_entropy_is_left_out_while_one_class_is_nearly_everything():
    """With a constant factor, cross-entropy has most of the gradient; with the rising one, none."""
    labels = torch.zeros(1, 32, 32, dtype=torch.long)
    labels[:, :4, :8] = 1
    logits = torch.stack([torch.full((1, 32, 32), 3.4), torch.zeros(1, 32, 32)], 1).requires_grad_()
    alone = metric_loss('miou', cross_entropy=0)(logits, labels)
    same(metric_loss('miou')(logits, labels), alone, logits)


def test_a_constant_factor_takes_the_place_of_the_rising_one():
    logits, labels = maps()
    logits = (logits + 2 * F.one_hot(labels, 5).movedim(-1, 1)).detach().requires_grad_()
    expected = 0.5 * F.cross_entropy(logits, labels) + 3 * LovaszSoftmaxLoss()(logits, labels)
    same(metric_loss('miou', cross_entropy=0.5)(logits, labels), expected, logits)
    dice = SoftIoULoss(**DICE)(logits, labels)
    expected = (5 * (1 - dice.item()) - 1) / 4 * F.cross_entropy(logits, labels) + dice
    same(metric_loss('dice', cross_entropy='rising')(logits, labels), expected, logits)


def test_terms_of_items_add_up_with_the_same_factor():
    logits, labels = maps()
    found = metric_loss('miou')
    terms = found(logits, labels, reduction_override='none')
    assert terms.shape == labels.shape
    torch.testing.assert_close(terms.sum(), found(logits, labels))


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
    assert "'miou': rising * CrossEntropy + 3 * LovaszSoftmaxLoss, because" in repr(metric_loss('miou'))


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

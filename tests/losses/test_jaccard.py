"""What the registered Jaccard losses share: terms, the logged measure, and the memory of the Lovász losses."""

import copy

import pytest
import torch
from jaccard_scenes import assert_same_loss, batch, several_labels
from torch.nn import ModuleDict
from torchmetrics.classification import BinaryJaccardIndex, MulticlassJaccardIndex

import mmseg_nondecomp
from mmseg_nondecomp import LovaszHingeLoss, LovaszSoftmaxLoss, SoftIoULoss
from mmseg_nondecomp.functional.lovasz.histogram import ProbabilityBins
from mmseg_nondecomp.losses._jaccard import HistogramMemory
from mmseg_nondecomp.metrics import JaccardIndexByImage

LOSSES = {
    'LovaszSoftmaxLoss': LovaszSoftmaxLoss,
    'LovaszSoftmaxLoss, sorted': lambda **settings: LovaszSoftmaxLoss(bins=None, **settings),
    'LovaszHingeLoss': LovaszHingeLoss,
    'LovaszHingeLoss, sorted': lambda **settings: LovaszHingeLoss(bins=None, **settings),
    'SoftIoULoss': SoftIoULoss,
}
each_loss = pytest.mark.parametrize('loss', LOSSES.values(), ids=LOSSES)


@pytest.mark.parametrize('scope', ['image', 'batch', 'class'])
@each_loss
def test_terms_add_up_to_the_loss_with_its_gradient(loss, scope):
    loss = loss(scope=scope, loss_weight=0.5)
    logits, labels = batch()
    terms = loss(logits, labels, reduction_override='none')
    assert terms.shape == labels.shape
    assert not terms[labels == 255].any()
    assert (terms >= 0).all()
    if isinstance(loss, SoftIoULoss):  # a ratio: the terms have its gradient and not its value
        gradients = (torch.autograd.grad(value, logits)[0] for value in (terms.sum(), loss(logits, labels)))
        torch.testing.assert_close(*gradients)
    else:
        assert_same_loss(terms.sum(), loss(logits, labels), logits)


@pytest.mark.parametrize('class_weight', [None, [1.0, 0.5, 2.0, 3.0, 4.0]], ids=['equal', 'weighted'])
@pytest.mark.parametrize('classes', ['present', 'all', [1, 2]], ids=str)
@each_loss
def test_a_set_for_each_class_is_averaged_over_the_images_that_contain_it(loss, classes, class_weight):
    logits, labels = batch()
    labels[1][labels[1] == 2] = 0  # class 2 is in the first image alone, class 4 in none
    images = [n for n in range(len(labels)) if (labels[n] != 255).any()]
    total = weights = 0
    for c, weight in enumerate(class_weight or [1.0] * 5):
        counted = [n for n in images if classes != 'present' or (labels[n] == c).any()]
        if counted and (isinstance(classes, str) or c in classes):
            of_images = [loss(classes=[c])(logits[n : n + 1], labels[n : n + 1]) for n in counted]
            total, weights = total + weight * torch.stack(of_images).mean(), weights + weight
    found = loss(scope='class', classes=classes, class_weight=class_weight)(logits, labels)
    assert_same_loss(found, total / weights, logits)


def test_of_decisions_a_set_for_each_class_is_the_class_average_of_the_metric():
    _, labels = batch()
    labels[1] = labels[0].flip(0)  # the same classes are true and decided in each image
    decided = torch.where(labels == 255, 0, labels).flip(-1)
    decided[0, :2] = 1
    logits = 1000.0 * torch.nn.functional.one_hot(decided, 5).movedim(-1, 1)
    expected = JaccardIndexByImage(5, ignore_index=255)(decided, labels)['class']
    for loss in (SoftIoULoss(scope='class'), LovaszSoftmaxLoss(scope='class', bins=None)):
        assert 1 - loss(logits, labels).item() == pytest.approx(expected.item(), abs=1e-6)


@each_loss
def test_a_pixel_of_weight_two_is_two_pixels(loss):
    logits, labels = batch()
    weight = torch.ones(labels.shape)
    weight[..., :4] = 2
    twice = torch.cat([logits, logits[..., :4]], -1), torch.cat([labels, labels[..., :4]], -1)
    assert_same_loss(loss()(logits, labels, weight=weight), loss()(*twice), logits)


def measured(loss, logits, labels):
    return loss.measures(loss.read(logits, labels, None, 255), None)['miou'].float()


@pytest.mark.parametrize('loss', [LovaszSoftmaxLoss(), LovaszHingeLoss(), SoftIoULoss()], ids=str)
def test_the_logged_measure_is_the_index_of_the_decisions_and_of_one_that_of_the_foreground(loss):
    for n_channels in (1, 2) if isinstance(loss, LovaszHingeLoss) else (1,):
        logits, labels = batch(n_channels)
        decided = logits.argmax(1) if n_channels == 2 else (logits[:, 0] > 0).long()
        torch.testing.assert_close(
            measured(loss, logits, labels), BinaryJaccardIndex(ignore_index=255)(decided, labels)
        )
    if isinstance(loss, LovaszHingeLoss):
        return
    logits, labels = batch(4)
    expected = MulticlassJaccardIndex(4, ignore_index=255)(logits.argmax(1), labels)
    torch.testing.assert_close(measured(loss, logits, labels), expected)
    of_decisions = type(loss)(use_sigmoid=True)
    assert of_decisions.use_sigmoid is True
    decisions = [BinaryJaccardIndex()((logits[:, c] > 0).long(), several_labels(4)[:, c].long()) for c in range(4)]
    torch.testing.assert_close(measured(of_decisions, logits, several_labels(4)), torch.stack(decisions).mean())


@pytest.mark.parametrize('thresh', [0.3, None])
@pytest.mark.parametrize('name', ['LovaszSoftmaxLoss', 'LovaszHingeLoss', 'SoftIoULoss'])
@pytest.mark.parametrize('with_cross_entropy', [False, True])
def test_ohem_of_mmsegmentation_selects_pixels_by_the_terms(name, thresh, with_cross_entropy):
    head = pytest.importorskip('mmseg.models.decode_heads').FCNHead(
        in_channels=4,
        channels=4,
        num_convs=0,
        concat_input=False,
        num_classes=4,
        sampler=dict(type='mmseg.OHEMPixelSampler', thresh=thresh, min_kept=20),
        loss_decode=[dict(type=name)] + with_cross_entropy * [dict(type='mmseg.CrossEntropyLoss')],
    )
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample

    logits = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.randint(0, 4, (2, 8, 8), generator=torch.Generator().manual_seed(1))
    samples = [SegDataSample(gt_sem_seg=PixelData(data=label[None])) for label in labels]
    found = head.loss_by_feat(logits, samples)
    loss = getattr(mmseg_nondecomp, name)()
    value = found[loss.loss_name]
    value.backward()
    assert value.isfinite()
    kept = logits.grad.abs().sum(1) > 0
    assert 0 < kept.sum() < kept.numel() or with_cross_entropy
    assert not torch.equal(value.detach(), loss(logits, labels).detach())


class TestMemory:
    def test_the_last_mini_batches_are_part_of_the_set(self):
        loss, exact = LovaszSoftmaxLoss(memory=2), LovaszSoftmaxLoss(bins=None)
        parts = [batch()[0].detach().roll(i, 0) * (1 + i) for i in range(4)]
        labels = batch()[1]
        for part in parts[:3]:
            loss(part, labels)
        now = parts[3].requires_grad_()
        values = (
            loss(now, labels),
            exact(torch.cat([parts[1], parts[2], now]), torch.cat([labels] * 3)),
            exact(now, labels),
        )
        found, expected, alone = ((value.item(), torch.autograd.grad(value, now)[0]) for value in values)
        assert found[0] == pytest.approx(expected[0], abs=2e-3)
        assert (found[1] - expected[1]).norm() < 2e-2 * expected[1].norm()
        assert abs(found[0] - alone[0]) > 1e-2

    def test_only_calls_that_train_change_it_and_its_size_and_classes_stay(self):
        loss = LovaszSoftmaxLoss(memory=4, bins=64)
        for _ in range(6):
            loss(*batch())
        assert loss.memory.kept.numel() == 4 * 5 * 2 * (64 + 1)  # one bin more, for errors of 0
        with pytest.raises(ValueError, match=r'`pred`.*5 classes.*3 now'):
            loss(*batch(3))
        logits, labels = batch()
        loss = LovaszSoftmaxLoss(memory=2)
        with torch.no_grad():
            assert loss(logits, labels, reduction_override='none').sum() > 0
        assert loss.memory.kept is None
        assert loss.training
        loss(logits, labels)
        kept = loss.eval().memory.kept
        assert torch.equal(loss(2 * logits, labels), loss(2 * logits, labels))
        assert torch.equal(loss.memory.kept, kept)

    def test_it_is_in_the_state_of_the_model_which_mmengine_can_average(self):
        logits, labels = batch()
        model, other = (ModuleDict(dict(loss=LovaszSoftmaxLoss(memory=3))) for _ in range(2))
        for scale in (1, 2):
            model['loss'](scale * logits, labels)
        other.load_state_dict(model.state_dict())
        assert torch.equal(other['loss'](3 * logits, labels), model['loss'](3 * logits, labels))
        copied = copy.deepcopy(model)
        assert torch.equal(copied['loss'](logits, labels), model['loss'](logits, labels))
        models = pytest.importorskip('mmengine.model')
        model = ModuleDict(dict(layer=torch.nn.Conv2d(3, 5, 1), loss=LovaszSoftmaxLoss(memory=2)))
        average = models.ExponentialMovingAverage(model)
        model['loss'](*batch())
        average.update_parameters(model)
        average.update_parameters(model)


BINS = 8


def histogram(seed):
    n_bins = ProbabilityBins(BINS).number
    return torch.randint(0, 9, (1, 3, 2, n_bins), generator=torch.Generator().manual_seed(seed)).double()


def memory_of(batches, seeds):
    memory = HistogramMemory(batches)
    for seed in seeds:
        memory.append(histogram(seed))
    return memory


class TestHistogramMemory:
    def test_the_mass_of_the_last_mini_batches_is_kept(self):
        assert not memory_of(2, []).past(histogram(0)).any()
        past = memory_of(2, range(4)).past(histogram(0))
        assert past.shape == histogram(0).shape
        torch.testing.assert_close(past.sum(3), (histogram(2) + histogram(3)).sum(3))
        past = memory_of(1, [0]).past(histogram(0))
        torch.testing.assert_close(past[..., 0], histogram(0)[..., 0])
        found, expected = (mass[..., 1:].unflatten(-1, (BINS, 3)).sum(-1) for mass in (past, histogram(0)))
        torch.testing.assert_close(found, expected)

    @pytest.mark.parametrize('batches', [2, 5])
    def test_a_state_may_be_empty_or_of_another_number_of_mini_batches(self, batches):
        memory = HistogramMemory(batches)
        memory.load_state_dict(memory_of(3, range(3)).state_dict())
        memory.append(histogram(3))
        assert torch.equal(memory.past(histogram(0)), memory_of(batches, range(4)).past(histogram(0)))
        assert str(memory) == f'HistogramMemory(batches={batches})'
        memory.load_state_dict(HistogramMemory(3).state_dict())
        assert memory.kept is None

    @pytest.mark.parametrize('state', [None, torch.ones(2).long(), torch.ones(2), torch.ones(2, 1, 3, 1, 9)], ids=str)
    def test_another_state_is_refused(self, state):
        with pytest.raises(ValueError, match=r'histograms \[K, 1, C, 2, B \+ 1\]. Found'):
            HistogramMemory(2).set_extra_state(state)

    def test_histograms_move_to_the_device_of_the_predictions(self):
        """A checkpoint is loaded to the CPU."""
        memory = HistogramMemory(2)
        memory.load_state_dict(memory_of(2, [0]).state_dict())
        elsewhere = histogram(1).to('meta')
        assert memory.past(elsewhere).device == elsewhere.device
        memory.append(elsewhere)
        assert memory.kept.device == elsewhere.device


@pytest.mark.parametrize('loss', [LovaszSoftmaxLoss, LovaszHingeLoss])
def test_a_memory_keeps_the_first_call_of_an_iteration(loss, hub):
    """DAHead and K-Net call their loss for each branch."""
    logits, labels = batch(4)
    by_branches, by_first = loss(memory=2, bins=8), loss(memory=2, bins=8)
    for iteration in range(3):
        hub.update_info('iter', iteration)
        by_first(logits + iteration, labels)
        for branch in range(3):
            by_branches(logits * (branch == 0) + iteration, labels)
    torch.testing.assert_close(by_branches.memory.kept, by_first.memory.kept)

import copy

import pytest
import torch
import torch.nn.functional as F
from reference import lovasz as reference

import mmseg_nondecomp
from mmseg_nondecomp import LovaszSoftmaxLoss
from mmseg_nondecomp.functional import lovasz_softmax


def batch(n_classes=5, n=3):
    """Three images; a part of the first and all of the last is ignored."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, n_classes, 6, 8, generator=generator, dtype=torch.float64) * 3
    labels = torch.randint(0, max(n_classes - 1, 2), (n, 6, 8), generator=generator)  # the last class is absent
    labels[0, :2] = labels[-1] = 255
    return logits.requires_grad_(), labels


def value_and_gradient(value, logits):
    return value.detach(), torch.autograd.grad(value, logits, retain_graph=True)[0]


def assert_same(found, expected, **tolerance):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


class TestDefinition:
    @pytest.mark.parametrize('bins', [None, 1024])
    @pytest.mark.parametrize('classes', ['present', 'all', [0, 2]], ids=str)
    @pytest.mark.parametrize('scope', ['image', 'batch'])
    def test_is_the_loss_of_the_paper(self, scope, classes, bins):
        logits, labels = batch()
        weight = [1.0, 0.5, 2.0, 0.0, 3.0]
        loss = LovaszSoftmaxLoss(classes=classes, scope=scope, class_weight=weight, bins=bins)
        expected = reference.lovasz_softmax(
            logits.detach().softmax(1).flatten(2).numpy(),
            labels.flatten(1).numpy(),
            classes=classes,
            per_image=scope == 'image',
            ignore_index=255,
            class_weight=weight,
        )
        assert loss(logits, labels).item() == pytest.approx(float(expected), abs=1e-9 if bins is None else 1 / 2048)

    @pytest.mark.parametrize('bins', [None, 1024])
    def test_is_the_functional(self, bins):
        logits, labels = batch()
        expected = lovasz_softmax(logits.softmax(1), labels, ignore_index=255, bins=bins)
        assert_same(
            value_and_gradient(LovaszSoftmaxLoss(bins=bins)(logits, labels), logits),
            value_and_gradient(expected, logits),
        )

    @pytest.mark.parametrize('bins', [None, 1024])
    def test_pixel_weights_are_mass(self, bins):
        logits, labels = batch()
        weight = torch.randint(0, 4, labels.shape, generator=torch.Generator().manual_seed(1)).double()
        expected = reference.lovasz_softmax(
            logits.detach().softmax(1).flatten(2).numpy(),
            labels.flatten(1).numpy(),
            ignore_index=255,
            mass=weight.flatten(1).numpy(),
        )
        found = LovaszSoftmaxLoss(bins=bins)(logits, labels, weight=weight)
        assert found.item() == pytest.approx(float(expected), abs=1e-9 if bins is None else 1 / 2048)
        assert found.item() != pytest.approx(LovaszSoftmaxLoss(bins=bins)(logits, labels).item(), abs=1e-3)

    @pytest.mark.parametrize('bins', [None, 1024])
    def test_a_pixel_of_weight_two_is_two_pixels(self, bins):
        logits, labels = batch()
        weight = torch.ones(labels.shape)
        weight[..., :4] = 2
        twice = torch.cat([logits, logits[..., :4]], -1), torch.cat([labels, labels[..., :4]], -1)
        assert_same(
            value_and_gradient(LovaszSoftmaxLoss(bins=bins)(logits, labels, weight=weight), logits),
            value_and_gradient(LovaszSoftmaxLoss(bins=bins)(*twice), logits),
        )

    def test_class_weights_never_raise_it_above_one(self):
        logits = torch.full((1, 3, 4, 4), -50.0)
        logits[:, 0] = 50
        labels = torch.randint(1, 3, (1, 4, 4), generator=torch.Generator().manual_seed(0))
        loss = LovaszSoftmaxLoss(classes='all', class_weight=[10.0, 20.0, 30.0])
        assert loss(logits, labels).item() == pytest.approx(1)


class TestHeads:
    def test_one_channel_is_the_sigmoid_of_the_foreground(self):
        logits, labels = batch(1)
        expected = lovasz_softmax(logits.sigmoid(), labels, ignore_index=255, bins=1024)
        torch.testing.assert_close(LovaszSoftmaxLoss()(logits, labels), expected)

    def test_two_channels_are_a_softmax(self):
        logits, labels = batch(2)
        expected = lovasz_softmax(logits.softmax(1), labels, ignore_index=255, bins=1024)
        torch.testing.assert_close(LovaszSoftmaxLoss()(logits, labels), expected)

    def test_two_channels_and_one_agree_on_the_foreground(self):
        logits, labels = batch(2)
        one = LovaszSoftmaxLoss()((logits[:, 1] - logits[:, 0]).unsqueeze(1), labels)
        two = LovaszSoftmaxLoss(classes=[1])(logits, labels)
        torch.testing.assert_close(one, two)

    @pytest.mark.parametrize('bins', [None, 1024])
    def test_several_labels_a_pixel(self, bins):
        logits, _ = batch(4)
        target = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)).round().double()
        each = [
            LovaszSoftmaxLoss(bins=bins)(logits[:, c : c + 1], target[:, c].long(), ignore_index=-1) for c in range(4)
        ]
        found = LovaszSoftmaxLoss(bins=bins, use_sigmoid=True)(logits, target)
        assert_same(value_and_gradient(found, logits), value_and_gradient(sum(each) / 4, logits))

    @pytest.mark.parametrize('bins', [None, 1024])
    def test_mixed_labels_are_the_expected_labelling(self, bins):
        logits, _ = batch(3)
        one, other = (torch.randint(0, 3, (3, 6, 8), generator=torch.Generator().manual_seed(i)) for i in range(2))
        mixed = 0.7 * F.one_hot(one, 3).movedim(-1, 1) + 0.3 * F.one_hot(other, 3).movedim(-1, 1)
        both = torch.cat([logits, logits]), torch.cat([one, other])
        weight = torch.cat([torch.full(one.shape, 0.7), torch.full(one.shape, 0.3)]).double()
        loss = LovaszSoftmaxLoss(bins=bins)
        assert_same(
            value_and_gradient(loss(logits, mixed.double()), logits),
            value_and_gradient(loss(*both, weight=weight), logits),
            rtol=1e-6,
            atol=1e-8,
        )

    def test_boxes_of_mmdetection_with_sigmoid(self):
        """Label C is the background; of a single class, label 0 is the object and 1 the background."""
        logits = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
        labels = torch.randint(0, 4, (40,), generator=torch.Generator().manual_seed(1))
        target = F.one_hot(labels, 4)[:, :3].float()
        loss = LovaszSoftmaxLoss(use_sigmoid=True)
        torch.testing.assert_close(loss(logits, labels, avg_factor=3.0), loss(logits, target))
        objects = (labels > 0).long()
        torch.testing.assert_close(loss(logits[:, :1], objects), LovaszSoftmaxLoss()(logits[:, :1], 1 - objects))
        assert loss.use_sigmoid is True

    def test_items_without_a_position_are_one_set_whatever_the_scope(self):
        logits, labels = torch.randn(40, 3), torch.randint(0, 3, (40,))
        assert torch.equal(LovaszSoftmaxLoss(scope='image')(logits, labels), LovaszSoftmaxLoss()(logits, labels))


class TestSamplersOfTheHead:
    """MMSegmentation's OHEM, which weights pixels and asks for the loss of each."""

    @staticmethod
    def head(thresh, losses, n_classes=4, **settings):
        return pytest.importorskip('mmseg.models.decode_heads').FCNHead(
            in_channels=4,
            channels=4,
            num_convs=0,
            concat_input=False,
            num_classes=n_classes,
            sampler=dict(type='mmseg.OHEMPixelSampler', thresh=thresh, min_kept=20),
            loss_decode=losses,
            **settings,
        )

    @pytest.mark.parametrize('thresh', [0.3, None])
    @pytest.mark.parametrize('name', ['LovaszSoftmaxLoss', 'LovaszHingeLoss', 'SoftIoULoss'])
    @pytest.mark.parametrize('with_cross_entropy', [False, True])
    def test_ohem_selects_pixels_for_it(self, name, thresh, with_cross_entropy):
        losses = [dict(type=name)] + with_cross_entropy * [dict(type='mmseg.CrossEntropyLoss')]
        head = self.head(thresh, losses)
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


class TestContributions:
    @pytest.mark.parametrize('bins', [None, 1024])
    @pytest.mark.parametrize('scope', ['image', 'batch'])
    def test_they_add_up_to_the_loss_with_its_gradient(self, scope, bins):
        logits, labels = batch()
        loss = LovaszSoftmaxLoss(scope=scope, bins=bins, loss_weight=0.5)
        terms = loss(logits, labels, reduction_override='none')
        assert terms.shape == labels.shape
        assert not terms[labels == 255].any()
        assert (terms >= 0).all()
        assert_same(value_and_gradient(terms.sum(), logits), value_and_gradient(loss(logits, labels), logits))

    def test_of_boxes(self):
        logits, labels = torch.randn(30, 3, dtype=torch.float64), torch.randint(0, 3, (30,))
        terms = LovaszSoftmaxLoss()(logits, labels, reduction_override='none')
        assert terms.shape == (30,)
        torch.testing.assert_close(terms.sum(), LovaszSoftmaxLoss()(logits, labels))

    def test_asking_is_no_step_of_training(self):
        logits, labels = batch()
        loss = LovaszSoftmaxLoss(memory=2)
        with torch.no_grad():
            assert loss(logits, labels, reduction_override='none').sum() > 0
        assert loss.memory.kept is None
        assert loss.training


class TestMemory:
    def test_the_last_batches_are_part_of_the_set(self):
        loss = LovaszSoftmaxLoss(memory=2)
        parts = [batch()[0].detach().roll(i, 0) * (1 + i) for i in range(4)]
        labels = batch()[1]
        for part in parts[:3]:
            loss(part, labels)
        now = parts[3].clone().requires_grad_()
        union = torch.cat([parts[1], parts[2], now]), torch.cat([labels] * 3)
        found = value_and_gradient(loss(now, labels), now)
        expected = value_and_gradient(LovaszSoftmaxLoss(bins=None)(*union), now)
        assert found[0].item() == pytest.approx(expected[0].item(), abs=2e-3)
        assert (found[1] - expected[1]).norm() < 2e-2 * expected[1].norm()
        alone = value_and_gradient(LovaszSoftmaxLoss(bins=None)(now, labels), now)
        assert abs(found[0] - alone[0]) > 1e-2

    def test_it_costs_what_it_says(self):
        loss = LovaszSoftmaxLoss(memory=4, bins=64)
        for _ in range(6):
            loss(*batch())
        # The cell of no error at all comes on top of the B bins.
        assert loss.memory.kept.numel() == 4 * 5 * 2 * (64 + 1)

    def test_a_class_of_the_past_still_counts(self):
        logits, labels = batch(3)
        loss = LovaszSoftmaxLoss(memory=1)
        loss(logits, torch.full_like(labels, 2))
        (gradient,) = torch.autograd.grad(loss(logits, torch.zeros_like(labels)), logits)
        (forgotten,) = torch.autograd.grad(loss(logits, torch.zeros_like(labels)), logits)
        assert not torch.allclose(gradient, forgotten)

    def test_evaluation_neither_adds_nor_forgets(self):
        logits, labels = batch()
        loss = LovaszSoftmaxLoss(memory=2)
        loss(logits, labels)
        loss.eval()
        kept = loss.memory.kept
        first, second = loss(2 * logits, labels), loss(2 * logits, labels)
        assert torch.equal(first, second)
        assert torch.equal(loss.memory.kept, kept)

    def test_it_travels_with_the_state_of_the_model(self):
        logits, labels = batch()
        model = torch.nn.ModuleDict(dict(loss=LovaszSoftmaxLoss(memory=3)))
        for scale in (1, 2):
            model['loss'](scale * logits, labels)
        other = torch.nn.ModuleDict(dict(loss=LovaszSoftmaxLoss(memory=3)))
        other.load_state_dict(model.state_dict())
        assert torch.equal(other['loss'](3 * logits, labels), model['loss'](3 * logits, labels))
        copied = copy.deepcopy(model)
        assert torch.equal(copied['loss'](logits, labels), model['loss'](logits, labels))

    def test_an_average_of_the_model_can_be_kept_beside_it(self):
        models = pytest.importorskip('mmengine.model')
        model = torch.nn.ModuleDict(dict(layer=torch.nn.Conv2d(3, 5, 1), loss=LovaszSoftmaxLoss(memory=2)))
        average = models.ExponentialMovingAverage(model)
        logits, labels = batch()
        model['loss'](logits, labels)
        average.update_parameters(model)
        average.update_parameters(model)

    def test_another_number_of_classes_is_named(self):
        loss = LovaszSoftmaxLoss(memory=2)
        loss(*batch(5))
        with pytest.raises(ValueError, match=r'`pred`.*5 classes.*3 now'):
            loss(*batch(3))

    @pytest.mark.parametrize(
        ('args', 'error', 'named'),
        [
            (dict(memory=-1), ValueError, '`memory`.*-1'),
            (dict(memory=1.5), TypeError, '`memory`.*1.5'),
            (dict(memory=2, scope='image'), ValueError, "`memory`.*scope='image'"),
            (dict(memory=2, bins=None), ValueError, '`bins`.*`memory`'),
            (dict(scope='world', bins=None), ValueError, "`bins`.*scope='world'"),
            (dict(bins=0), ValueError, '`bins`.*0'),
            (dict(bins=1.5), TypeError, '`bins`.*1.5'),
            (dict(classes='some'), ValueError, "`classes`.*'some'"),
            (dict(classes=[1, 1]), ValueError, r'`classes`.*\[1, 1\]'),
            (dict(class_weight=[-1.0]), ValueError, '`class_weight`'),
        ],
        ids=str,
    )
    def test_settings_that_do_not_go_together_are_named(self, args, error, named):
        with pytest.raises(error, match=named):
            LovaszSoftmaxLoss(**args)


@pytest.mark.parametrize('args', [dict(classes=[0, 7]), dict(class_weight=[1.0, 2.0])], ids=str)
def test_classes_that_the_prediction_does_not_have_are_named(args):
    with pytest.raises(ValueError, match=f'`{next(iter(args))}`'):
        LovaszSoftmaxLoss(**args)(*batch())

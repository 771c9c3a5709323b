"""Calls that losses once read as something else, without an error: now they are right or refused.

All layouts, targets and modes are compared with an independent reading in tests/hard_use/test_layouts.py.
"""

import warnings
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from calls import assert_same, value_and_gradient

import mmseg_nondecomp
from mmseg_nondecomp import (
    DirectAPLoss,
    DirectZeroOneLoss,
    LossMaxPooling,
    LovaszHingeLoss,
    LovaszSoftmaxLoss,
    SMeasureLoss,
    SmoothTopKLoss,
    SoftIoULoss,
)
from mmseg_nondecomp.functional import lovasz_softmax, soft_iou

BINARY = {
    'LovaszSoftmaxLoss': {},
    'LovaszHingeLoss': {},
    'SoftIoULoss': {},
    'LossMaxPooling': {},
    'SMeasureLoss': {},
    'DirectAPLoss': {},
    'DirectZeroOneLoss': {},
}
binary_losses = pytest.mark.parametrize('name', BINARY)


def build(name, **args):
    return getattr(mmseg_nondecomp, name)(**args)


def perfect(shape=(2, 8, 8), size=9.0):
    """Return a mask and logits [N, 1, *] that decide all of it right, the object by 1."""
    mask = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.3).long()
    return size * (2 * mask - 1).float().unsqueeze(1), mask


class TestOneChannel:
    """S1, S3, M3: label 1 is the object, whatever a config has merged; in a box head of MMDetection it is label 0."""

    @binary_losses
    def test_a_leftover_use_sigmoid_does_not_invert_a_mask(self, name):
        logits, mask = perfect()
        leftover = dict(use_sigmoid=True, **(dict(pixel_loss='bce') if name == 'LossMaxPooling' else {}))
        loss = build(name, **leftover)
        assert 4 * loss(logits, mask, ignore_index=255) < loss(-logits, mask, ignore_index=255)

    @pytest.mark.parametrize('loss', [DirectAPLoss, DirectZeroOneLoss])
    def test_scores_of_items_have_label_1_for_the_object(self, loss):
        logits, mask = perfect((40,))
        assert loss()(logits, mask) == 0
        assert loss()(logits, mask, avg_factor=40) == 0, 'the call of MMPretrain'
        assert loss()(-logits, mask) > 0.5

    @pytest.mark.parametrize('how', ['weights', 'no weights'])
    @binary_losses
    def test_a_box_head_has_label_0_for_the_object(self, name, how):
        logits, mask = perfect((40,))
        weight = torch.ones(40) if how == 'weights' else None  # FCOS, and `loss_mask` of MaskFormer
        loss = build(name, **(dict(pixel_loss='focal') if name == 'LossMaxPooling' else {}))
        right, wrong = (loss(z, 1 - mask, weight, avg_factor=torch.tensor(12.0)) for z in (logits, -logits))
        assert 4 * right < wrong

    def test_a_registered_pixel_loss_is_refused_in_a_box_head_of_one_class(self):
        pytest.importorskip('mmdet')
        loss = LossMaxPooling(pixel_loss=dict(type='mmdet.FocalLoss'))
        with pytest.raises(ValueError, match=r"`pixel_loss` should be 'focal' or 'bce'"):
            loss(torch.zeros(4, 1), torch.zeros(4).long(), torch.ones(4), avg_factor=4.0)


class TestMasksOf255:
    """S2."""

    def masks(self, n_channels):
        logits, mask = perfect()
        return (logits if n_channels == 1 else torch.cat([-logits, logits], 1)), mask, 255 * mask

    @pytest.mark.parametrize('dtype', [torch.int64, torch.uint8, torch.float32])
    @pytest.mark.parametrize('n_channels', [1, 2])
    @binary_losses
    def test_are_refused_or_read_where_another_label_is_ignored(self, name, n_channels, dtype):
        logits, mask, of_255 = self.masks(n_channels)
        message = r'`target` should hold the labels 0 and 1. Found a mask of 0 and 255.*`target // 255`'
        with pytest.raises(ValueError, match=message):
            build(name)(logits, of_255.to(dtype))
        expected = build(name)(logits, mask)
        assert_same([build(name, ignore_index=-100)(logits, of_255.to(dtype))], [expected])
        assert_same([build(name)(logits, of_255.to(dtype), ignore_index=-100)], [expected])
        with pytest.raises(ValueError, match=r'Found 0, 1 and 255 with `ignore_index=-100`'):
            build(name, ignore_index=-100)(logits, (of_255 - 254 * (torch.rand(mask.shape) < 0.5) * mask).to(dtype))

    def test_are_told_by_a_label_of_1_in_any_call_and_by_the_ignored_label(self):
        logits, mask, of_255 = self.masks(1)
        loss = LovaszHingeLoss()
        loss(logits, mask)
        assert loss(logits, of_255) == 0, '255 is ignored'
        assert LovaszHingeLoss(ignore_index=255)(logits, of_255) == 0

    def test_of_another_ignored_label_are_refused_after_a_label_of_1(self):
        logits, mask, of_255 = self.masks(1)
        loss = LovaszHingeLoss(ignore_index=-100)
        loss(logits, mask)
        with pytest.raises(ValueError, match=r'Found 0, 1 and 255 with `ignore_index=-100`'):
            loss(logits, of_255)

    def test_are_refused_by_functions(self):
        logits, _, of_255 = self.masks(2)
        for function in (lovasz_softmax, soft_iou):
            with pytest.raises(ValueError, match='Found a mask of 0 and 255'):
                function(logits.softmax(1), of_255)
            assert function(logits.softmax(1), of_255, ignore_index=-1) < 0.1


class TestShares:
    """S5, S6, M6, M14."""

    @pytest.mark.parametrize('loss', [LovaszSoftmaxLoss, SoftIoULoss, LossMaxPooling, partial(SmoothTopKLoss, k=2)])
    @pytest.mark.parametrize(
        'shape', [(2, 8, 8), (3, 50), (2, 8, 8, 1), (2, 8, 8, 3)], ids=['maps', 'points', 'one last', 'last']
    )
    def test_of_the_shape_of_the_prediction_have_to_add_up_to_1(self, loss, shape):
        target = torch.rand(shape, generator=torch.Generator().manual_seed(0)).round()
        with pytest.raises(ValueError, match=r'`target` should hold shares that add up to 1'):
            loss()(18 * target - 9, target)

    @pytest.mark.parametrize('loss', [LovaszHingeLoss, DirectAPLoss, DirectZeroOneLoss, SMeasureLoss])
    @pytest.mark.parametrize('shape', [(2, 8, 8), (3, 50), (2, 8, 8, 1)], ids=['maps', 'points', 'one last'])
    def test_of_several_labels_need_a_mode_where_the_channel_may_be_missing(self, loss, shape):
        target = torch.rand(shape, generator=torch.Generator().manual_seed(0)).round()
        logits = 18 * target - 9
        with pytest.raises(ValueError, match=r"`mode='multilabel'`.*`mode='binary'`.*MaskLoss"):
            loss()(logits, target)
        rows = logits.unsqueeze(1), target.long()
        assert_same([loss(mode='binary')(logits, target)], [loss()(*rows)])
        assert_same([loss(mode='multilabel')(logits, target)], [loss(use_sigmoid=True)(logits, target)])

    def test_of_mmpretrain_are_several_labels(self):
        target = torch.rand(6, 4).round()
        logits = torch.randn(6, 4)
        assert_same(
            [LovaszHingeLoss()(logits, target, avg_factor=6)], [LovaszHingeLoss(mode='multilabel')(logits, target)]
        )

    def test_which_are_qualities_are_no_labels_of_a_ranking(self):
        quality = F.one_hot(torch.arange(6) % 3, 3) * 0.4
        for loss in (DirectAPLoss(use_sigmoid=True), DirectZeroOneLoss(use_sigmoid=True)):
            with pytest.raises(ValueError, match=r'`target` should be 0 or 1. Found 0.4'):
                loss(torch.zeros(6, 3), quality)

    def test_of_a_target_with_a_gradient_have_none(self):
        for loss in (SoftIoULoss(), LovaszSoftmaxLoss(), LossMaxPooling()):
            target = torch.rand(2, 3, 4, 4).softmax(1).requires_grad_()
            pred = torch.randn(2, 3, 4, 4, requires_grad=True)
            assert torch.autograd.grad(loss(pred, target), target, allow_unused=True) == (None,)


class TestProbabilities:
    """S7, M7."""

    @pytest.mark.parametrize('function', [lovasz_softmax, soft_iou])
    def test_are_what_functions_take(self, function):
        logits, target = 3 * torch.randn(2, 3, 5, 5), torch.randint(0, 3, (2, 5, 5))
        with pytest.raises(ValueError, match=r'`probs` should hold probabilities in \[0, 1\].*`logits.softmax\(1\)`'):
            function(logits, target)
        probs = logits.softmax(1)
        assert function(probs + 5e-4 * (probs == probs.max()), target) <= 1.001

    @pytest.mark.parametrize(
        ('loss', 'probabilities'),
        [(LovaszSoftmaxLoss, lambda x: x.softmax(1)), (LovaszHingeLoss, torch.sigmoid), (DirectAPLoss, torch.sigmoid)],
    )
    def test_make_a_loss_warn_once(self, loss, probabilities):
        loss, logits, target = loss(), 3 * torch.randn(2, 3, 8, 8), torch.randint(0, 3, (2, 8, 8))
        with pytest.warns(UserWarning, match='expects logits, and all scores look like probabilities'):
            loss(probabilities(logits), target)
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            loss(probabilities(logits), target)

    def test_of_one_side_of_a_half_make_a_loss_warn_after_some_calls(self):
        """TOODHead and CenterNetUpdateHead hand over probabilities near 0 at the start."""
        loss, probabilities = LovaszHingeLoss(), 0.01 + 0.01 * torch.rand(2, 3, 8, 8)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            for _ in range(40):
                loss(probabilities, torch.zeros(2, 8, 8).long())
        assert ['look like probabilities' in str(each.message) for each in caught] == [True]

    @pytest.mark.parametrize(
        'scores', [torch.zeros(2, 3, 8, 8), 0.01 * torch.rand(2, 3, 8, 8), torch.randn(2, 3, 8, 8)]
    )
    def test_are_not_suspected_in_logits_of_an_untrained_network(self, scores):
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            for loss in (LovaszSoftmaxLoss(), LovaszHingeLoss()):
                for _ in range(10):
                    loss(scores, torch.zeros(2, 8, 8).long())


class TestBoxHeads:
    def test_direct_losses_ask_for_use_sigmoid(self):
        """M1: RetinaNet, FCOS and ATSS otherwise add a channel for the background."""
        call = torch.randn(9, 4), torch.arange(9) % 4
        for how in (dict(weight=torch.ones(9), avg_factor=3.0), dict(avg_factor=torch.tensor(3.0))):
            with pytest.raises(ValueError, match=r'`use_sigmoid` should be True in the config of a box head'):
                DirectAPLoss()(*call, **how)
            DirectAPLoss(use_sigmoid=True)(*call, **how)
            of_roi_head = DirectAPLoss()
            of_roi_head.get_cls_channels(4)
            of_roi_head(*call, **how)

    def test_another_number_of_channels_than_the_head_was_told_is_refused(self):
        loss = DirectAPLoss(use_sigmoid=True)
        loss.get_cls_channels(3)
        with pytest.raises(ValueError, match=r'`pred` should have 3 channels, as the box head was told. Found 4'):
            loss(torch.randn(9, 4), torch.arange(9) % 4, torch.ones(9), avg_factor=3.0)

    def test_labels_with_their_qualities_are_soft_labels_of_a_sigmoid(self):
        """E5, M12: GFL, RTMDet, TOOD."""
        scores, labels, quality = torch.randn(6, 3), torch.tensor([0, 1, 2, 3, 3, 3]), torch.rand(6)
        shares = F.one_hot(labels, 4)[:, :3] * quality[:, None]
        loss = LossMaxPooling(pixel_loss='bce', use_sigmoid=True)
        found = loss(scores, (labels, quality), torch.ones(6), avg_factor=2.0)
        assert_same([found], [loss(scores, shares, torch.ones(6))])
        for other in (LovaszSoftmaxLoss(), SmoothTopKLoss(k=2)):
            with pytest.raises(TypeError, match='QualityFocalLoss'):
                other(scores, (labels, quality), torch.ones(6), avg_factor=2.0)
        with pytest.raises(ValueError, match='`target` should be 0 or 1'):
            DirectAPLoss(use_sigmoid=True)(scores, (labels, quality), torch.ones(6), avg_factor=2.0)

    def test_terms_have_a_column_for_each_channel(self):
        """M8: PAAHead adds them up."""
        loss = LossMaxPooling(pixel_loss='focal', use_sigmoid=True)
        scores, labels, weight = torch.randn(6, 3), torch.arange(6) % 3, torch.ones(6)
        terms = loss(scores, labels, weight, avg_factor=1.0, reduction_override='none')
        assert terms.shape == (6, 3)
        assert_same([terms.sum(1)], [loss(scores, labels, weight, reduction_override='none')])

    def test_two_classes_with_use_sigmoid_are_two_decisions(self):
        scores, labels = torch.randn(9, 2), torch.arange(9) % 3  # label 2 is the background
        found = LovaszHingeLoss(use_sigmoid=True)(scores, labels, torch.ones(9), avg_factor=3.0)
        one_hot = F.one_hot(labels, 3)[:, :2].float()
        assert_same([found], [LovaszHingeLoss(mode='multilabel')(scores, one_hot)])

    def test_a_softmax_without_background_is_given_a_hint(self):
        """E12: SOLO, YOLOF, CondInst."""
        with pytest.raises(ValueError, match=r'labels in \[0, 2\].*Found 3.*`use_sigmoid=True`'):
            LovaszSoftmaxLoss()(torch.randn(4, 3), torch.arange(4), torch.ones(4), avg_factor=3.0)


class TestTopK:
    def test_one_channel_has_too_few_classes(self):
        """E1."""
        for call in (
            (torch.zeros(2, 1, 4, 4), torch.zeros(2, 4, 4).long()),
            (torch.zeros(4, 1), torch.zeros(4).long()),
        ):
            with pytest.raises(ValueError, match='`k` should be below the number of classes, 1'):
                SmoothTopKLoss(k=2)(*call)

    def test_heads_find_the_attributes_that_they_read(self):
        """E2, E3: the DETR family and Mask2Former."""
        assert SmoothTopKLoss(k=2).use_sigmoid is False
        weight = [1.0, 2.0, 0.5, 0.0]
        scores, labels = torch.randn(20, 4), torch.arange(20) % 4
        weights = torch.tensor(weight)[labels]
        terms = SmoothTopKLoss(k=2)(scores, labels, reduction_override='none')
        found = SmoothTopKLoss(k=2, class_weight=weight)(scores, labels)
        assert_same([found], [(terms * weights).sum() / weights.sum()])
        shares = F.one_hot(labels, 4).float()
        assert_same([SmoothTopKLoss(k=2, class_weight=weight)(scores, shares)], [found])
        assert SmoothTopKLoss(k=2, class_weight=[0.0] * 4)(scores, labels) == 0
        of_cross_entropy = SmoothTopKLoss(k=1, tau=1.0, margin=0.0, class_weight=weight)(scores, labels)
        assert_same([of_cross_entropy], [F.cross_entropy(scores, labels, torch.tensor(weight))], rtol=1e-5, atol=1e-6)

    def test_modes_of_several_decisions_are_refused(self):
        with pytest.raises(ValueError, match=r"`mode` should be one of \('multiclass',\). Found 'multilabel'"):
            SmoothTopKLoss(k=2, mode='multilabel')


class TestArguments:
    """First-hour 11: the argument is named, and what to write instead."""

    @pytest.mark.parametrize(
        ('arguments', 'expected'),
        [
            (dict(per_image=True), "Instead of `per_image`: `scope='image'`"),
            (dict(loss_weigth=2.0), 'Instead of `loss_weigth`: `loss_weight`'),
            (dict(reduction='mean'), 'Instead of `reduction`: nothing'),
            (dict(from_logits=True), 'Instead of `from_logits`: nothing'),
            (dict(nonsense=1), r'It has `classes`, `bins`, `memory`, `scope`.*`mode`, `ignore_index`\.'),
        ],
    )
    def test_that_a_loss_does_not_have(self, arguments, expected):
        with pytest.raises(TypeError, match=expected):
            LovaszSoftmaxLoss(**arguments)

    def test_of_an_unknown_mode_or_ignored_label(self):
        with pytest.raises(ValueError, match=r"`mode` should be one of .*'multilabel'.*'softmax'"):
            LovaszSoftmaxLoss(mode='softmax')
        with pytest.raises(TypeError, match='`ignore_index`'):
            LovaszSoftmaxLoss(ignore_index='void')
        with pytest.raises(TypeError, match=r"`mode` should be None with `pixel_loss='cross_entropy'`"):
            LossMaxPooling(mode='multilabel')

    def test_of_an_update_by_its_old_name(self):
        for update in ('positive', 'negative', 'hinge', 'perceptron'):
            call = torch.randn(9, 3), torch.arange(9) % 3
            by_old_name, by_name = DirectAPLoss(0.5, update), DirectAPLoss(0.5, update=update)
            assert by_old_name.update == by_old_name.mode == update
            assert_same(value_and_gradient(by_old_name, *call), value_and_gradient(by_name, *call))


class TestShapes:
    """First-hour 16, M11."""

    def test_a_size_that_differs_asks_for_interpolation(self):
        with pytest.raises(ValueError, match=r'`F.interpolate\(pred, size=\(32, 32\)'):
            LovaszSoftmaxLoss()(torch.zeros(2, 5, 8, 8), torch.zeros(2, 32, 32).long())

    def test_channels_that_are_last_are_to_be_moved(self):
        with pytest.raises(ValueError, match=r'`.movedim\(-1, 1\)`'):
            LovaszSoftmaxLoss()(torch.zeros(2, 8, 8, 5), torch.zeros(2, 8, 8).long())

    def test_the_ignored_label_of_the_constructor_is_that_of_calls_without_one(self):
        logits, labels = torch.randn(2, 4, 5, 5), torch.randint(0, 4, (2, 5, 5))
        labels[:, 0] = -100
        found = LovaszSoftmaxLoss(ignore_index=-100)(logits, labels)
        assert_same([found], [LovaszSoftmaxLoss()(logits[:, :, 1:], labels[:, 1:])])
        labels[:, 0] = 7
        assert_same([LovaszSoftmaxLoss(ignore_index=-100)(logits, labels, ignore_index=7)], [found])

"""Each mistake is reported once, with the key to change; right settings are not reported."""

from types import SimpleNamespace

import pytest
import torch
from hooks.pixels import BINARY, CROSS_ENTROPY, LOVASZ, Images, Pixels, head, trained
from mmengine.config import ConfigDict
from mmengine.dataset import BaseDataset, ConcatDataset, RepeatDataset
from mmengine.logging import MMLogger
from mmengine.registry import init_default_scope
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop
from mmseg.models.decode_heads import FCNHead, PointHead
from shipped_configs import stock
from torch import nn
from torch.utils.data import BatchSampler, DataLoader

from mmseg_nondecomp import EquiBatchSampler, IoUAdaptiveSampler, LossCheckHook, LovaszSoftmaxLoss, TrainIoUHook
from mmseg_nondecomp.registry import HOOKS, MODELS

HINGE, SOFT_IOU = dict(type='LovaszHingeLoss'), dict(type='SoftIoULoss')
F_BETA, ZERO_ONE = dict(type='SMeasureLoss', measure='f_beta'), dict(type='DirectZeroOneLoss')


class Training:
    """A Runner without a training."""

    def __init__(self, decode_head=None, config=None, loader=None, loop=IterBasedTrainLoop, val=None, hooks=()):
        self.model = Model(decode_head or head())
        self.cfg = ConfigDict(config or {})
        self.train_dataloader = loader or DataLoader(Images(), batch_size=2)
        self.train_loop = loop.__new__(loop)
        self.val_loop = val and SimpleNamespace(dataloader=SimpleNamespace(dataset=val))
        self.hooks, self.iter, self.texts = hooks, 0, []
        self.logger = SimpleNamespace(warning=self.texts.append)


class Model(nn.Module):
    def __init__(self, decode_head):
        super().__init__()
        self.decode_head = decode_head


def found(*args, **settings):
    """The warnings at the start of a training."""
    training = Training(*args, **settings)
    LossCheckHook().before_train(training)
    return training.texts


def config_of_head(**settings):
    return dict(model=dict(type='EncoderDecoder', decode_head=dict(type='FCNHead', **settings)))


def test_a_right_training_is_not_reported_and_does_not_change(tmp_path, monkeypatch):
    said, models = [], []
    monkeypatch.setattr(MMLogger, 'warning', lambda logger, text, *args: said.append(text))
    for i, hook in enumerate((None, dict(type='LossCheckHook'))):
        torch.manual_seed(0)
        models.append(trained(tmp_path / str(i), 3, hook, Pixels(head([CROSS_ENTROPY, LOVASZ]))).model)
    assert not [text for text in said if 'model.' in str(text)]
    assert len(models[1].decode_head.loss_decode[1]._forward_pre_hooks) == 0
    torch.testing.assert_close(*(model.state_dict() for model in models), rtol=0, atol=0)


class TestUnbuilt:
    @pytest.mark.parametrize(
        'kind', ['LovaszSoftmaxLoss', 'mmseg_nondecomp.LovaszSoftmaxLoss', LovaszSoftmaxLoss], ids=str
    )
    def test_a_loss_that_the_head_ignores(self, kind):
        [text] = found(head(), config=config_of_head(loss_decode=[CROSS_ENTROPY, dict(type=kind)]))
        assert '1 LovaszSoftmaxLoss (`model.decode_head.loss_decode.1`), and the model has 0' in text
        assert 'Set an argument that the head has' in text

    def test_one_of_two(self):
        [text] = found(head(LOVASZ), config=config_of_head(loss_decode=LOVASZ, loss_mask=LOVASZ))
        assert '2 LovaszSoftmaxLoss' in text
        assert 'the model has 1' in text

    def test_in_a_stock_head(self, tmp_path):
        pytest.importorskip('mmdet')
        init_default_scope('mmseg')
        model = stock('mmseg::maskformer/maskformer_r50-d32_8xb2-160k_ade20k-512x512.py', tmp_path).model
        model.decode_head.update(loss_decode=LOVASZ, num_classes=3)
        model.decode_head.loss_cls.class_weight = [1.0] * 3 + [0.1]
        [text] = found(MODELS.build(model.decode_head), config=dict(model=model))
        assert '1 LovaszSoftmaxLoss (`model.decode_head.loss_decode`), and the model has 0' in text

    @pytest.mark.parametrize(
        'losses',
        [LOVASZ, [CROSS_ENTROPY, LOVASZ], [LOVASZ, LOVASZ | dict(loss_name='loss_b')], dict(type='mmseg.LovaszLoss')],
        ids=['one', 'beside another', 'two', 'of MMSegmentation'],
    )
    def test_built_losses_and_those_of_others_are_not_reported(self, losses):
        is_other = isinstance(losses, dict) and losses['type'] == 'mmseg.LovaszLoss'
        assert found(head(CROSS_ENTROPY if is_other else losses), config=config_of_head(loss_decode=losses)) == []


class FirstLoss(FCNHead):
    """A head that calls the first of its losses only."""

    def loss_by_feat(self, seg_logits, batch_data_samples):
        labels = self._stack_batch_gt(batch_data_samples).squeeze(1)
        return dict(loss_first=self.loss_decode[0](seg_logits, labels, ignore_index=self.ignore_index))


def head_that_calls_one(losses):
    settings = dict(in_channels=1, channels=4, num_convs=1, concat_input=False, num_classes=3, norm_cfg=None)
    return FirstLoss(**settings, dropout_ratio=0, loss_decode=losses)


class TestUncalled:
    def test_in_a_training(self, tmp_path, monkeypatch):
        said = []
        monkeypatch.setattr(MMLogger, 'warning', lambda logger, text, *args: said.append(text))
        trained(tmp_path, 3, dict(type='LossCheckHook'), Pixels(head_that_calls_one([CROSS_ENTROPY, LOVASZ])))
        [text] = [text for text in said if 'Not called' in str(text)]
        assert 'up to iteration 3: `model.decode_head.loss_decode.1` (LovaszSoftmaxLoss)' in text

    def start(self, decode_head, **settings):
        training, hook = Training(decode_head, **settings), LossCheckHook()
        hook.before_train(training)
        return training, hook, training.model.decode_head.loss_decode

    def call(self, loss):
        loss(torch.randn(1, 3, 4, 4), torch.zeros(1, 4, 4, dtype=torch.long))

    def test_is_reported_once_at_the_first_validation(self):
        training, hook, losses = self.start(head([SOFT_IOU, LOVASZ]), val=Images())
        self.call(losses[0])
        training.iter = 7
        hook.after_train_epoch(training)
        assert training.texts == []
        for _ in range(2):
            hook.before_val(training)
            hook.after_train(training)
        [text] = training.texts
        assert 'Not called up to iteration 7: `model.decode_head.loss_decode.1`' in text
        assert not any(loss._forward_pre_hooks for loss in losses)

    def test_is_reported_after_the_first_epoch_without_a_validation(self):
        training, hook, _ = self.start(head(LOVASZ))
        training.iter = 2
        hook.after_train_epoch(training)
        assert len(training.texts) == 1

    @pytest.mark.parametrize(
        ('name', 'config', 'iteration'),
        [('teacher', {}, 5), ('student', dict(compile=True), 5), ('student', {}, 0)],
        ids=['of a teacher', 'compiled', 'no iteration'],
    )
    def test_what_cannot_be_known_is_not_reported(self, name, config, iteration):
        training, hook = Training(config=config), LossCheckHook()
        training.model.add_module(name, LovaszSoftmaxLoss())
        hook.before_train(training)
        training.iter = iteration
        hook.after_train(training)
        assert training.texts == []


def point_head(*names):
    losses = [LOVASZ | dict(loss_name=name) for name in names]
    settings = dict(in_channels=[4], in_index=[0], channels=4, num_fcs=1, num_classes=3)
    return PointHead(**settings, coarse_pred_each_layer=True, dropout_ratio=0, loss_decode=losses)


class TestOverwritten:
    def test_two_losses_of_one_name(self):
        [text] = found(nn.ModuleList([head(), point_head('loss_a', 'loss_b', 'loss_a')]))
        assert '`model.decode_head.1` (PointHead)' in text
        assert "several losses named 'loss_a'" in text
        assert "`loss_name` for each, such as 'loss_a_2'" in text

    def test_names_that_differ_and_heads_that_add_are_not_reported(self):
        assert found(nn.ModuleList([head(), point_head('loss_a', 'loss_b')])) == []
        assert found(head([LOVASZ, LOVASZ])) == []


class TwoClasses(Images):
    metainfo = dict(classes=('a', 'b'))


def two_classes(**settings):
    return head(**(BINARY | settings))


class TestThreshold:
    @pytest.mark.parametrize('loss', [HINGE, LOVASZ, SOFT_IOU, F_BETA, ZERO_ONE], ids=lambda loss: loss['type'])
    def test_the_stock_one_of_one_channel(self, loss):
        losses = [dict(type='mmseg.CrossEntropyLoss', use_sigmoid=True), loss]
        config = config_of_head(loss_decode=losses, threshold=None)
        [text] = found(two_classes(loss=losses), config=config, loader=DataLoader(TwoClasses()))
        assert f'a probability of 0.3, the default of MMSegmentation for one channel, and {loss["type"]} at 0.5' in text
        assert 'Set `threshold=0.5` in `model.decode_head`' in text

    @pytest.mark.parametrize(
        ('settings', 'config'),
        [
            (dict(loss=HINGE, threshold=0.5), {}),
            (dict(loss=HINGE, threshold=0.3), config_of_head(threshold=0.3)),
            (dict(loss=dict(type='LossMaxPooling', pixel_loss='bce')), {}),
            (dict(loss=LOVASZ, out_channels=2), {}),
        ],
        ids=['0.5', '0.3 by choice', 'a loss without a decision', 'two channels'],
    )
    def test_right_ones_are_not_reported(self, settings, config):
        assert found(two_classes(**settings), config=config, loader=DataLoader(TwoClasses())) == []


class TestHinge:
    def test_of_many_classes(self):
        [text] = found(head([CROSS_ENTROPY, HINGE]))
        assert '`model.decode_head` predicts the class of the largest of 3 logits' in text
        assert "Set `type='LovaszSoftmaxLoss'` in `model.decode_head.loss_decode`" in text

    def test_of_an_object_and_its_background_is_not_reported(self):
        for decode_head in (two_classes(loss=HINGE, threshold=0.5), head(HINGE, num_classes=2)):
            assert found(decode_head, loader=DataLoader(TwoClasses())) == []
        assert found(head(LOVASZ)) == []

    def test_of_a_head_with_several_labels_an_image_is_not_reported(self):
        training = Training()
        training.model.decode_head = None
        training.model.head = nn.Module()
        training.model.head.loss_module, training.model.head.num_classes = head(HINGE).loss_decode, 3
        LossCheckHook().before_train(training)
        assert training.texts == []


class Labels(BaseDataset):
    METAINFO = Images.metainfo

    def __init__(self, reduce_zero_label=False):
        self.reduce_zero_label = reduce_zero_label
        super().__init__()

    def load_data_list(self):
        return [{}]


class TestNumberOfClasses:
    def test_of_the_head_and_of_the_data(self):
        [text] = found(head(num_classes=7))
        assert '`model.decode_head` has 7 classes, and the training data set names 3' in text
        assert 'Set `num_classes=3` in `model.decode_head`' in text

    def test_right_ones_and_unnamed_classes_are_not_reported(self):
        for data in (Images(), RepeatDataset(Labels(), 2), [1, 2]):
            assert found(head(), loader=DataLoader(data)) == []
        assert len(found(head(num_classes=7), loader=DataLoader(RepeatDataset(Labels(), 2)))) == 1

    def test_one_class_on_one_channel_is_for_two(self):
        decode_head = head(CROSS_ENTROPY, num_classes=1, out_channels=1)
        assert found(decode_head, loader=DataLoader(TwoClasses())) == []


class TestShiftedLabels:
    @pytest.mark.parametrize('training', [True, False])
    @pytest.mark.parametrize(
        'wrapped', [lambda data: data, lambda data: RepeatDataset(data, 2), lambda data: ConcatDataset([data])]
    )
    def test_of_training_and_validation(self, training, wrapped):
        [text] = found(loader=DataLoader(wrapped(Labels(training))), val=Labels(not training))
        assert f'`reduce_zero_label` is {training} in `train_dataloader.dataset` and {not training}' in text
        assert 'Set the same value in both' in text

    @pytest.mark.parametrize(
        ('training', 'validation'),
        [
            (Labels(True), Labels(True)),
            (Labels(False), Images()),
            (Images(), Labels(True)),
            (ConcatDataset([Labels(True), Labels(False)]), Labels(False)),
            (Labels(True), None),
        ],
        ids=['same', 'no labels to validate', 'none to train', 'one of two', 'no validation'],
    )
    def test_right_ones_are_not_reported(self, training, validation):
        assert found(loader=DataLoader(training), val=validation) == []


def drawn_by(sampler):
    return DataLoader(Images(), batch_size=2, sampler=sampler)


CROP = dict(type='RandomCropOnClass', crop_size=(4, 4))


def with_crop(crop):
    return dict(train_dataloader=dict(dataset=dict(type='A', pipeline=[dict(type='LoadAnnotations'), crop])))


class TestSamplers:
    @pytest.mark.parametrize('cls', [EquiBatchSampler, IoUAdaptiveSampler])
    @pytest.mark.parametrize(
        'loader',
        [drawn_by, lambda s: DataLoader(Images(), batch_sampler=BatchSampler(s, 2, False))],
        ids=['sampler', 'in a batch sampler'],
    )
    def test_without_an_end_in_epochs(self, cls, loader):
        [text] = found(loader=loader(cls(Images())), loop=EpochBasedTrainLoop, hooks=[TrainIoUHook()])
        assert f'{cls.__name__} has no end, and EpochBasedTrainLoop waits' in text
        assert 'Set `infinite=False` in `train_dataloader.sampler`' in text

    def test_as_a_batch_sampler_without_an_end_in_epochs(self):
        batches = EquiBatchSampler(Images(), batch_size=2)
        [text] = found(loader=DataLoader(Images(), batch_sampler=batches), loop=EpochBasedTrainLoop)
        assert 'infinite=False' in text

    def test_with_an_end_or_in_iterations_are_not_reported(self):
        finite = drawn_by(EquiBatchSampler(Images(), infinite=False))
        assert found(loader=finite, loop=EpochBasedTrainLoop) == []
        assert found(loader=drawn_by(EquiBatchSampler(Images()))) == []
        assert found(loop=EpochBasedTrainLoop) == []

    def test_of_the_iou_without_its_hook(self):
        [text] = found(loader=drawn_by(IoUAdaptiveSampler(Images())))
        assert "Add `dict(type='TrainIoUHook')` to `custom_hooks`" in text
        assert found(loader=drawn_by(IoUAdaptiveSampler(Images())), hooks=[TrainIoUHook()]) == []

    @pytest.mark.parametrize('kind', ['RandomCropOnClass', 'mmseg_nondecomp.RandomCropOnClass'])
    def test_a_crop_on_the_class_without_a_sampler(self, kind):
        [text] = found(config=with_crop(CROP | dict(type=kind)))
        assert '`train_dataloader.dataset.pipeline.1` is RandomCropOnClass' in text
        assert "Set `sampler=dict(type='EquiBatchSampler')` in `train_dataloader`" in text

    def test_a_crop_with_a_sampler_and_the_stock_crop_are_not_reported(self):
        assert found(config=with_crop(CROP), loader=drawn_by(EquiBatchSampler(Images()))) == []
        assert found(config=with_crop(CROP | dict(type='RandomCrop'))) == []


def test_is_registered():
    assert isinstance(HOOKS.build(dict(type='LossCheckHook')), LossCheckHook)

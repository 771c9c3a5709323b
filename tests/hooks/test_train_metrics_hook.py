"""Metrics of training, by a real Runner and by two processes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from mmengine.structures import PixelData
from mmseg.models.decode_heads import FCNHead
from mmseg.structures import SegDataSample
from processes import find_as_a_process, found_by_ranks
from torch import nn
from torch.utils.data import DataLoader
from torchmetrics.classification import (
    BinaryJaccardIndex,
    MulticlassAveragePrecision,
    MulticlassJaccardIndex,
    MultilabelAccuracy,
)

from mmseg_nondecomp import TrainMetricsHook

NAMES = ('a', 'b', 'c')
COUNT = dict(num_classes=3, ignore_index=255)
JACCARD = dict(type='torchmetrics.classification.MulticlassJaccardIndex', **COUNT)
METRICS = dict(
    mIoU=JACCARD,
    IoU=dict(JACCARD, average=None),
    AP=dict(type='torchmetrics.classification.MulticlassAveragePrecision', thresholds=20, **COUNT),
    lovasz=dict(type='LovaszJaccardIndex', **COUNT),
    matrix=dict(type='torchmetrics.classification.MulticlassConfusionMatrix', **COUNT),
)


def head(**kwargs):
    settings = dict(
        in_channels=1,
        channels=4,
        num_convs=1,
        concat_input=False,
        num_classes=3,
        norm_cfg=None,
        dropout_ratio=0,
        loss_decode=dict(type='mmseg.CrossEntropyLoss', avg_non_ignore=True),
    )
    return FCNHead(**(settings | kwargs))


class Pixels(BaseModel):
    """A decode head on the image itself, which counts its forward passes and remembers what its loss is handed."""

    def __init__(self):
        super().__init__()
        self.decode_head = head()
        self.n_forward = 0
        self.seen = []
        self.decode_head.conv_seg.register_forward_pre_hook(lambda *_: setattr(self, 'n_forward', self.n_forward + 1))
        self.decode_head.loss_decode.register_forward_pre_hook(
            lambda _, args: self.seen.append([a.detach().clone() for a in args])
        )

    def forward(self, image, label, mode):
        samples = [SegDataSample(gt_sem_seg=PixelData(data=one)) for one in label]
        return self.decode_head.loss([image], samples, None)


class Images:
    metainfo = dict(classes=NAMES)

    def __len__(self):
        return 6

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        label = torch.randint(3, (1, 8, 8), generator=generator)
        label[:, 0] = 255
        return dict(image=torch.randn(1, 8, 8, generator=generator), label=label)


def train(folder, n_iters, hooks):
    torch.manual_seed(0)
    model = Pixels()
    runner = Runner(
        model=model,
        work_dir=str(folder),
        experiment_name=folder.name,
        train_dataloader=DataLoader(Images(), batch_size=2),
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=n_iters),
        optim_wrapper=OptimWrapper(torch.optim.SGD(model.parameters(), 0.1)),
        default_hooks=dict(logger=dict(type='LoggerHook', interval=1)),
        custom_hooks=hooks,
        randomness=dict(seed=0),
        log_level='ERROR',
    )
    runner.train()
    return runner


def scalars(runner, name):
    return runner.message_hub.get_scalar(f'train/train/{name}').data[0]


def test_reports_the_batches_since_the_last_report(tmp_path):
    runner = train(tmp_path, 7, [dict(type='TrainMetricsHook', metrics=METRICS, interval=3)])
    for name, metric in dict(
        mIoU=MulticlassJaccardIndex(**COUNT), AP=MulticlassAveragePrecision(thresholds=20, **COUNT)
    ).items():
        expected = []
        for i in (0, 3):
            for logits, target in runner.model.seen[i : i + 3]:
                metric.update(logits.softmax(1), target)
            expected.append(metric.compute().item())
            metric.reset()
        assert np.allclose(scalars(runner, name), expected)
    assert np.allclose(sum(scalars(runner, f'IoU.{name}') for name in NAMES) / 3, scalars(runner, 'mIoU'))
    assert not any('matrix' in key for key in runner.message_hub.log_scalars)
    assert runner.model.n_forward == 7, 'no second forward pass'


def test_goes_to_the_log(tmp_path):
    train(tmp_path, 2, [dict(type='TrainMetricsHook', metrics=METRICS, interval=2)])
    [file] = tmp_path.glob('*/vis_data/scalars.json')
    assert '"train/mIoU": ' in file.read_text().splitlines()[-1]


def test_training_is_the_same_with_and_without(tmp_path):
    hooks = [dict(type='TrainMetricsHook', metrics=METRICS)]
    with_hook, without = (train(tmp_path / name, 4, h).model for name, h in (('with', hooks), ('without', None)))
    torch.testing.assert_close(with_hook.state_dict(), without.state_dict(), rtol=0, atol=0)
    assert len(with_hook.decode_head.loss_decode._forward_pre_hooks) == 1, 'the one of this test'


def hub():
    scalars = {}
    return SimpleNamespace(update_scalar=scalars.__setitem__, scalars=scalars)


def started(model=None, metrics=None, **kwargs):
    """The hook at the start of a training, without a Runner."""
    hook = TrainMetricsHook(metrics or METRICS, interval=1, **kwargs)
    hook.before_train(SimpleNamespace(model=model or Pixels(), train_dataloader=SimpleNamespace(dataset=Images())))
    return hook


def test_one_channel():
    loss = dict(type='LossMaxPooling', pixel_loss='bce')
    model = SimpleNamespace(decode_head=head(num_classes=2, out_channels=1, threshold=0.3, loss_decode=loss))
    hook = started(model, dict(IoU=BinaryJaccardIndex()))
    logits, target = torch.randn(2, 1, 8, 8), torch.randint(2, (2, 8, 8))
    model.decode_head.loss_decode(logits, target)
    runner = SimpleNamespace(iter=0, message_hub=hub())
    hook.after_train_iter(runner, 0)
    expected = BinaryJaccardIndex(threshold=0.3)(logits.sigmoid().squeeze(1), target)
    assert runner.message_hub.scalars['train/train/IoU'] == pytest.approx(expected.item())


def test_head_of_images():
    """MMPretrain's heads call their `loss_module` with logits and labels of images."""
    model = SimpleNamespace(head=nn.Module())
    model.head.num_classes, model.head.loss_module = 3, nn.CrossEntropyLoss()
    hook = started(model, dict(mIoU=JACCARD), head='head')
    logits, target = torch.randn(9, 3), torch.randint(3, (9,))
    model.head.loss_module(logits, target)
    runner = SimpleNamespace(iter=0, message_hub=hub())
    hook.after_train_iter(runner, 0)
    assert runner.message_hub.scalars['train/train/mIoU'] == pytest.approx(
        MulticlassJaccardIndex(3)(logits, target).item()
    )
    with pytest.raises(ValueError, match=r'class labels.*\(Mixup, CutMix\) have no class'):
        model.head.loss_module(logits, logits.softmax(1))


class TestMistakes:
    @pytest.mark.parametrize(('argument', 'value'), [('interval', 0), ('loss', -1)])
    def test_arguments(self, argument, value):
        with pytest.raises(ValueError, match=f'`{argument}`'):
            TrainMetricsHook(METRICS, **{argument: value})

    def test_other_number_of_classes(self):
        with pytest.raises(ValueError, match=r"`num_classes` of metric 'mIoU' .* should be 3, .* Found 5"):
            started(metrics=dict(mIoU=dict(JACCARD, num_classes=5)))

    def test_labels_that_do_not_count(self):
        model = Pixels()
        started(model, dict(mIoU=MulticlassJaccardIndex(3)))
        with pytest.raises(ValueError, match=r"'mIoU' .*Found 255 in the ground truth.*`ignore_index=255`"):
            model.decode_head.loss_decode(torch.zeros(1, 3, 2, 2), torch.full((1, 2, 2), 255))

    def test_metrics_of_several_labels(self):
        with pytest.raises(ValueError, match='Found metrics of several labels an item'):
            TrainMetricsHook(dict(a=MultilabelAccuracy(3)))

    def test_head_that_does_not_call_its_loss(self):
        with pytest.raises(RuntimeError, match='TrainMetricsHook heard nothing'):
            started().after_train_iter(SimpleNamespace(iter=0), 0)


def test_two_processes_find_what_one_finds(tmp_path):
    for found in found_by_ranks(__file__, tmp_path):
        assert found == pytest.approx(iterations(0, 1), rel=1e-6)


def iterations(rank, world_size):
    """What is told after an iteration on this process's half of the batch."""
    model, runner = Pixels(), SimpleNamespace(iter=0, message_hub=hub())
    hook = started(model)
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(4, 3, 6, 6, generator=generator), torch.randint(3, (4, 6, 6), generator=generator)
    model.decode_head.loss_decode(logits.chunk(world_size)[rank], labels.chunk(world_size)[rank])
    hook.after_train_iter(runner, 0)
    return runner.message_hub.scalars


if __name__ == '__main__':
    find_as_a_process(lambda rank: iterations(rank, 2))

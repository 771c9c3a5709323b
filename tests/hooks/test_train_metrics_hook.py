"""Metrics of training, by a real Runner and by two processes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hooks.pixels import BINARY, LOVASZ, NAMES, Pixels, after_iteration, head, logged, random_batch, started, trained
from processes import find_as_a_process, found_by_ranks
from torch import nn
from torchmetrics.classification import (
    BinaryJaccardIndex,
    MulticlassAveragePrecision,
    MulticlassJaccardIndex,
    MultilabelAccuracy,
)

from mmseg_nondecomp import TrainMetricsHook

COUNT = dict(num_classes=3, ignore_index=255)
JACCARD = dict(type='torchmetrics.classification.MulticlassJaccardIndex', **COUNT)
METRICS = dict(
    mIoU=JACCARD,
    IoU=dict(JACCARD, average=None),
    AP=dict(type='torchmetrics.classification.MulticlassAveragePrecision', thresholds=20, **COUNT),
    lovasz=dict(type='LovaszJaccardIndex', **COUNT),
    matrix=dict(type='torchmetrics.classification.MulticlassConfusionMatrix', **COUNT),
)
HOOK = dict(type='TrainMetricsHook', metrics=METRICS)


def test_reports_the_batches_since_the_last_report(tmp_path):
    runner = trained(tmp_path, 7, HOOK | dict(interval=3))
    for name, metric in dict(
        mIoU=MulticlassJaccardIndex(**COUNT), AP=MulticlassAveragePrecision(thresholds=20, **COUNT)
    ).items():
        expected = []
        for i in (0, 3):
            for logits, target in runner.model.seen[i : i + 3]:
                metric.update(logits.softmax(1), target)
            expected.append(metric.compute().item())
            metric.reset()
        assert np.allclose(logged(runner, name), expected)
    assert np.allclose(sum(logged(runner, f'IoU.{name}') for name in NAMES) / 3, logged(runner, 'mIoU'))
    assert not any('matrix' in key for key in runner.message_hub.log_scalars)
    assert runner.model.n_forward == 7, 'no second forward pass'
    [file] = tmp_path.glob('*/vis_data/scalars.json')
    assert '"train/mIoU": ' in file.read_text().splitlines()[-1]


def started_with(model=None, metrics=METRICS, **settings):
    return started(TrainMetricsHook(metrics, interval=1, **settings), model)


def test_one_channel():
    model = SimpleNamespace(decode_head=head(**BINARY, threshold=0.3))
    hook = started_with(model, dict(IoU=BinaryJaccardIndex()))
    logits, target = torch.randn(2, 1, 8, 8), torch.randint(2, (2, 8, 8))
    model.decode_head.loss_decode(logits, target)
    expected = BinaryJaccardIndex(threshold=0.3)(logits.sigmoid().squeeze(1), target)
    assert after_iteration(hook)['train/train/IoU'] == pytest.approx(expected.item())


def test_head_of_images():
    """MMPretrain's heads call their `loss_module` with logits and labels of images."""
    model = SimpleNamespace(head=nn.Module())
    model.head.num_classes, model.head.loss_module = 3, nn.CrossEntropyLoss()
    hook = started_with(model, dict(mIoU=JACCARD), head='head')
    logits, target = torch.randn(9, 3), torch.randint(3, (9,))
    model.head.loss_module(logits, target)
    expected = MulticlassJaccardIndex(3)(logits, target).item()
    assert after_iteration(hook)['train/train/mIoU'] == pytest.approx(expected)
    with pytest.raises(ValueError, match=r'class labels.*\(Mixup, CutMix\) have no class'):
        model.head.loss_module(logits, logits.softmax(1))


class TestMistakes:
    def test_other_number_of_classes(self):
        with pytest.raises(ValueError, match=r"`num_classes` of metric 'mIoU' .* should be 3, .* Found 5"):
            started_with(metrics=dict(mIoU=dict(JACCARD, num_classes=5)))

    def test_metrics_of_boxes_and_of_several_labels(self):
        with pytest.raises(ValueError, match='Found metrics of several labels an item'):
            TrainMetricsHook(dict(a=MultilabelAccuracy(3)))
        with pytest.raises(ValueError, match='Found metrics of boxes'):
            TrainMetricsHook(dict(a=MulticlassJaccardIndex(3)), inputs=dict(a='instances'))


def test_two_processes_compute_the_values_of_one(tmp_path):
    for found in found_by_ranks(__file__, tmp_path):
        assert found == pytest.approx(iteration(0, 1), rel=1e-6)


def iteration(rank, world_size):
    """The log after an iteration on this process's part of the batch."""
    model = Pixels(head(LOVASZ))
    hook = started_with(model)
    logits, labels = random_batch()
    model.decode_head.loss_decode(logits.chunk(world_size)[rank], labels.chunk(world_size)[rank])
    return after_iteration(hook)


if __name__ == '__main__':
    find_as_a_process(lambda rank: iteration(rank, 2))

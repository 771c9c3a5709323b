"""Metrics that are updated together: each has the value that it has alone."""

import gc
from contextlib import nullcontext

import pytest
import torch
from predicted_maps import COUNT, OF_STOCK, TORCHMETRICS, LabelMaps
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassAveragePrecision, MulticlassJaccardIndex

from mmseg_nondecomp import TorchMetricsEvaluator
from mmseg_nondecomp.evaluation._batch import Scores, batch_of_classes
from mmseg_nondecomp.evaluation._metric_set import MetricSet

COUNTED = dict(
    a=dict(type=f'{TORCHMETRICS}AveragePrecision', thresholds=20, **COUNT), b=dict(type='LovaszJaccardIndex', **COUNT)
)
OF_EACH_KIND = dict(
    IoU=dict(type=f'{TORCHMETRICS}JaccardIndex', num_classes=3),
    F1=dict(type=f'{TORCHMETRICS}F1Score', num_classes=3),
    AP=dict(type=f'{TORCHMETRICS}AveragePrecision', num_classes=3),
    images=dict(type='JaccardIndexByImage', num_classes=3),
)


def ours(**metrics):
    return TorchMetricsEvaluator(metrics)


def predictions(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, 4, 5, generator=generator), torch.randint(3, (n, 4, 5), generator=generator)


def update(metric_set, logits, target):
    specs = set(metric_set.specs.values())
    metric_set.update(batch_of_classes(specs, logits.argmax(1), Scores(logits, are_probabilities=False), target))


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_values_are_those_of_metrics_that_are_updated_alone():
    logits, target = predictions(4)
    metric_set = MetricSet({name: OF_EACH_KIND[name] for name in ('IoU', 'AP')})
    alone = dict(IoU=MulticlassJaccardIndex(3), AP=MulticlassAveragePrecision(3))
    for images in (slice(0, 1), slice(1, 4)):
        update(metric_set, logits[images], target[images])
        for metric in alone.values():
            metric.update(logits[images].softmax(1), target[images])
    assert_same(metric_set.compute(), {name: metric.compute() for name, metric in alone.items()})


@pytest.mark.parametrize('shares', [(2, 3), (5, 0), (0, 5), (1, 1, 3)], ids=str)
def test_merged_states_are_that_of_all_images(shares):
    """Where a process has seen no image, too."""
    logits, target = predictions(5)
    whole, *parts = (MetricSet(OF_EACH_KIND) for _ in range(1 + len(shares)))
    for image in range(5):
        update(whole, logits[image : image + 1], target[image : image + 1])
    images = iter(range(5))
    for part, share in zip(parts, shares, strict=True):
        for image in [next(images) for _ in range(share)]:
            update(part, logits[image : image + 1], target[image : image + 1])
    states = [part.state() for part in parts]
    for part in parts:
        part.merge(states)
        assert_same(part.compute(), whole.compute())


@pytest.mark.parametrize('inputs', [dict(mIoU='labels'), ['IoU']], ids=str)
def test_inputs_of_metrics_that_are_not_there(inputs):
    with pytest.raises(ValueError, match=r"`inputs` should give one of .* for metrics of \['IoU'\]\. Found .*IoU"):
        MetricSet(dict(IoU=OF_EACH_KIND['IoU']), inputs)


def bytes_in_tensors():
    gc.collect()
    return sum(x.numel() * x.element_size() for x in gc.get_objects() if isinstance(x, torch.Tensor))


@pytest.mark.parametrize('metrics', [OF_STOCK, COUNTED], ids=str)
def test_memory_does_not_grow(metrics):
    evaluator, data = ours(**metrics), LabelMaps(40)
    held = []
    for n in (2, 38):
        for i in range(n):
            evaluator.process(None, [data[i]])
        held.append(bytes_in_tensors())
    assert held[0] == held[1] > 0


@pytest.mark.parametrize(('settings', 'grows'), [(dict(), True), (dict(bins=64), False)], ids=str)
def test_a_metric_that_keeps_scores_of_pixels_warns(settings, grows):
    evaluator = ours(AP=dict(type='DirectAveragePrecision', **COUNT) | settings)
    sample = LabelMaps(1, (400, 400))[0]
    with pytest.warns(UserWarning, match="'AP' .* keeps all .* `bins`") if grows else nullcontext():
        evaluator.process(None, [sample])


def test_metrics_that_ignore_different_labels_share_nothing():
    """Where the first batch has neither label, a collection of torchmetrics takes them for one metric."""
    target = torch.zeros(2, 8, 8).long()
    target[1] = 2
    labels = torch.zeros(2, 8, 8).long()
    metrics = dict(
        all=dict(type=f'{TORCHMETRICS}Accuracy', num_classes=3, average='micro'),
        some=dict(type=f'{TORCHMETRICS}Accuracy', num_classes=3, average='micro', ignore_index=2),
    )
    evaluator = TorchMetricsEvaluator(metrics)
    of_torchmetrics = MetricCollection(
        {
            'all': MulticlassAccuracy(num_classes=3, average='micro'),
            'some': MulticlassAccuracy(num_classes=3, average='micro', ignore_index=2),
        }
    )
    for i in range(2):
        evaluator.process(
            None, [dict(pred_sem_seg=dict(data=labels[i : i + 1]), gt_sem_seg=dict(data=target[i : i + 1]))]
        )
        of_torchmetrics.update(labels[i : i + 1], target[i : i + 1])
    assert evaluator.evaluate(2) == dict(all=0.5, some=1.0)
    assert of_torchmetrics.compute()['some'] == 0.5


def test_errors_of_torchmetrics_name_the_metric():
    evaluator = ours(image=dict(type=f'{TORCHMETRICS}ExactMatch', num_classes=7, ignore_index=255))
    evaluator.metric_set.metrics['image'].update = lambda *args: torch.zeros(2) @ torch.zeros(3)
    with pytest.raises(RuntimeError, match=r"'image' \(MulticlassExactMatch\), which was given labels, .*int64"):
        evaluator.process(None, [LabelMaps(1)[0]])

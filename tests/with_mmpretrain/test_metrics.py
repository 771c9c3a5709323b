"""Torchmetrics metrics on predictions of MMPretrain; and on boxes, where torchmetrics needs torchvision."""

import needs_mmpretrain  # noqa: F401  isort: skip

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from mmengine.evaluator import Evaluator
from mmengine.structures import InstanceData
from mmpretrain.evaluation import Accuracy, MultiLabelMetric
from mmpretrain.models.heads import LinearClsHead
from mmpretrain.structures import DataSample
from torch import nn

from mmseg_nondecomp import TorchMetricsEvaluator
from mmseg_nondecomp.metrics import SmoothTopKAccuracy

C = 'torchmetrics.classification.'
N_CLASSES = 6
META = dict(classes=[f'class {c}' for c in range(N_CLASSES)])


def evaluate(metrics, samples, batch_size=4):
    evaluator = Evaluator(metrics)
    evaluator.dataset_meta = META
    for i in range(0, len(samples), batch_size):
        evaluator.process(samples[i : i + batch_size])
    return evaluator.evaluate(len(samples))


def predicted(n=30):
    """Return the predictions of a linear head and its logits."""
    torch.manual_seed(0)
    head = LinearClsHead(N_CLASSES, 5, topk=(1,))
    samples = [DataSample().set_gt_label(int(c)) for c in torch.randint(N_CLASSES, (n,))]
    features = 9 * torch.randn(n, 5)
    return head.predict((features,), samples), head.fc(features).detach()


def test_one_label():
    samples, logits = predicted()
    count = dict(num_classes=N_CLASSES)
    metrics = dict(
        top1=dict(type=f'{C}MulticlassAccuracy', average='micro', **count),
        top2=dict(type=f'{C}MulticlassAccuracy', average='micro', top_k=2, **count),
        auroc=dict(type=f'{C}MulticlassAUROC', **count),
        smooth=dict(type='SmoothTopKAccuracy', k=2, **count),
        acc=dict(type=f'{C}MulticlassAccuracy', average=None, **count),
    )
    found = evaluate([TorchMetricsEvaluator(metrics), Accuracy(topk=(1, 2))], samples)
    assert 100 * found['top1'] == pytest.approx(found['accuracy/top1'])
    assert 100 * found['top2'] == pytest.approx(found['accuracy/top2'])
    target = torch.cat([sample.gt_label for sample in samples])
    assert found['smooth'] == pytest.approx(SmoothTopKAccuracy(N_CLASSES, 2)(logits, target).item(), rel=1e-5)
    assert {f'acc.{name}' for name in META['classes']} < set(found)
    assert 0 <= found['auroc'] <= 1


def test_several_labels():
    generator = torch.Generator().manual_seed(0)
    samples = []
    for _ in range(20):
        labels = (torch.rand(N_CLASSES, generator=generator) < 0.4).nonzero().flatten()
        score = torch.rand(N_CLASSES, generator=generator)
        samples.append(DataSample().set_gt_label(labels).set_pred_score(score))
    metrics = dict(
        f1=dict(type=f'{C}MultilabelF1Score', num_labels=N_CLASSES),
        ap=dict(type=f'{C}MultilabelAveragePrecision', num_labels=N_CLASSES, average=None),
    )
    found = evaluate([TorchMetricsEvaluator(metrics), MultiLabelMetric(thr=0.5)], samples)
    # MMPretrain combines the averages of precision and recall; torchmetrics averages the F1 scores of the classes.
    assert found['f1'] == pytest.approx(found['multi-label/f1-score'] / 100, abs=0.05)
    assert sum(name.startswith('ap.class') for name in found) == N_CLASSES
    with pytest.raises(ValueError, match=r'one `gt_label` for each.*`num_labels`'):
        evaluate([TorchMetricsEvaluator(dict(a=dict(type=f'{C}MulticlassAccuracy', num_classes=6)))], samples)


def boxes(n, generator):
    corner = 60 * torch.rand(n, 2, generator=generator)
    return torch.cat([corner, corner + 8 + 20 * torch.rand(n, 2, generator=generator)], 1)


@pytest.mark.skipif(not (find_spec('mmdet') and find_spec('pycocotools')), reason='needs MMDetection and pycocotools')
def test_average_precision_of_boxes():
    from mmdet.evaluation import CocoMetric
    from mmdet.structures import DetDataSample

    generator = torch.Generator().manual_seed(0)
    samples = []
    for i in range(8):
        true, labels = boxes(6, generator), torch.randint(3, (6,), generator=generator)
        found = true + 3 * torch.randn(6, 4, generator=generator)
        scores = torch.rand(6, generator=generator)
        sample = DetDataSample(metainfo=dict(img_id=i, ori_shape=(100, 100)))
        sample.pred_instances = InstanceData(bboxes=found, scores=scores, labels=labels.roll(1) if i == 3 else labels)
        sample.gt_instances = InstanceData(bboxes=true[:5], labels=labels[:5])
        sample.ignored_instances = InstanceData(bboxes=true[5:], labels=labels[5:])
        flags = [0] * 5 + [1]
        sample.set_metainfo(
            dict(
                instances=[
                    dict(bbox=box.tolist(), bbox_label=int(label), ignore_flag=flag)
                    for box, label, flag in zip(true, labels, flags, strict=True)
                ]
            )
        )
        samples.append(sample)
    metrics = dict(coco=dict(type='torchmetrics.detection.MeanAveragePrecision', class_metrics=True))
    found = evaluate([TorchMetricsEvaluator(metrics), CocoMetric(metric='bbox')], samples)
    assert 0.1 < found['coco.map'] < 0.9
    for ours, theirs in (('map', 'mAP'), ('map_50', 'mAP_50'), ('map_75', 'mAP_75'), ('map_medium', 'mAP_m')):
        assert found[f'coco.{ours}'] == pytest.approx(found[f'coco/bbox_{theirs}'], abs=6e-4), ours
    of_classes = [found[f'coco.map_per_class.class {c}'] for c in range(3)]
    assert np.mean(of_classes) == pytest.approx(found['coco.map'], abs=1e-5)


def test_train_metrics_of_a_head():
    from types import SimpleNamespace

    from mmseg_nondecomp import TrainMetricsHook

    torch.manual_seed(0)
    model = nn.Module()
    model.head = LinearClsHead(N_CLASSES, 5, topk=(1,), cal_acc=True)
    hook = TrainMetricsHook(
        dict(acc=dict(type=f'{C}MulticlassAccuracy', average='micro', num_classes=N_CLASSES)), interval=1, head='head'
    )
    told = {}
    hub = SimpleNamespace(update_scalar=told.__setitem__)
    runner = SimpleNamespace(
        model=model, message_hub=hub, iter=0, train_dataloader=SimpleNamespace(dataset=SimpleNamespace(metainfo=META))
    )
    hook.before_train(runner)
    samples = [DataSample().set_gt_label(int(c)) for c in torch.randint(N_CLASSES, (30,))]
    losses = model.head.loss((torch.randn(30, 5),), samples)
    hook.after_train_iter(runner, 0)
    assert 100 * told['train/train/acc'] == pytest.approx(losses['accuracy_top-1'][0].item())

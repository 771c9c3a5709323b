"""The evaluator against MMSegmentation's own, by one process and by two."""

import pytest
import torch
from mmengine.dataset import DefaultSampler
from mmengine.evaluator import Evaluator
from mmengine.registry import EVALUATOR, METRICS
from mmengine.runner import Runner
from mmengine.structures import InstanceData, PixelData
from mmseg.evaluation import IoUMetric
from mmseg.structures import SegDataSample
from predicted_maps import COUNT, NAMES, OF_STOCK, TORCHMETRICS, LabelMaps
from processes import find_as_a_process, found_by_ranks
from torch.utils.data import BatchSampler
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import (
    BinaryAveragePrecision,
    BinaryCalibrationError,
    MulticlassAveragePrecision,
    MulticlassJaccardIndex,
)

from mmseg_nondecomp import TorchMetricsEvaluator
from mmseg_nondecomp.evaluation._matching import hits

OTHERS = dict(
    kept_scores=dict(type=f'{TORCHMETRICS}AveragePrecision', **COUNT),
    histogram=dict(type=f'{TORCHMETRICS}AveragePrecision', thresholds=20, **COUNT),
    images=dict(type='JaccardIndexByImage', **COUNT),
    lovasz=dict(type='LovaszJaccardIndex', **COUNT),
    direct=dict(type='DirectAveragePrecision', **COUNT),
)
CASES = [(n, batch_size) for n in (1, 2, 3, 5, 8, 201) for batch_size in (1, 3)]


class SeenImages(Metric):
    """Which images were seen, one list entry an image, as `MeanAveragePrecision` keeps what it sees."""

    def __init__(self):
        super().__init__()
        self.add_state('seen', default=[], dist_reduce_fx=None)

    def update(self, preds, target):
        self.seen += [(image.flatten() * torch.arange(image.numel())).sum() for image in target]

    def compute(self):
        return {'n': torch.tensor(len(self.seen)), 'different': torch.stack(self.seen).unique().numel()}


class UnroundedIoU(IoUMetric):
    def compute_metrics(self, results):
        totals = [sum(areas) for areas in zip(*results, strict=True)]
        found = self.total_area_to_metrics(*totals, self.metrics)
        return {name if name == 'aAcc' else f'm{name}': torch.tensor(value).nanmean() for name, value in found.items()}


def evaluate(metrics, data, batch_size=4, round_up=True):
    """The values of evaluators on this process's part of the data, as in a validation loop."""
    evaluator = Evaluator(metrics)
    evaluator.dataset_meta = data.metainfo
    for indices in BatchSampler(DefaultSampler(data, shuffle=False, seed=0, round_up=round_up), batch_size, False):
        evaluator.process([data[i] for i in indices])
    return evaluator.evaluate(len(data))


def stock():
    return UnroundedIoU(iou_metrics=['mIoU', 'mDice', 'mFscore'], collect_device='gpu')


def ours(**metrics):
    return TorchMetricsEvaluator(metrics)


def test_values_are_those_of_iou_metric():
    data = LabelMaps(200)
    found, expected = evaluate([ours(**OF_STOCK)], data), evaluate([stock()], data)
    for name in OF_STOCK:
        assert found[name] == pytest.approx(expected[name].item(), rel=1e-6)
    assert 0.3 < found['mIoU'] < found['mAcc'] < 0.9


def test_classes_that_are_decided_but_nowhere_true_count_in_torchmetrics_alone():
    data = LabelMaps(5)
    for sample in (samples := [data[i] for i in range(5)]):
        sample['gt_sem_seg']['data'][sample['gt_sem_seg']['data'] == 3] = 0
    assert any((sample['pred_sem_seg']['data'] == 3).any() for sample in samples)
    evaluator = Evaluator([ours(**OF_STOCK), UnroundedIoU(iou_metrics=['mIoU', 'mDice', 'mFscore'], prefix='stock')])
    evaluator.dataset_meta = LabelMaps.metainfo
    evaluator.process(samples)
    found = evaluator.evaluate(5)
    for name in OF_STOCK:
        ratio = 5 / 6 if name in ('mAcc', 'mFscore') else 1
        assert found[name] == pytest.approx(ratio * found[f'stock/{name}'].item(), rel=1e-6)


def everything():
    return TorchMetricsEvaluator(OF_STOCK | OTHERS | dict(seen=SeenImages()), inputs=dict(seen='labels'))


def find(rank):
    """The values of a process on its own images, {(images, batch size, sampler): values}."""
    found = {}
    for n, batch_size in CASES:
        for round_up in (True, False):
            found[n, batch_size, round_up] = evaluate([everything()], LabelMaps(n), batch_size, round_up)
        found[n, batch_size, 'stock'] = {k: v.item() for k, v in evaluate([stock()], LabelMaps(n), batch_size).items()}
    try:
        evaluator = ours(**OF_STOCK)
        for i in range(6):
            evaluator.process(None, [LabelMaps(9)[i]])
        evaluator.evaluate(9)
    except RuntimeError as error:
        found['too many'] = str(error)
    return found


@pytest.fixture(scope='module')
def found_by_processes(tmp_path_factory):
    return found_by_ranks(__file__, tmp_path_factory.mktemp('evaluator'))


@pytest.mark.parametrize('round_up', [True, False])
@pytest.mark.parametrize(('n', 'batch_size'), CASES)
def test_two_processes_find_what_one_finds(found_by_processes, n, batch_size, round_up):
    """Whether the sampler repeats images at the end, or leaves a process with fewer, or with none."""
    expected = evaluate([everything()], LabelMaps(n), batch_size)
    assert expected['seen.n'] == expected['seen.different'] == n
    for found in found_by_processes:
        assert found[n, batch_size, round_up].keys() == expected.keys()
        for name, value in expected.items():
            if name != 'images.batch':  # two processes have other batches
                assert found[n, batch_size, round_up][name] == pytest.approx(value, rel=1e-5, nan_ok=True), name


@pytest.mark.parametrize(('n', 'batch_size'), [case for case in CASES if case[0] > 2])
def test_two_processes_find_what_iou_metric_finds(found_by_processes, n, batch_size):
    for found in found_by_processes:
        for name in ('mIoU', 'aAcc', 'mDice') if n < 200 else OF_STOCK:
            value = found[n, batch_size, True][name]
            assert value == pytest.approx(found[n, batch_size, 'stock'][name], rel=1e-6), name


def test_more_repetitions_than_a_sampler_makes_are_an_error_on_all_processes(found_by_processes):
    for found in found_by_processes:
        assert 'given [6, 6] images by the processes, more than can be repetitions' in found['too many']


def test_an_evaluator_starts_anew():
    evaluator = ours(**OF_STOCK)
    assert evaluator.evaluate(0) == {}
    for n in (3, 5, 3):
        data = LabelMaps(n)
        for i in range(n):
            evaluator.process(None, [data[i]])
        assert evaluator.evaluate(n) == evaluate([ours(**OF_STOCK)], data)


def test_images_of_several_sizes():
    data = [LabelMaps(9, (10 + i, 12))[i] for i in range(4)]
    evaluator = ours(**OF_STOCK)
    evaluator.process(None, data)
    one_by_one = ours(**OF_STOCK)
    for sample in data:
        one_by_one.process(None, [sample])
    assert evaluator.evaluate(4) == one_by_one.evaluate(4)


def detections(n_boxes, n_objects, generator):
    """An image of boxes, some of which are near objects."""
    corner = 10 * torch.rand(n_objects, 2, generator=generator)
    objects = torch.cat([corner, corner + 4], 1)
    near = objects.repeat(n_boxes, 1)[:n_boxes] if n_objects else torch.rand(n_boxes, 4, generator=generator)
    sample = SegDataSample()  # any data element
    sample.pred_instances = InstanceData(
        bboxes=near + torch.rand(n_boxes, 4, generator=generator),
        scores=torch.rand(n_boxes, generator=generator),
        labels=torch.randint(2, (n_boxes,), generator=generator),
    )
    sample.gt_instances = InstanceData(bboxes=objects, labels=torch.randint(2, (n_objects,), generator=generator))
    return sample


@pytest.mark.parametrize('batch_size', [1, 4])
def test_scores_of_boxes_that_are_right_or_wrong(batch_size):
    generator = torch.Generator().manual_seed(0)
    samples = [detections(n, m, generator) for n, m in [(9, 3), (0, 2), (5, 0), (7, 2), (0, 0), (8, 4)]]
    evaluator = TorchMetricsEvaluator(
        dict(
            ap=dict(type=f'{TORCHMETRICS.replace("Multiclass", "Binary")}AveragePrecision'),
            calibration=dict(type=f'{TORCHMETRICS.replace("Multiclass", "Binary")}CalibrationError'),
            direct=dict(type='DirectAveragePrecision'),
        )
    )
    evaluator.dataset_meta = dict(classes=('disk', 'square'))
    for start in range(0, len(samples), batch_size):
        evaluator.process(None, samples[start : start + batch_size])
    found = evaluator.evaluate(len(samples))
    images = [(sample.pred_instances, sample.gt_instances) for sample in samples]
    scores = torch.cat([pred.scores for pred, _ in images])
    right = torch.cat([hits(pred.bboxes, pred.scores, pred.labels, gt.bboxes, gt.labels) for pred, gt in images]).int()
    assert 0 < right.sum() < len(right)
    assert found['ap'] == pytest.approx(BinaryAveragePrecision()(scores, right).item())
    assert found['direct'] == pytest.approx(found['ap'])
    assert found['calibration'] == pytest.approx(BinaryCalibrationError()(scores, right).item())


class TestNames:
    def values(self, metrics, **kwargs):
        evaluator = TorchMetricsEvaluator(metrics, **kwargs)
        evaluator.dataset_meta = LabelMaps.metainfo
        evaluator.process(None, [LabelMaps(1)[0]])
        return evaluator.evaluate(1)

    def test_of_classes_dicts_wrappers_and_prefixes(self):
        accuracy = dict(type=f'{TORCHMETRICS}Accuracy', average=None, **COUNT)
        wrapper = dict(type='torchmetrics.wrappers.ClasswiseWrapper', metric=accuracy, labels=list(NAMES))
        images = dict(type='JaccardIndexByImage', **COUNT)
        found = self.values(dict(Acc=wrapper, plain=accuracy, iou=images), prefix='val')
        kinds = ('image', 'class', 'dataset', 'batch', 'worst')
        wrapped, plain = ([f'val/{prefix}{name}' for name in NAMES] for prefix in ('Acc.multiclassaccuracy_', 'plain.'))
        assert found.keys() == {*wrapped, *plain, *(f'val/iou.{kind}' for kind in kinds)}
        assert [found[name] for name in wrapped] == [found[name] for name in plain]

    @pytest.mark.parametrize('of_config', [True, False])
    def test_of_a_collection(self, of_config):
        members = dict(mIoU=MulticlassJaccardIndex(**COUNT), AP=MulticlassAveragePrecision(**COUNT))
        metrics = MetricCollection(members)
        if of_config:
            members = dict(mIoU=OF_STOCK['mIoU'], AP=OTHERS['kept_scores'])
            metrics = dict(type='torchmetrics.MetricCollection', metrics=members)
        alone = self.values(metrics)
        assert set(alone) == {'mIoU', 'AP'}
        assert self.values(dict(val=metrics)) == {f'val.{name}': value for name, value in alone.items()}


class TestIsBuilt:
    """MMEngine takes a config with `metrics` for that of a whole evaluator, one in a list for that of a metric."""

    @pytest.mark.parametrize('name', ['TorchMetricsEvaluator', 'mmseg_nondecomp.TorchMetricsEvaluator'])
    @pytest.mark.parametrize('in_a_list', [True, False])
    def test_by_a_runner(self, name, in_a_list):
        config = dict(type=name, metrics=OF_STOCK)
        evaluator = Runner.build_evaluator(None, [config] if in_a_list else config)
        evaluator.dataset_meta = LabelMaps.metainfo
        sample = LabelMaps(1)[0]
        sample = SegDataSample(**{key: PixelData(**value) for key, value in sample.items()})
        evaluator.process(data_samples=[sample], data_batch=None)
        assert evaluator.evaluate(1) == evaluate([ours(**OF_STOCK)], LabelMaps(1))

    def test_by_name(self):
        assert type(METRICS.build(dict(type='TorchMetricsEvaluator', metrics=OF_STOCK))) is TorchMetricsEvaluator
        assert type(EVALUATOR.build(dict(type='TorchMetricsEvaluator', metrics=OF_STOCK))) is Evaluator


class TestMistakes:
    def test_predictions_that_are_no_label_maps_of_the_right_size(self):
        sample, stock_metrics = LabelMaps(1)[0], ours(**OF_STOCK)
        with pytest.raises(ValueError, match=r'at the size of the ground truth\. Found \(3, 4\) and \(20, 24\)'):
            stock_metrics.process(None, [sample | dict(pred_sem_seg=dict(data=torch.zeros(1, 3, 4)))])
        with pytest.raises(ValueError, match=r"`pred_sem_seg` \(MMSegmentation\).*Found \['pred_depth_map'\]"):
            stock_metrics.process(None, [dict(pred_depth_map=None)])
        evaluator = TorchMetricsEvaluator(dict(seen=SeenImages()), inputs=dict(seen='instances'))
        with pytest.raises(ValueError, match=r'predictions are label maps\. Found metrics that need instances'):
            evaluator.process(None, [sample])

    @pytest.mark.parametrize(
        ('metric', 'key', 'message'),
        [('histogram', 'seg_logits', 'the metrics need scores'), ('images', 'gt_sem_seg', 'LoadAnnotations')],
    )
    def test_missing_data(self, metric, key, message):
        sample = LabelMaps(1)[0]
        del sample[key]
        with pytest.raises(ValueError, match=f'`{key}`.*{message}'):
            ours(a=OTHERS[metric]).process(None, [sample])


if __name__ == '__main__':
    find_as_a_process(find)

"""Errors for metrics and data of different classes name the metric."""

import pytest
import torch
from predicted_maps import TORCHMETRICS, LabelMaps
from torchmetrics.classification import BinaryAccuracy, MulticlassAccuracy, MulticlassJaccardIndex, MultilabelAccuracy

from mmseg_nondecomp import TorchMetricsEvaluator
from mmseg_nondecomp.evaluation._checks import check_batch, check_number_of_classes
from mmseg_nondecomp.evaluation._input_spec import InputSpec
from mmseg_nondecomp.metrics import JaccardIndexByImage

JACCARD = dict(type=f'{TORCHMETRICS}JaccardIndex')
AP_OF_FIVE = dict(type=f'{TORCHMETRICS}AveragePrecision', num_classes=5, ignore_index=255)
MEAN_IOU = dict(type='torchmetrics.segmentation.MeanIoU', num_classes=7, input_format='index')


def ours(**metrics):
    return TorchMetricsEvaluator(metrics)


def process(evaluator, **changes):
    evaluator.process(None, [LabelMaps(1)[0] | changes])


def test_number_of_classes_is_not_that_of_the_data_set():
    evaluator = ours(mIoU=dict(JACCARD, num_classes=5))
    with pytest.raises(ValueError, match=r"`num_classes` of metric 'mIoU' .* should be 7, .* Found 5"):
        evaluator.dataset_meta = LabelMaps.metainfo


@pytest.mark.parametrize(
    ('metric', 'message'),
    [
        (dict(JACCARD, num_classes=7), r"'a' .* from 0 to 6.* Found 255 in the ground .*`ignore_index=255`"),
        (MEAN_IOU, r'has no `ignore_index`: .* JaccardIndexByImage'),
        (dict(JACCARD, num_classes=3, ignore_index=255), r'from 0 to 2.* Found \d in the predictions'),
        (AP_OF_FIVE, r"'a' .* should be 7, the number of channels .* Found 5"),
    ],
    ids=['label', 'metric that cannot ignore', 'decision', 'channels'],
)
def test_labels_decisions_and_channels_without_a_class(metric, message):
    with pytest.raises(ValueError, match=message):
        process(ours(a=metric))


def test_label_that_is_no_class_in_a_later_batch():
    evaluator = ours(mIoU=dict(JACCARD, num_classes=7))
    labels = torch.zeros(1, 8, 8).long()
    process(evaluator, pred_sem_seg=dict(data=labels), gt_sem_seg=dict(data=labels))
    with pytest.raises(ValueError, match='Found 255 in the ground truth'):
        process(evaluator)


def test_numbers_of_labels_and_of_classes_with_the_background():
    with pytest.raises(ValueError, match=r"`num_labels` of metric 'a' \(MultilabelAccuracy\) should be 4, .* Found 3"):
        check_number_of_classes('a', MultilabelAccuracy(num_labels=3), 4)
    check_number_of_classes('a', JaccardIndexByImage(num_classes=1), 2)
    with pytest.raises(ValueError, match=r'`num_classes` .* should be 3, .* Found 1'):
        check_number_of_classes('a', JaccardIndexByImage(num_classes=1), 3)


@pytest.mark.parametrize('ignored', [2, -1, 255])
def test_labels_to_be_ignored_and_empty_batches_are_no_mistake(ignored):
    target, preds = torch.tensor([[0, 1, ignored]]), torch.tensor([[0, 1, 1]])
    metric = MulticlassJaccardIndex(2, ignore_index=ignored)
    check_batch('a', metric, InputSpec('labels'), preds[:0], target[:0], set())
    check_batch('a', metric, InputSpec('labels'), preds, target, set())
    with pytest.raises(ValueError, match=f'Found {ignored} in the ground truth'):
        check_batch('a', MulticlassJaccardIndex(2), InputSpec('labels'), preds, target, set())


def test_two_classes_that_a_metric_does_not_name():
    decided, target = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match=r"'a' \(BinaryAccuracy\) should be from 0 to 1, .* Found 2 in the ground"):
        check_batch('a', BinaryAccuracy(), InputSpec('labels', 'binary'), decided, target, set())


def test_a_metric_that_does_not_ignore_is_an_error_beside_one_that_does():
    """Labels that are valid for one metric need not be valid for another."""
    decided, target, checked = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 255]), set()
    check_batch('some', MulticlassAccuracy(2, ignore_index=255), InputSpec('labels'), decided, target, checked)
    with pytest.raises(ValueError, match=r"'all' .* Found 255 in the ground truth"):
        check_batch('all', MulticlassAccuracy(2), InputSpec('labels'), decided, target, checked)

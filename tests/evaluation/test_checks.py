"""Errors for metrics and data of different classes name the metric."""

import pytest
import torch
from predicted_maps import COUNT, TORCHMETRICS, LabelMaps
from torchmetrics.classification import BinaryAccuracy, MulticlassAccuracy, MulticlassJaccardIndex, MultilabelAccuracy

from mmseg_nondecomp import TorchMetricsEvaluator
from mmseg_nondecomp.evaluation._checks import check_batch, check_number_of_classes
from mmseg_nondecomp.evaluation._input_spec import InputSpec
from mmseg_nondecomp.metrics import JaccardIndexByImage


def ours(**metrics):
    return TorchMetricsEvaluator(metrics)


def process(evaluator, **changes):
    evaluator.process(None, [LabelMaps(1)[0] | changes])


def test_number_of_classes_is_not_that_of_the_data_set():
    evaluator = ours(mIoU=dict(type=f'{TORCHMETRICS}JaccardIndex', num_classes=5))
    with pytest.raises(ValueError, match=r"`num_classes` of metric 'mIoU' .* should be 7, .* Found 5"):
        evaluator.dataset_meta = LabelMaps.metainfo


@pytest.mark.parametrize(
    ('kind', 'settings', 'message'),
    [
        (
            f'{TORCHMETRICS}JaccardIndex',
            dict(num_classes=7),
            r"'a' .* from 0 to 6.* Found 255 in the ground .*`ignore_index=255`",
        ),
        (
            'torchmetrics.segmentation.MeanIoU',
            dict(num_classes=7, input_format='index'),
            r'has no `ignore_index`: .* JaccardIndexByImage',
        ),
        (
            f'{TORCHMETRICS}JaccardIndex',
            dict(num_classes=3, ignore_index=255),
            r'from 0 to 2.* Found \d in the predictions',
        ),
        (
            f'{TORCHMETRICS}AveragePrecision',
            dict(num_classes=5, ignore_index=255),
            r"'a' .* should be 7, the number of channels .* Found 5",
        ),
    ],
    ids=['label', 'metric that cannot ignore', 'decision', 'channels'],
)
def test_labels_decisions_and_channels_without_a_class(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        process(ours(a=dict(type=kind, **settings)))


def test_label_that_is_no_class_in_a_later_batch():
    evaluator = ours(mIoU=dict(type=f'{TORCHMETRICS}JaccardIndex', num_classes=7))
    labels = torch.zeros(1, 8, 8).long()
    process(evaluator, pred_sem_seg=dict(data=labels), gt_sem_seg=dict(data=labels))
    with pytest.raises(ValueError, match='Found 255 in the ground truth'):
        process(evaluator)


def test_number_of_labels_is_not_that_of_the_data_set():
    with pytest.raises(ValueError, match=r"`num_labels` of metric 'a' \(MultilabelAccuracy\) should be 4, .* Found 3"):
        check_number_of_classes('a', MultilabelAccuracy(num_labels=3), 4)


def test_one_class_against_the_background_makes_two():
    metric = JaccardIndexByImage(num_classes=1)
    check_number_of_classes('a', metric, 2)
    with pytest.raises(ValueError, match=r'`num_classes` .* should be 3, .* Found 1'):
        check_number_of_classes('a', metric, 3)


@pytest.mark.parametrize(('ignore_index', 'ignored'), [(2, 2), (-1, -1), (255, 255)])
def test_labels_to_be_ignored_are_no_mistake(ignore_index, ignored):
    target = torch.tensor([[0, 1, ignored]])
    metric, preds = MulticlassJaccardIndex(2, ignore_index=ignore_index), torch.tensor([[0, 1, 1]])
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


def test_nothing_is_no_mistake():
    nothing = torch.zeros(0, 4, 4).long()
    check_batch('a', MulticlassAccuracy(**COUNT), InputSpec('labels'), nothing, nothing, set())

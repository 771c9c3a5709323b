import pytest
import torchmetrics
import torchmetrics.classification as C
import torchmetrics.segmentation as S
from torchmetrics import Metric
from torchmetrics.wrappers import ClasswiseWrapper

from mmseg_nondecomp import metrics as ours
from mmseg_nondecomp.evaluation._input_spec import InputSpec, input_spec_of

COMPARES_SCORES = r"'a' .* compares scores.* `inputs` should be 'scores' or 'logits'"


@pytest.mark.parametrize(
    ('metric', 'kind', 'form'),
    [
        (C.MulticlassJaccardIndex(3), 'labels', 'classes'),
        (C.MulticlassAccuracy(3), 'labels', 'classes'),
        (C.MulticlassAccuracy(3, top_k=2), 'scores', 'classes'),
        (C.MulticlassF1Score(3), 'labels', 'classes'),
        (C.MulticlassExactMatch(3), 'labels', 'classes'),
        (C.MulticlassAUROC(3), 'scores', 'classes'),
        (C.MulticlassAveragePrecision(3), 'scores', 'classes'),
        (C.MulticlassRecallAtFixedPrecision(3, 0.5), 'scores', 'classes'),
        (C.MulticlassCalibrationError(3), 'scores', 'classes'),
        (C.MulticlassHingeLoss(3), 'scores', 'classes'),
        (C.BinaryAccuracy(), 'labels', 'binary'),
        (C.BinaryJaccardIndex(), 'labels', 'binary'),
        (C.BinaryAUROC(), 'scores', 'binary'),
        (C.MultilabelAccuracy(3), 'labels', 'multilabel'),
        (C.MultilabelRankingLoss(3), 'scores', 'multilabel'),
        (S.MeanIoU(3, input_format='index'), 'labels', 'classes'),
        (S.DiceScore(3, input_format='index'), 'labels', 'classes'),
        (ours.JaccardIndexByImage(3), 'labels', 'classes'),
        (ours.LovaszJaccardIndex(3), 'scores', 'classes'),
        (ours.LovaszJaccardIndex(1), 'scores', 'channel'),
        (ours.SoftJaccardIndex(3), 'scores', 'classes'),
        (ours.DirectAveragePrecision(3), 'logits', 'classes'),
        (ours.DirectAveragePrecision(), 'logits', 'channel'),
        (ours.SmoothTopKAccuracy(3, k=2), 'logits', 'classes'),
        (ClasswiseWrapper(C.MulticlassAUROC(3, average=None)), 'scores', 'classes'),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Metric) else str(value),
)
def test_follows_from_the_class(metric, kind, form):
    assert input_spec_of('a', metric, None) == InputSpec(kind, form)


def test_every_metric_of_the_package_is_known():
    for name in ours.__all__:
        input_spec_of(name, getattr(ours, name)(num_classes=8), None)


def test_something_else_can_be_asked_for():
    assert input_spec_of('a', C.MulticlassAccuracy(3), 'scores') == InputSpec('scores')
    assert input_spec_of('a', ours.LovaszJaccardIndex(3), 'labels') == InputSpec('labels')
    assert input_spec_of('a', torchmetrics.MeanSquaredError(), 'labels') == InputSpec('labels')


@pytest.mark.parametrize(
    ('metric', 'inputs', 'message'),
    [
        (torchmetrics.MeanSquaredError(), None, r"'a' \(MeanSquaredError\) may take .*`inputs=dict\(a='labels'\)`"),
        (C.BinaryAUROC(), 'labels', COMPARES_SCORES),
        (ours.SmoothTopKAccuracy(3, k=2), 'labels', COMPARES_SCORES),
        (C.BinaryAUROC(), 'probs', r"`inputs` should be one of \('labels'.*\) for metric 'a'\. Found 'probs'"),
        (S.MeanIoU(3, input_format='one-hot'), None, r"'a' \(MeanIoU\) .* class indices: set `input_format='index'`"),
    ],
    ids=['unknown', 'scores', 'logits', 'no such kind', 'one-hot'],
)
def test_inputs_that_a_metric_cannot_take(metric, inputs, message):
    with pytest.raises(ValueError, match=message):
        input_spec_of('a', metric, inputs)

import pytest
import torch
import torchmetrics.classification as C

from mmseg_nondecomp.evaluation._confusion_matrix import ConfusionMatrix, confusion_matrix_of, has_state, metric_state
from mmseg_nondecomp.evaluation._input_spec import InputSpec
from mmseg_nondecomp.functional._averaging import confusion_matrix

LABELS = InputSpec('labels')
KINDS = ['Accuracy', 'CohenKappa', 'ConfusionMatrix', 'F1Score', 'FBetaScore', 'HammingDistance', 'JaccardIndex']
KINDS += ['MatthewsCorrCoef', 'Precision', 'Recall', 'Specificity', 'StatScores']
AVERAGED = {*KINDS} - {'CohenKappa', 'ConfusionMatrix', 'MatthewsCorrCoef', 'StatScores'}


def labels(ignored=255):
    generator = torch.Generator().manual_seed(0)
    decided, target = torch.randint(0, 5, (2, 3, 8, 9), generator=generator)
    target[:, 0] = ignored
    return decided, target


@pytest.mark.parametrize('ignore_index', [None, 255, 2, -1])
@pytest.mark.parametrize(
    ('kind', 'average'),
    [(kind, average) for kind in KINDS for average in (['macro', 'micro', None] if kind in AVERAGED else ['default'])],
)
def test_state_is_that_of_an_update(kind, average, ignore_index):
    settings = {} if average == 'default' else dict(average=average)
    settings |= dict(beta=2.0) if kind == 'FBetaScore' else {}
    metric = getattr(C, f'Multiclass{kind}')(num_classes=5, ignore_index=ignore_index, **settings)
    matrix = confusion_matrix_of(metric, LABELS)
    assert matrix == ConfusionMatrix(5, ignore_index)
    decided, target = labels(1 if ignore_index is None else ignore_index)
    metric.update(decided, target)
    state = metric_state(metric, matrix.count(decided, target))
    assert has_state(metric, state)
    metric.update(decided, target)
    assert not has_state(metric, state)


class AccuracyOfAUser(C.MulticlassAccuracy):
    pass


@pytest.mark.parametrize(
    ('metric', 'spec'),
    [
        (C.MulticlassAccuracy(5), InputSpec('scores')),
        (C.MulticlassAccuracy(5, multidim_average='samplewise'), LABELS),
        (C.MulticlassExactMatch(5), LABELS),
        (C.BinaryAccuracy(), InputSpec('labels', 'binary')),
        (AccuracyOfAUser(5), LABELS),
    ],
    ids=str,
)
def test_others_count_for_themselves(metric, spec):
    assert confusion_matrix_of(metric, spec) is None


def test_confusion_matrix():
    decided = torch.tensor([0, 1, 1, 2, 2])
    target = torch.tensor([0, 1, 2, 2, 9])
    assert confusion_matrix(decided, target, 3).tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]

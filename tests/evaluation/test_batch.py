import pytest
import torch
from torch.testing import assert_close

from mmseg_nondecomp.evaluation._batch import batch_of_classes, needs_scores
from mmseg_nondecomp.evaluation._input_spec import InputSpec
from mmseg_nondecomp.evaluation._scores import Scores

LABELS, SCORES, LOGITS = InputSpec('labels'), InputSpec('scores'), InputSpec('logits')
MULTILABEL = InputSpec('labels', 'multilabel')


def images(n=2):
    """Logits, decided and true classes."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, 3, 4, 5, generator=generator)
    return logits, logits.argmax(1), torch.randint(3, (n, 4, 5), generator=generator)


def test_each_need_has_what_it_says():
    logits, labels, target = images()
    batch = batch_of_classes({LABELS, SCORES, LOGITS}, labels, Scores(logits, are_probabilities=False), target)
    assert batch.size == 2
    assert_close(
        batch.inputs, {LABELS: (labels, target), SCORES: (logits.softmax(1), target), LOGITS: (logits, target)}
    )


def test_decided_classes_need_no_scores():
    _, labels, target = images()
    needs = {LABELS, InputSpec('labels', 'binary')}
    assert not needs_scores(needs)
    assert_close(batch_of_classes(needs, labels, None, target).inputs, dict.fromkeys(needs, (labels, target)))


@pytest.mark.parametrize('need', [SCORES, LOGITS, InputSpec('scores', 'binary'), MULTILABEL], ids=str)
def test_scores_that_are_needed_and_not_there(need):
    _, labels, target = images()
    assert needs_scores({LABELS, need})
    with pytest.raises(ValueError, match='metrics need scores, but the data samples hold none'):
        batch_of_classes({LABELS, need}, labels, None, target)


def test_first_images():
    logits, labels, target = images()
    first = batch_of_classes({LABELS, LOGITS}, labels, Scores(logits, are_probabilities=False), target).first(1)
    assert first.size == 1
    assert_close(first.inputs, {LABELS: (labels[:1], target[:1]), LOGITS: (logits[:1], target[:1])})

import pytest
import torch
from torch.testing import assert_close

from mmseg_nondecomp.evaluation._batch import Scores, batch_of_classes, needs_scores
from mmseg_nondecomp.evaluation._input_spec import InputSpec

LABELS, SCORES, LOGITS = InputSpec('labels'), InputSpec('scores'), InputSpec('logits')
MULTILABEL = InputSpec('labels', 'multilabel')


def images(n=2):
    """Logits, decided and true classes."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, 3, 4, 5, generator=generator)
    return logits, logits.argmax(1), torch.randint(3, (n, 4, 5), generator=generator)


def test_each_input_has_its_kind():
    logits, labels, target = images()
    batch = batch_of_classes({LABELS, SCORES, LOGITS}, labels, Scores(logits, are_probabilities=False), target)
    assert batch.size == 2
    assert_close(
        batch.inputs, {LABELS: (labels, target), SCORES: (logits.softmax(1), target), LOGITS: (logits, target)}
    )


def test_decided_classes_need_no_scores():
    _, labels, target = images()
    specs = {LABELS, InputSpec('labels', 'binary')}
    assert not needs_scores(specs)
    assert_close(batch_of_classes(specs, labels, None, target).inputs, dict.fromkeys(specs, (labels, target)))


@pytest.mark.parametrize('spec', [SCORES, LOGITS, InputSpec('scores', 'binary'), MULTILABEL], ids=str)
def test_scores_that_are_needed_and_not_there(spec):
    _, labels, target = images()
    assert needs_scores({LABELS, spec})
    with pytest.raises(ValueError, match='metrics need scores, but the data samples hold none'):
        batch_of_classes({LABELS, spec}, labels, None, target)


def test_first_images():
    logits, labels, target = images()
    first = batch_of_classes({LABELS, LOGITS}, labels, Scores(logits, are_probabilities=False), target).first(1)
    assert first.size == 1
    assert_close(first.inputs, {LABELS: (labels[:1], target[:1]), LOGITS: (logits[:1], target[:1])})

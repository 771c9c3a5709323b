import pytest
import torch
from torch.testing import assert_close

from mmseg_nondecomp.evaluation.batch import batch_of_classes, needs_scores, stacked
from mmseg_nondecomp.evaluation.need import Need
from mmseg_nondecomp.evaluation.scores import Scores

LABELS, SCORES, LOGITS = Need('labels'), Need('scores'), Need('logits')
MULTILABEL = Need('labels', 'multilabel')


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
    needs = {LABELS, Need('labels', 'binary')}
    assert not needs_scores(needs)
    assert_close(batch_of_classes(needs, labels, None, target).inputs, dict.fromkeys(needs, (labels, target)))


@pytest.mark.parametrize('need', [SCORES, LOGITS, Need('scores', 'binary'), MULTILABEL], ids=str)
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


def test_a_single_map_is_not_copied():
    a, b = torch.rand(2, 3), torch.rand(2, 3)
    assert_close(stacked([a, b]), torch.stack([a, b]))
    assert_close(stacked([a]), a[None])
    assert stacked([a]).data_ptr() == a.data_ptr()

"""The average over classes, for any index of them."""

import pytest
import torch

from mmseg_nondecomp.metrics.functional._inputs import layout_of, probability_inputs
from mmseg_nondecomp.metrics.functional._jaccard import count_decided, jaccard_average

INDEX = torch.tensor([0.1, 0.2, 0.4, 0.8], dtype=torch.float64)
PRESENT = torch.tensor([True, False, True, False])
DECIDED = torch.tensor([0, 1, 1, 0])


def average(classes='seen', average='macro', ignore_index=None, present=PRESENT):
    return jaccard_average(INDEX, present, DECIDED, classes, average, ignore_index)


@pytest.mark.parametrize(
    ('classes', 'counted'),
    [('seen', [0, 1, 2]), ('present', [0, 2]), ('all', [0, 1, 2, 3]), ([3, 1], [1, 3])],
    ids=str,
)
def test_classes_that_count_but_for_one_that_is_ignored_and_not_listed(classes, counted):
    assert average(classes).item() == pytest.approx(INDEX[counted].mean().item())
    each = average(classes, None)
    assert torch.nonzero(~each.isnan()).flatten().tolist() == counted
    assert torch.equal(each[counted], INDEX[counted])
    others = [c for c in counted if c != 2]
    assert average(classes, ignore_index=2).item() == pytest.approx(INDEX[others].mean().item())
    assert average([2], ignore_index=2) == INDEX[2]
    assert average(classes, ignore_index=-2) == average(classes, ignore_index=4) == average(classes)


def test_decisions_are_counted_on_valid_pixels_and_the_average_of_no_class_is_nan():
    preds = torch.tensor([[1, 2, 3]])
    for scores in (preds, torch.eye(4)[preds].movedim(-1, 1)):
        inputs = probability_inputs(scores, torch.tensor([[0, 2, 255]]), layout_of(4))
        assert count_decided(scores, inputs, layout_of(4)).tolist() == [0, 1, 1, 0]
    assert average('present', present=torch.zeros(4, dtype=torch.bool)).isnan()

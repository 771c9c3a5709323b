"""The average over classes, apart from any index that is averaged."""

import pytest
import torch

from mmseg_nondecomp.metrics.jaccard_metric import JaccardMetric

INDEX = torch.tensor([0.1, 0.2, 0.4, 0.8], dtype=torch.float64)
PRESENT = torch.tensor([True, False, True, False])


class Index(JaccardMetric):
    """Gives the same index whatever it sees."""

    def update(self, preds, target):
        self.read(preds, target)

    def compute(self):
        return self.averaged(INDEX, PRESENT)


def metric(**arguments):
    """After two pixels that were decided for classes 1 and 2."""
    found = Index(4, **arguments)
    found.update(torch.tensor([[1, 2, 3]]), torch.tensor([[0, 2, 255]]))
    return found


@pytest.mark.parametrize(
    ('classes', 'counted'),
    [('seen', [0, 1, 2]), ('present', [0, 2]), ('all', [0, 1, 2, 3]), ([3, 1], [1, 3])],
    ids=str,
)
def test_classes_that_count(classes, counted):
    assert metric(classes=classes).compute().item() == pytest.approx(INDEX[counted].mean().item())
    each = metric(classes=classes, average=None).compute()
    assert torch.nonzero(~each.isnan()).flatten().tolist() == counted
    torch.testing.assert_close(each[counted].double(), INDEX[counted], rtol=1e-7, atol=0)


def test_decisions_are_counted_where_pixels_are():
    assert metric().decided.tolist() == [0, 1, 1, 0]


def test_no_class_is_no_number():
    assert metric(classes='present').averaged(INDEX, torch.zeros(4, dtype=torch.bool)).isnan()


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_value_has_the_type_of_the_scores(dtype):
    found = Index(2)
    found.update(torch.rand(1, 2, 3, dtype=dtype), torch.zeros(1, 3).long())
    assert found.averaged(INDEX[:2], PRESENT[:2]).dtype == dtype

import pytest
import torch
import torch.nn.functional as F
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from mmseg_nondecomp.functional import topk_marginals
from mmseg_nondecomp.metrics import SmoothTopKAccuracy


def batch(shape=(40, 12)):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator), torch.randint(shape[1], (shape[0], *shape[2:]), generator=generator)


@pytest.mark.parametrize('k', [1, 2, 5, 11])
def test_at_a_low_temperature_it_is_the_accuracy(k):
    scores, labels = batch()
    expected = MulticlassAccuracy(12, top_k=k, average='micro')(scores, labels)
    assert SmoothTopKAccuracy(12, k, tau=1e-6)(scores, labels) == pytest.approx(expected.item())


@pytest.mark.parametrize('k', [1, 3])
def test_is_the_mean_of_the_marginals_of_the_labels(k):
    scores, labels = batch((3, 6, 4, 5))
    marginals = topk_marginals(scores.movedim(1, -1) / (k * 0.5), k, normalize=False)
    expected = marginals.gather(-1, labels.unsqueeze(-1)).mean()
    assert SmoothTopKAccuracy(6, k, tau=0.5)(scores, labels) == pytest.approx(expected.item())


def test_soft_labels():
    scores, labels = batch()
    one_hot = F.one_hot(labels, 12).float()
    alone = SmoothTopKAccuracy(12, 3)(scores, labels)
    torch.testing.assert_close(SmoothTopKAccuracy(12, 3)(scores, one_hot), alone)
    other = SmoothTopKAccuracy(12, 3)(scores, labels.roll(1))
    mixed = SmoothTopKAccuracy(12, 3)(scores, 0.3 * one_hot + 0.7 * one_hot.roll(1, 0))
    torch.testing.assert_close(mixed, 0.3 * alone + 0.7 * other)


def test_metrics_that_agree_at_first_stay_apart_in_a_collection():
    scores, labels = torch.eye(12) * 9, torch.arange(12)
    collection = MetricCollection({f'top{k}': SmoothTopKAccuracy(12, k, tau=1e-6) for k in (1, 2)})
    collection.update(scores, labels)
    collection.update(scores, labels.roll(1))
    scores[torch.arange(12), labels.roll(1)] = 5
    collection.update(scores, labels.roll(1))
    actual = collection.compute()
    assert actual['top1'] < actual['top2']


@pytest.mark.parametrize('shape', [(40, 11), (40,)])
def test_scores_of_other_shapes_are_named(shape):
    with pytest.raises(ValueError, match=r'`preds` should hold scores of shape \[N, 12, \*\]'):
        SmoothTopKAccuracy(12).update(torch.zeros(shape), torch.zeros(40).long())


@pytest.mark.parametrize(('name', 'value'), [('k', 12), ('tau', 0.0)])
def test_mistakes(name, value):
    with pytest.raises(ValueError, match=f'`{name}`'):
        SmoothTopKAccuracy(12, **{name: value})

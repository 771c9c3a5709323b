import math

import pytest
import torch
import torch.nn.functional as F
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    BinaryAveragePrecision,
    MulticlassAveragePrecision,
    MultilabelAveragePrecision,
)

from mmseg_nondecomp.functional import direct_ap_loss
from mmseg_nondecomp.metrics.direct_average_precision import DirectAveragePrecision

N_CLASSES = 4


def binary(shape=(50,), tied=False):
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(shape, generator=generator)
    return (scores * 5).round() / 5 if tied else scores, torch.randint(0, 2, shape, generator=generator)


def multiclass(shape=(60, N_CLASSES)):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=generator)
    return torch.rand(shape, generator=generator), labels


def one_hot(labels):
    return F.one_hot(labels, N_CLASSES).movedim(-1, 1)


@pytest.mark.parametrize('tied', [False, True])
@pytest.mark.parametrize('shape', [(50,), (6, 5), (3, 1, 4, 5)], ids=str)
@pytest.mark.parametrize('ignore_index', [None, -1])
def test_of_one_class_it_is_the_binary_one(tied, shape, ignore_index):
    scores, target = binary(shape, tied)
    if ignore_index is not None:
        target[:2] = ignore_index
    expected = BinaryAveragePrecision(ignore_index=ignore_index)(scores, target)
    for num_classes in (None, 1):
        for labels in (target, target[:, 0]) if shape == (3, 1, 4, 5) else (target,):  # the channel may be left out
            actual = DirectAveragePrecision(num_classes, ignore_index=ignore_index)(scores, labels)
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize('tied', [False, True])
@pytest.mark.parametrize('shape', [(60, N_CLASSES), (2, N_CLASSES, 5, 6)], ids=str)
def test_of_labels_it_is_the_macro_average(tied, shape):
    scores, target = binary(shape, tied)
    target[:, 2] = 0  # no positives: does not count
    with pytest.warns(UserWarning, match='No positive samples'):
        expected = MultilabelAveragePrecision(N_CLASSES, average=None)(scores, target)[[0, 1, 3]].mean()
    for labels in (target, target.float(), 0.2 + 0.4 * target):
        torch.testing.assert_close(DirectAveragePrecision(N_CLASSES)(scores, labels), expected)


def test_single_labels_of_an_item_can_be_ignored():
    scores, target = binary((60, N_CLASSES))
    target[::3, 1] = -1
    target[5] = -1
    expected = MultilabelAveragePrecision(N_CLASSES, ignore_index=-1)(scores, target)
    torch.testing.assert_close(DirectAveragePrecision(N_CLASSES, ignore_index=-1)(scores, target), expected)


@pytest.mark.parametrize('shape', [(60, N_CLASSES), (2, N_CLASSES, 5, 6)], ids=str)
def test_of_class_indices_it_is_that_of_one_against_the_rest(shape):
    scores, labels = multiclass(shape)
    labels[labels == 2] = 3
    values = [DirectAveragePrecision(N_CLASSES)(scores, y) for y in (labels, one_hot(labels))]
    assert torch.equal(*values)
    labels[0] = 255
    metric = MulticlassAveragePrecision(N_CLASSES, ignore_index=255)
    with pytest.warns(UserWarning, match='Ignoring these classes'):
        expected = metric(scores, labels)
    torch.testing.assert_close(DirectAveragePrecision(N_CLASSES)(scores, labels), expected)


def test_large_scores_are_ranked_as_they_are():
    scores, target = torch.tensor([100.0, 101.0, 102.0, -1e30]), torch.tensor([1, 0, 1, 0])
    assert DirectAveragePrecision()(scores, target) == pytest.approx((1 + 2 / 3) / 2)
    assert BinaryAveragePrecision()(scores, target) == pytest.approx(2 / 3)  # its sigmoid has made them equal


@pytest.mark.parametrize('mode', ['positive', 'negative'])
def test_the_gradient_is_that_of_the_loss_downhill(mode):
    scores, labels = multiclass()
    scores.requires_grad_()
    value = DirectAveragePrecision(N_CLASSES, 1.0, mode)(scores, labels)
    (gradient,) = torch.autograd.grad(value, scores)
    loss = sum(direct_ap_loss(scores[:, c], labels == c, 1.0, mode) for c in range(N_CLASSES)) / N_CLASSES
    torch.testing.assert_close(value, 1 - loss)
    torch.testing.assert_close(gradient, -torch.autograd.grad(loss, scores)[0])
    assert gradient.any()


@pytest.mark.parametrize('bins', [None, 10])
def test_nothing_to_rank_is_nan(bins):
    scores, target = binary()
    for nothing in (torch.zeros_like(target), torch.full_like(target, 255)):
        assert DirectAveragePrecision(bins=bins)(scores, nothing).isnan()
    assert DirectAveragePrecision(bins=bins)(scores[:0], target[:0]).isnan()
    assert DirectAveragePrecision(bins=bins)(scores, torch.ones_like(target)) == 1


class TestHistogram:
    @pytest.mark.parametrize('scale', [torch.sigmoid, lambda x: 5 * x, lambda x: 1e5 * x], ids=['p', 'logits', 'large'])
    @pytest.mark.parametrize('dtype', [torch.float16, torch.float32, torch.float64], ids=str)
    def test_is_near_the_exact_value(self, scale, dtype):
        generator = torch.Generator().manual_seed(0)
        labels = torch.randint(0, N_CLASSES, (3000,), generator=generator)
        logits = torch.randn(3000, N_CLASSES, generator=generator) + F.one_hot(labels, N_CLASSES)
        scores = scale(logits.to(dtype)).clamp(max=torch.finfo(dtype).max)
        expected = DirectAveragePrecision(N_CLASSES)(scores, labels)
        actual = DirectAveragePrecision(N_CLASSES, bins=65_536)(scores, labels)
        assert actual.dtype == torch.float32
        assert actual.item() == pytest.approx(expected.item(), abs=5e-4)
        assert 0.3 < actual < 0.99

    def test_does_not_grow_and_counts_stay_whole_numbers_after_a_change_of_type(self):
        metric = DirectAveragePrecision(N_CLASSES, bins=100).set_dtype(torch.float16)
        for _ in range(3):
            metric.update(*multiclass((5000, N_CLASSES)))
        assert sum(state.numel() for state in metric.metric_state.values()) < N_CLASSES * 2 * 101 + 10
        assert metric.counts.sum() == 3 * N_CLASSES * 5000
        alone = DirectAveragePrecision(N_CLASSES, bins=100)(*multiclass((5000, N_CLASSES)))
        assert metric.compute() == pytest.approx(alone.item())

    @pytest.mark.parametrize('mode', ['positive', 'negative'])
    def test_the_gradient_is_that_of_the_scores_as_they_are(self, mode):
        scores, labels = multiclass()
        gradients = []
        for bins in (None, 1, 65_536):
            metric = DirectAveragePrecision(N_CLASSES, 1.0, mode, bins=bins)
            value = metric(scores.requires_grad_(), labels)
            gradients += torch.autograd.grad(value, scores)
            alone = DirectAveragePrecision(N_CLASSES, bins=bins)
            alone.update(scores, labels)
            torch.testing.assert_close(value.detach(), alone.compute().detach(), rtol=1e-6, atol=0)
            assert not any(torch.as_tensor(part).requires_grad for part in metric.metric_state.values() if bins)
        assert gradients[0].any()
        assert torch.equal(gradients[0], gradients[1])
        assert torch.equal(gradients[0], gradients[2])

    def test_scores_without_an_order_are_not_hidden_and_masked_ones_are_last(self):
        for poison in (math.nan, math.inf, -math.inf):
            scores, target = binary()
            scores[3] = poison
            actual, expected = (DirectAveragePrecision(bins=bins)(scores, target) for bins in (65_536, None))
            torch.testing.assert_close(actual, expected, equal_nan=True)
            assert actual.isnan() == (poison != -math.inf)


@pytest.mark.parametrize('bins', [None, 4096])
def test_in_a_collection_with_others_of_torchmetrics(bins):
    scores, target = binary()
    expected = DirectAveragePrecision(bins=bins)(scores, target)
    near, far = DirectAveragePrecision(bins=bins), DirectAveragePrecision(epsilon=2.0, mode='negative', bins=bins)
    assert near(preds=scores, target=target) == expected
    near.reset()
    collection = MetricCollection({'near': near, 'far': far, 'theirs': BinaryAveragePrecision()})
    # Of arguments given by name, each metric of a collection takes its own.
    assert collection(preds=scores, target=target, indexes=target)['near'] == expected
    collection.reset()
    for part in range(2):
        collection.update(scores[part::2], target[part::2])
    assert sorted(map(sorted, collection.compute_groups.values())) == [['far', 'near'], ['theirs']]
    values = collection.compute()
    assert values['near'] == values['far'] == pytest.approx(expected.item(), rel=1e-6)
    assert values['theirs'] == pytest.approx(expected.item(), abs=5e-3 if bins else 1e-6)


@pytest.mark.parametrize(
    ('num_classes', 'preds', 'target', 'error', 'match'),
    [
        (None, torch.rand(5, 3), torch.zeros(5).long(), ValueError, r'`preds`.*\(5, 3\)'),
        (None, torch.rand(5), torch.zeros(4).long(), ValueError, r'`target`.*\(4,\)'),
        (None, torch.zeros(5).long(), torch.zeros(5).long(), TypeError, '`preds`.*int64'),
        (None, torch.rand(5), torch.full((5,), 2), ValueError, '`target`.*Found 2'),
        (None, torch.rand(5), torch.full((5,), -0.5), ValueError, r'`target`.*Found -0\.5'),
        (3, torch.rand(5), torch.zeros(5).long(), ValueError, r'`preds`.*\(5,\)'),
        (3, torch.rand(5, 3), torch.full((5,), 3), ValueError, '`target`.*Found 3'),
        (3, torch.rand(5, 3), torch.full((5, 3), 3), ValueError, '`target`.*Found 3'),
    ],
)
def test_bad_calls_are_named(num_classes, preds, target, error, match):
    with pytest.raises(error, match=match):
        DirectAveragePrecision(num_classes).update(preds, target)


@pytest.mark.parametrize(('name', 'value'), [('epsilon', -1.0), ('mode', 'hinge'), ('bins', 0)])
def test_mistakes_are_found_at_construction(name, value):
    with pytest.raises(ValueError, match=f'`{name}`'):
        DirectAveragePrecision(**{name: value})

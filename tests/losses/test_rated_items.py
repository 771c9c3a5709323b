"""Which items are positives and negatives of which query, and what they add up to, against loops over them."""

import math
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from reference import s_measures as reference

from mmseg_nondecomp.functional.margin_penalty import SURROGATES, margin_penalty, margin_slope
from mmseg_nondecomp.losses.rated_items import Sums, check_surrogate, rated_items

each_surrogate = pytest.mark.parametrize('surrogate', SURROGATES)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def of_call(pred, target, weight=None, ignore_index=None, zero_is_class=False):
    return rated_items(pred, target, weight, ignore_index, zero_is_class)


class Read(NamedTuple):
    """Scores, positives and negatives of each query, [Q, n]."""

    scores: torch.Tensor
    positive: torch.Tensor
    negative: torch.Tensor


def read(items):
    """What items hold, in whatever form."""
    parts = items.scores, *items.amounts()
    return Read(*(part.movedim(-2, 0).flatten(1).double() for part in parts))


def assert_are(items, scores, positive, negative):
    expected = Read(*(torch.as_tensor(part).double() for part in (scores, positive, negative)))
    torch.testing.assert_close(read(items), expected)


class TestWhichItems:
    def test_one_channel_finds_label_1(self):
        pred, target = torch.randn(5, 1), torch.tensor([0, 1, 1, 0, 255])
        assert_are(of_call(pred, target), pred.T, [[0, 1, 1, 0, 0]], [[1, 0, 0, 1, 0]])

    def test_one_channel_of_mmdetection_finds_label_0(self):
        pred, target = torch.randn(4, 1), torch.tensor([0, 1, 1, 0])
        assert_are(of_call(pred, target, zero_is_class=True), pred.T, [[1, 0, 0, 1]], [[0, 1, 1, 0]])

    def test_two_channels_are_one_decision(self):
        """A softmax of the two is above a half where the difference is above 0."""
        pred, target = torch.randn(6, 2, generator=generator()), torch.tensor([0, 1, 1, 0, 1, 0])
        items = of_call(pred, target)
        assert_are(items, (pred[:, 1] - pred[:, 0])[None], target[None], 1 - target[None])
        assert torch.equal(read(items).scores[0] > 0, pred.softmax(1)[:, 1] > 0.5)

    def test_two_channels_with_shares_are_two_queries(self):
        pred, shares = torch.randn(6, 2), torch.rand(6, 2)
        assert_are(of_call(pred, shares), pred.T, shares.T, 1 - shares.T)

    def test_each_of_several_classes_is_a_query_against_the_rest(self):
        pred, target = torch.randn(7, 3), torch.tensor([0, 1, 2, 3, 255, 1, 0])  # 3 is none of them
        one_hot, valid = F.one_hot(target.clamp(max=3), 4)[:, :3].T, (target != 255).long()
        assert_are(of_call(pred, target), pred.T, one_hot * valid, (1 - one_hot) * valid)

    def test_shares_are_a_part_of_each(self):
        pred, shares = torch.randn(5, 3), torch.rand(5, 3, generator=generator())
        weight = torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0])
        positive, negative = ((part * weight[:, None]).T for part in (shares, 1 - shares))
        assert_are(of_call(pred, shares, weight), pred.T, positive, negative)

    def test_weights_are_how_much_an_item_counts(self):
        pred, target = torch.randn(4, 1), torch.tensor([1, 1, 0, 0])
        items = of_call(pred, target, torch.tensor([2.0, 0.0, 0.5, 1.0]))
        assert_are(items, pred.T, [[2.0, 0.0, 0.0, 0.0]], [[0.0, 0.0, 0.5, 1.0]])

    @pytest.mark.parametrize('n_classes', [1, 2, 4])
    @pytest.mark.parametrize('weighted', [True, False])
    def test_maps_are_their_pixels(self, n_classes, weighted):
        pred = torch.randn(2, n_classes, 3, 5, generator=generator())
        target = torch.randint(0, max(n_classes, 2), (2, 3, 5), generator=generator())
        target[0, 0] = 255
        weight = torch.rand(2, 3, 5, generator=generator(1)) if weighted else None
        flat = pred.movedim(1, -1).reshape(30, n_classes), target.flatten(), weight.flatten() if weighted else None
        assert_are(of_call(pred, target, weight), *read(of_call(*flat)))

    @pytest.mark.parametrize('ignore_index', [-1, 1, 255])
    def test_ignored_items_are_neither(self, ignore_index):
        items = read(of_call(torch.randn(4, 3), torch.tensor([0, ignore_index, 2, ignore_index]), None, ignore_index))
        assert (items.positive + items.negative).tolist() == [[1, 0, 1, 0]] * 3

    @pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
    def test_half_precision_is_read_in_full(self, dtype):
        """Also the difference is taken in it."""
        pred, target = torch.randn(8, 2, generator=generator()).to(dtype), torch.arange(8) % 2
        items = of_call(pred, target)
        assert items.scores.dtype == torch.float32
        assert torch.equal(items.scores, of_call(pred.float(), target).scores)


KINDS = ('counted', 'weights', 'shares')
each_kind = pytest.mark.parametrize('kind', KINDS)


def call(kind, n=9):
    """Three classes; the first item does not count."""
    pred = torch.randn(n, 3, generator=generator(), dtype=torch.float64)
    ignored = torch.arange(n) == 0
    target = torch.arange(n) % 4
    if kind == 'counted':
        return pred, target.masked_fill(ignored, 255), None
    weight = (2 * torch.rand(n, generator=generator(1), dtype=torch.float64)).masked_fill(ignored, 0)
    return pred, target if kind == 'weights' else torch.rand(n, 3, generator=generator(2)), weight


@each_kind
class TestSums:
    MARGIN = torch.tensor([[1.0, 1.5, 0.5], [2.0, 1.0, 1.0], [1.0, 3.0, 1.0]], dtype=torch.float64)
    THRESHOLD = torch.tensor([[0.0, 0.3, -0.4], [0.1, 0.0, 0.9], [0.0, 0.0, -2.0]], dtype=torch.float64)

    def sums(self, items, surrogate='logistic', with_bounds=True):
        return items.sums(self.MARGIN, self.THRESHOLD, surrogate, with_bounds)[1]

    @each_surrogate
    def test_equal_those_of_a_loop(self, kind, surrogate):
        items = of_call(*call(kind))
        found = Sums(*self.sums(items, surrogate).unbind(-1))
        for q in range(3):
            for k in range(3):
                epsilon = self.MARGIN[q, k]
                expected = dict.fromkeys(Sums._fields, 0.0)
                for score, pos, neg in zip(*(part[q] for part in read(items)), strict=True):
                    z = score - self.THRESHOLD[q, k]
                    for side, mass, away in (('pos', pos, -z), ('neg', neg, z)):
                        slope = margin_slope(away, epsilon, surrogate).item()
                        expected[f'n_{side}'] += mass.item()
                        expected['tp' if side == 'pos' else 'fp'] += mass.item() * (z > 0).item()
                        expected[f'penalty_{side}'] += mass.item() * margin_penalty(away, epsilon, surrogate).item()
                        expected[f'slope_{side}'] += mass.item() * slope
                        expected[f'turn_{side}'] += mass.item() * slope * z.item()
                assert {name: getattr(found, name)[q, k].item() for name in Sums._fields} == pytest.approx(expected)

    def test_only_counts_are_taken_where_they_are_enough(self, kind):
        items = of_call(*call(kind))
        full, counts = (self.sums(items, with_bounds=bounds) for bounds in (True, False))
        assert full.shape == counts.shape == (3, 3, 10)
        assert torch.equal(full[..., :4], counts[..., :4])
        assert not counts[..., 4:].any()

    def test_sums_of_parts_add_up(self, kind):
        whole = call(kind, 30)
        parts = [[part if part is None else part[s] for part in whole] for s in (slice(11), slice(11, None))]
        total = sum(self.sums(of_call(*part)) for part in parts)
        torch.testing.assert_close(total, self.sums(of_call(*whole)))

    @pytest.mark.parametrize('poison', [math.nan, math.inf, -math.inf])
    def test_items_that_do_not_count_are_not_looked_at(self, kind, poison):
        pred, target, weight = call(kind)
        expected = self.sums(of_call(pred, target, weight))
        pred[0] = poison
        assert torch.equal(self.sums(of_call(pred, target, weight)), expected)

    def test_no_items(self, kind):
        pred, target, weight = call(kind)
        items = of_call(pred[:0], target[:0], None if weight is None else weight[:0])
        assert not self.sums(items).any()

    def test_in_double_precision_whatever_the_scores(self, kind):
        pred, target, weight = call(kind)
        sums = self.sums(of_call(pred.float(), target, weight))
        assert sums.dtype == torch.float64
        torch.testing.assert_close(sums, self.sums(of_call(pred, target, weight)), rtol=1e-5, atol=1e-5)


def test_what_is_taken_for_a_positive_has_a_score_above_0():
    items = of_call(torch.tensor([[-1.0], [0.0], [1e-30], [5.0]]), torch.ones(4).long())
    ones = torch.ones(1, 1).double()
    assert Sums(*items.sums(ones, None, 'hinge', False)[1].unbind(-1)).tp.item() == 2


class TestMeasures:
    """What is logged is the measure of the scores themselves."""

    @staticmethod
    def of(measure, scores, labels, beta=1.0):
        items = of_call(torch.tensor(scores, dtype=torch.float64).unsqueeze(1), torch.tensor(labels))
        ones = torch.ones(1, 1).double()
        sums = Sums(*items.sums(ones, None, 'hinge', False)[1].unbind(-1))
        return {name: value.item() for name, value in items.measures(measure, beta, sums).items()}

    def test_equal_those_of_the_oracles(self):
        for seed in range(10):
            scores = torch.randn(30, generator=generator(seed), dtype=torch.float64).tolist()
            labels = (torch.rand(30, generator=generator(seed)) < 0.4).long().tolist()
            for beta in (0.5, 1.0, 2.0):
                f_beta = reference.f_beta(scores, labels, beta)
                assert self.of('f_beta', scores, labels, beta) == pytest.approx({'f_beta': f_beta})
            precision, recall = reference.precision_recall(scores, labels)
            both = pytest.approx({'precision': precision, 'recall': recall})
            assert self.of('precision_at_recall', scores, labels) == both
            assert self.of('recall_at_precision', scores, labels) == both
            # 4096 cells: scores nearer than one in a hundred are ties.
            area = pytest.approx({'auc_roc': reference.auc_roc(scores, labels)}, abs=5e-3)
            assert self.of('auc_roc', scores, labels) == area

    def test_average_precision_of_a_known_ranking(self):
        found = self.of('auc_pr', [4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0])
        assert found == pytest.approx({'auc_pr': (1 + 2 / 3) / 2})

    def test_of_nothing_they_are_0(self):
        assert self.of('f_beta', [-1.0, -1.0], [1, 0]) == {'f_beta': 0}
        assert self.of('recall_at_precision', [-1.0, -1.0], [1, 0]) == {'precision': 0, 'recall': 0}
        assert self.of('precision_at_recall', [1.0], [0]) == {'precision': 0, 'recall': 0}
        assert self.of('f_beta', [-1.0], [0]) == {'f_beta': 0}


def test_unknown_surrogate():
    for surrogate in SURROGATES:
        check_surrogate(surrogate)
    with pytest.raises(ValueError, match=r"`surrogate`.*'square'"):
        check_surrogate('square')


@pytest.mark.parametrize(
    ('args', 'error', 'message'),
    [
        (dict(pred=torch.zeros(3, 1).long()), TypeError, '`pred`.*int64'),
        (dict(pred=torch.zeros(3, 2).long()), TypeError, '`pred`.*int64'),
        (dict(pred=torch.zeros(3)), ValueError, r'`pred`.*\(3,\)'),
        (dict(target=torch.tensor([0, 1, 2])), ValueError, '`target`.*2'),
        (dict(target=torch.tensor([0, 1, 3]), pred=torch.zeros(3, 2)), ValueError, '`target`.*3'),
        (dict(target=torch.tensor([0, 1])), ValueError, r'`target`.*\(2,\)'),
        (dict(target=torch.full((3, 1), 1.5)), ValueError, '`target`.*1.5'),
        (dict(weight=torch.tensor([1.0, -1.0, 1.0])), ValueError, '`weight`.*-1'),
    ],
)
def test_bad_input(args, error, message):
    with pytest.raises(error, match=message):
        of_call(**(dict(pred=torch.zeros(3, 1), target=torch.tensor([0, 1, 1])) | args))

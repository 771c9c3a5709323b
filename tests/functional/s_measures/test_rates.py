"""Bounds on the rates, which items are positives and negatives of which query, and their sums, against loops."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reference import s_measures as reference
from s_measure_scenes import each_surrogate, margin_penalty

from mmseg_nondecomp.functional._inputs import Reading, read_inputs
from mmseg_nondecomp.functional.s_measures.rates import (
    SCALE,
    SURROGATES,
    Sums,
    rated_items,
    true_measures,
    unit_penalty,
    unit_slope,
)

each_margin = pytest.mark.parametrize('epsilon', [0.3, 1.0, 7.0])


def number(value):
    return torch.tensor(value, dtype=torch.float64)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class TestPenalty:
    Z = torch.linspace(-20, 20, 2001, dtype=torch.float64)
    BESIDE_KINKS = torch.linspace(-20, 20, 2000, dtype=torch.float64)

    @each_margin
    def test_equals_the_definition(self, epsilon):
        z = self.Z.numpy()
        hinge, logistic = (margin_penalty(self.Z, number(epsilon), surrogate) for surrogate in SURROGATES)
        np.testing.assert_allclose(hinge, np.maximum(0, epsilon + z), rtol=0, atol=1e-14)
        expected = epsilon * np.logaddexp2(0, z / epsilon / math.log(2))
        np.testing.assert_allclose(logistic, expected, rtol=1e-14, atol=1e-100)

    @each_surrogate
    @each_margin
    def test_bounds_the_step_function_and_the_rates(self, surrogate, epsilon):
        """It is above ε where a score is above 0, and nowhere below 0; it is ε at 0, where it could not be less.

        A = ε - mean penalty(-z) is at most ε times the true rate, B = mean penalty(z) at least ε times it.
        """
        penalty = margin_penalty(self.Z, number(epsilon), surrogate)
        assert (penalty >= epsilon * (self.Z > 0)).all()
        assert margin_penalty(number(0.0), number(epsilon), surrogate).item() == pytest.approx(epsilon, rel=1e-15)
        for seed in range(20):
            z = torch.randn(30, generator=generator(seed), dtype=torch.float64) + seed / 10 - 1
            rate = (z > 0).double().mean()
            assert number(epsilon) - margin_penalty(-z, number(epsilon), surrogate).mean() <= epsilon * rate + 1e-15
            assert margin_penalty(z, number(epsilon), surrogate).mean() >= epsilon * rate - 1e-15

    @each_surrogate
    @each_margin
    def test_the_slope_is_the_derivative(self, surrogate, epsilon):
        z, margin = self.BESIDE_KINKS.clone().requires_grad_(), number(epsilon).requires_grad_()
        assert (z + epsilon).abs().min() > 1e-4
        penalty = margin_penalty(z, margin, surrogate)
        by_score, by_margin = torch.autograd.grad(penalty.sum(), (z, margin))
        torch.testing.assert_close(SCALE[surrogate] * unit_slope(z.detach() / epsilon, surrogate), by_score)
        # Euler's theorem on homogeneous functions, by which the derivative in ε needs no sum of its own.
        torch.testing.assert_close(epsilon * by_margin + (z * by_score).sum(), penalty.sum())

    @each_surrogate
    def test_convex_and_never_falling_with_the_gradient_of_its_value(self, surrogate):
        z, margin = self.BESIDE_KINKS[::167].clone().requires_grad_(), number(1.3).requires_grad_()
        assert torch.autograd.gradcheck(lambda z, margin: margin_penalty(z, margin, surrogate), (z, margin))
        penalty = unit_penalty(self.Z, surrogate)
        assert (penalty.diff() >= 0).all()
        assert (penalty.diff().diff() >= -1e-13).all()
        before, at, after = unit_slope(number([-1 - 1e-9, -1.0, -1 + 1e-9]), surrogate).tolist()
        assert before <= at <= after

    @each_surrogate
    @pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
    def test_large_scores_are_finite_and_nan_is_not_hidden(self, surrogate, dtype):
        z = torch.tensor([-1e30, -1e4, 1e4, 1e30], dtype=dtype, requires_grad=True)
        penalty = unit_penalty(z, surrogate)
        penalty.sum().backward()
        assert penalty.dtype == dtype
        assert penalty[:2].tolist() == [0, 0]
        assert penalty.isfinite().all()
        torch.testing.assert_close(z.grad, unit_slope(z.detach(), surrogate))
        assert z.grad[:2].tolist() == [0, 0]
        assert unit_penalty(number(math.nan), surrogate).isnan()


def of_call(pred, target, weight=None, ignore_index=None, of_boxes=False):
    reading = Reading(overlaps=True, has_background=True, is_stated=True, pair=True, of_boxes=of_boxes)
    return rated_items(read_inputs(pred, target, weight, ignore_index, reading))


class Read(NamedTuple):
    scores: torch.Tensor
    positive: torch.Tensor
    negative: torch.Tensor


def read(items):
    parts = items.scores, items.positive, items.negative
    return Read(*(part.movedim(-2, 0).flatten(1).double() for part in parts))


def assert_are(items, scores, positive, negative):
    expected = Read(*(torch.as_tensor(part).double() for part in (scores, positive, negative)))
    torch.testing.assert_close(read(items), expected)


class TestWhichItems:
    def test_one_or_two_channels_are_one_query_and_more_are_one_vs_rest(self):
        pred, target = torch.randn(5, 1), torch.tensor([0, 1, 1, 0, 255])
        assert_are(of_call(pred, target), pred.T, [[0, 1, 1, 0, 0]], [[1, 0, 0, 1, 0]])
        items = of_call(pred, target % 255, torch.tensor([2.0, 0.0, 0.5, 1.0, 0.0]), of_boxes=True)
        assert_are(items, pred.T, [[2.0, 0, 0, 1, 0]], [[0, 0, 0.5, 0, 0]])
        # A softmax of the two is above a half where the difference is above 0.
        pred, target = torch.randn(6, 2, generator=generator()), torch.tensor([0, 1, 1, 0, 1, 0])
        items = of_call(pred, target)
        assert_are(items, (pred[:, 1] - pred[:, 0])[None], target[None], 1 - target[None])
        assert torch.equal(read(items).scores[0] > 0, pred.softmax(1)[:, 1] > 0.5)
        pred, target = torch.randn(7, 3), torch.tensor([0, 1, 2, 3, 255, 1, 0])  # 3 is none of them
        one_hot, valid = F.one_hot(target.clamp(max=3), 4)[:, :3].T, (target != 255).long()
        assert_are(of_call(pred, target), pred.T, one_hot * valid, (1 - one_hot) * valid)

    @pytest.mark.parametrize('n_channels', [2, 3])
    def test_soft_labels_are_a_part_of_each_and_two_channels_are_two_queries(self, n_channels):
        pred, soft = torch.randn(5, n_channels), torch.rand(5, n_channels, generator=generator())
        weight = torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0])
        positive, negative = ((part * weight[:, None]).T for part in (soft, 1 - soft))
        assert_are(of_call(pred, soft, weight), pred.T, positive, negative)

    @pytest.mark.parametrize('ignore_index', [-1, 1, 255])
    def test_ignored_items_are_neither(self, ignore_index):
        items = read(of_call(torch.randn(4, 3), torch.tensor([0, ignore_index, 2, ignore_index]), None, ignore_index))
        assert (items.positive + items.negative).tolist() == [[1, 0, 1, 0]] * 3


KINDS = ('labels', 'weights', 'soft labels')
each_kind = pytest.mark.parametrize('kind', KINDS)


def call(kind, n=9):
    pred = torch.randn(n, 3, generator=generator(), dtype=torch.float64)
    ignored = torch.arange(n) == 0
    target = torch.arange(n) % 4
    if kind == 'labels':
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
                        slope = SCALE[surrogate] * unit_slope(away / epsilon, surrogate).item()
                        expected[f'n_{side}'] += mass.item()
                        expected['tp' if side == 'pos' else 'fp'] += mass.item() * (z > 0).item()
                        expected[f'penalty_{side}'] += mass.item() * margin_penalty(away, epsilon, surrogate).item()
                        expected[f'slope_{side}'] += mass.item() * slope
                        expected[f'turn_{side}'] += mass.item() * slope * z.item()
                assert {name: getattr(found, name)[q, k].item() for name in Sums._fields} == pytest.approx(expected)

    def test_parts_add_up_in_double_precision_and_without_bounds_there_are_only_counts(self, kind):
        items = of_call(*call(kind))
        full, counts = (self.sums(items, with_bounds=bounds) for bounds in (True, False))
        assert full.shape == counts.shape == (3, 3, 10)
        assert torch.equal(full[..., :4], counts[..., :4])
        assert not counts[..., 4:].any()
        whole = call(kind, 30)
        parts = [[part if part is None else part[s] for part in whole] for s in (slice(11), slice(11, None))]
        total = sum(self.sums(of_call(*part)) for part in parts)
        torch.testing.assert_close(total, self.sums(of_call(*whole)))
        pred, target, weight = call(kind)
        sums = self.sums(of_call(pred.float(), target, weight))
        assert sums.dtype == torch.float64
        torch.testing.assert_close(sums, self.sums(of_call(pred, target, weight)), rtol=1e-5, atol=1e-5)
        assert not self.sums(of_call(pred[:0], target[:0], None if weight is None else weight[:0])).any()


class TestMeasures:
    @staticmethod
    def of(measure, scores, labels, beta=1.0):
        items = of_call(torch.tensor(scores, dtype=torch.float64).unsqueeze(1), torch.tensor(labels))
        ones = torch.ones(1, 1).double()
        sums = Sums(*items.sums(ones, None, 'hinge', False)[1].unbind(-1))
        return {name: value.item() for name, value in true_measures(items, measure, beta, sums).items()}

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
            # 4096 bins: scores nearer than one in a hundred are ties.
            area = pytest.approx({'auc_roc': reference.auc_roc(scores, labels)}, abs=5e-3)
            assert self.of('auc_roc', scores, labels) == area

    def test_of_known_rankings_and_0_without_predicted_or_true_positives(self):
        found = self.of('auc_pr', [4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0])
        assert found == pytest.approx({'auc_pr': (1 + 2 / 3) / 2})
        of_recall = self.of('precision_at_recall', [-1.0, 0.0, 1e-30, 5.0], [1] * 4)
        assert of_recall == {'precision': 1, 'recall': 0.5}
        assert self.of('f_beta', [-1.0, -1.0], [1, 0]) == {'f_beta': 0}
        assert self.of('recall_at_precision', [-1.0, -1.0], [1, 0]) == {'precision': 0, 'recall': 0}
        assert self.of('precision_at_recall', [1.0], [0]) == {'precision': 0, 'recall': 0}
        assert self.of('f_beta', [-1.0], [0]) == {'f_beta': 0}

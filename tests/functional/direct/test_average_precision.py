"""The value is 1 - AP, the gradient that of the paper at a finite epsilon."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from ranking_scenes import items, value_and_gradient_of
from reference import direct_loss as reference
from torchmetrics.functional.classification import binary_average_precision

from mmseg_nondecomp.functional import direct_ap_loss
from mmseg_nondecomp.functional.direct._gradient import MODES
from mmseg_nondecomp.functional.direct.average_precision import direct_ap_losses

each_mode = pytest.mark.parametrize('mode', MODES)
value_and_gradient = partial(value_and_gradient_of, direct_ap_loss)


@each_mode
@pytest.mark.parametrize('tied', [False, True])
def test_gradient_is_that_of_the_enumeration(mode, tied):
    rng = np.random.default_rng(0)
    for n_pos in range(1, 5):
        for n_neg in range(1, 5):
            for epsilon in (0.01, 0.31, 1.3, 10.7):
                s = rng.normal(size=n_pos + n_neg)
                s = 0.7 * np.round(s) if tied else s
                exact = [Fraction(x) for x in s.tolist()]
                expected = reference.direct_gradient(exact[:n_pos], exact[n_pos:], Fraction(epsilon), mode)
                target = torch.tensor([1] * n_pos + [0] * n_neg)
                value, gradient = value_and_gradient(torch.tensor(s), target, epsilon, mode)
                np.testing.assert_allclose(gradient, np.array(expected, float), rtol=1e-12, atol=1e-13)
                if mode in ('positive', 'negative'):
                    loss = 1 - reference.average_precision_of_scores(s.tolist(), target.tolist())
                else:
                    loss = reference.surrogate(exact[:n_pos], exact[n_pos:], Fraction(epsilon), mode)
                assert value.item() == pytest.approx(float(loss), rel=1e-12, abs=1e-13)


@pytest.mark.parametrize('mode', ['positive', 'negative'])
@pytest.mark.parametrize('dtype', [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize('tied', [False, True])
def test_value_is_that_of_torchmetrics(mode, dtype, tied):
    for n in (2, 7, 100, 3000):
        scores, target = items(n, tied=tied, dtype=dtype)
        target[0] = 1
        expected = 1 - binary_average_precision(scores.sigmoid(), target)
        actual = direct_ap_loss(scores, target, mode=mode)
        assert actual.dtype == dtype
        assert actual.item() == pytest.approx(expected.item(), abs=1e-5)


@each_mode
@pytest.mark.parametrize('tied', [False, True])
def test_gradients_add_up_to_0_and_raise_positives_and_the_order_of_the_items_does_not_matter(mode, tied):
    for seed in range(20):
        scores, target = items(50, seed, tied)
        value, gradient = value_and_gradient(scores, target, 0.7, mode)
        assert gradient.sum().abs() < 1e-13
        assert gradient[target == 1].max() <= 0
        assert gradient[target == 0].min() >= 0
        order = torch.randperm(50, generator=torch.Generator().manual_seed(3))
        permuted_value, permuted = value_and_gradient(scores[order], target[order], 0.7, mode)
        torch.testing.assert_close(permuted_value, value, rtol=1e-13, atol=0)
        torch.testing.assert_close(permuted, gradient[order], rtol=0, atol=1e-15)


@each_mode
def test_equal_items_have_equal_gradients_and_constant_scores_have_one(mode):
    scores, target = torch.zeros(12).double(), torch.arange(12) < 4
    _, gradient = value_and_gradient(scores, target.long(), 0.5, mode)
    scale = {'positive': 2.0, 'negative': 2.0, 'hinge': 2.0, 'perceptron': 1.0}[mode]
    torch.testing.assert_close(gradient[target], torch.full((4,), -scale / 4).double())
    torch.testing.assert_close(gradient[~target], torch.full((8,), scale / 8).double())


def test_of_few_items_only_those_that_a_small_epsilon_reaches_move():
    scores, target = torch.tensor([3.0, 1.0, 0.9, -3.0]).double(), torch.tensor([1, 0, 1, 0])
    for mode in ('positive', 'negative'):
        assert not value_and_gradient(scores, target, 1e-3, mode)[1].any()
    _, gradient = value_and_gradient(scores, target, 1.5, 'negative')
    assert gradient[0] == gradient[3] == 0
    assert gradient[2] < 0 < gradient[1]


def test_the_hinge_bounds_the_loss_and_vanishes_with_a_margin():
    for seed in range(20):
        scores, target = items(30, seed)
        assert direct_ap_loss(scores, target, mode='hinge') >= direct_ap_loss(scores, target)
    scores, target = torch.tensor([100.0, 90.0, -90.0, -100.0]), torch.tensor([1, 1, 0, 0])
    value, gradient = value_and_gradient(scores, target, mode='hinge')
    assert value == 0
    assert not gradient.any()


def test_the_gradient_points_where_the_expected_loss_falls():
    r"""Averaged over noise, its cosine with that of the expected loss grows to 1 as epsilon shrinks."""
    scores, target = torch.tensor([0.3, -0.4, 0.1, 0.5, -0.2, 0.0, -0.5]).double(), torch.tensor([1, 1, 1, 0, 0, 0, 0])
    noise = torch.randn(200_000, 7, generator=torch.Generator().manual_seed(0)).double()
    is_positive, valid = (target == 1).expand_as(noise), torch.ones_like(noise, dtype=torch.bool)
    noisy = (scores + noise).requires_grad_()
    losses = direct_ap_losses(noisy, is_positive, valid, 0.1, 'positive').detach()
    # d/ds E[L(s + z)] = E[L(s + z) z] for standard normal z
    expected = ((losses - losses.mean()).unsqueeze(1) * noise).mean(0)
    cosines = {}
    for mode in ('positive', 'negative'):
        for epsilon in (8.0, 2.0, 0.5):
            total = direct_ap_losses(noisy, is_positive, valid, epsilon, mode).mean()
            direction = torch.autograd.grad(total, noisy)[0].sum(0)
            cosines[mode, epsilon] = torch.cosine_similarity(direction, expected, dim=0).item()
    for mode in ('positive', 'negative'):
        assert cosines[mode, 0.5] > 0.995
        assert 0.98 < cosines[mode, 8.0] < cosines[mode, 2.0] < cosines[mode, 0.5]


@each_mode
def test_nothing_to_rank_is_an_attached_zero_and_scores_that_are_no_numbers_are_not_hidden(mode):
    for labels in ([0, 0, 0], [1, 1, 1], []):
        scores = torch.arange(float(len(labels)))
        value, gradient = value_and_gradient(scores, torch.tensor(labels).long(), mode=mode)
        assert value == 0
        assert not gradient.any()
    scores, target = items(6)
    for bad in (math.nan, math.inf):
        scores[2] = bad
        value, gradient = value_and_gradient(scores, target, mode=mode)
        assert value.isnan()
        assert gradient.isnan().all()


@pytest.mark.parametrize('mode', ['positive', 'negative'])
def test_masked_items_are_the_last(mode):
    scores, target = torch.tensor([0.5, -math.inf, 0.2, -math.inf]), torch.tensor([0, 1, 1, 0])
    value, gradient = value_and_gradient(scores, target, 1.0, mode)
    assert value.item() == pytest.approx(1 - (1 / 2 + 2 / 4) / 2)
    assert gradient.isfinite().all()


def test_many_items_are_ranked_in_double():
    """In float32 the sums over negatives lose which positives move."""
    generator = torch.Generator().manual_seed(0)
    pos, neg = torch.randn(128, generator=generator), torch.randn(10_000, generator=generator) - 1
    scores, target = torch.cat([pos, neg]), torch.tensor([1] * 128 + [0] * 10_000)
    for mode in ('positive', 'negative'):
        single, double = (
            value_and_gradient(scores.to(d), target, 0.1, mode)[1] for d in (torch.float32, torch.float64)
        )
        torch.testing.assert_close(single.double(), double, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize('mode', ['hinge', 'perceptron'])
def test_bounds_with_scores_of_minus_infinity(mode):
    """They are those of a very low score: infinite for a positive below a negative, and nothing among equals."""
    low, target = -math.inf, torch.tensor([1, 0, 0])
    assert direct_ap_loss(torch.tensor([low, 1.0, 0.0]), target, mode=mode) == math.inf
    expected = direct_ap_loss(torch.tensor([0.2, 1.0, -1e6]), target, mode=mode)
    assert direct_ap_loss(torch.tensor([0.2, 1.0, low]), target, mode=mode) == pytest.approx(expected.item())
    expected = direct_ap_loss(torch.zeros(3), target, mode=mode)
    assert direct_ap_loss(torch.full((3,), low), target, mode=mode) == pytest.approx(expected.item())

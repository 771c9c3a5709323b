import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reference import smooth_topk as reference
from topk_scenes import FAMILIES, INF, each_dtype, each_kind, normal, one_hot, scene, value_and_gradient
from torch.autograd import gradcheck, gradgradcheck

from mmseg_nondecomp.functional import hard_topk_loss, smooth_topk_loss

pytestmark = pytest.mark.usefixtures('each_arithmetic')


@pytest.mark.parametrize('family', FAMILIES)
@each_dtype
def test_equals_the_enumeration(family, dtype):
    rng, rounding = np.random.default_rng(0), 1e-12 if dtype == torch.float64 else 1e-5
    for n, k in ((c, k) for c in (2, 3, 12) for k in range(1, c)):
        row = torch.tensor(FAMILIES[family](rng, n)).to(dtype)
        labels = torch.arange(n)[row > -INF]
        scores, scale = row.expand(len(labels), n), row[row > -INF].abs().max().item()
        absolute = max(rounding, torch.finfo(dtype).eps * scale)
        for tau, margin, soft in ((1, 0.3, False), (0.1, 1, False), (0.1, 1, True)):
            target = one_hot(labels, n) if soft else labels
            value, gradient = value_and_gradient(
                lambda s, t=target, k=k, tau=tau, m=margin: smooth_topk_loss(s, t, k, tau, m, reduction='none'), scores
            )
            expected = [reference.smooth_topk_loss(row, int(y), k, tau, margin) for y in labels]
            values, gradients = (np.array(x, float) for x in zip(*expected, strict=True))
            np.testing.assert_allclose(value.double(), values, rtol=rounding, atol=absolute)
            np.testing.assert_allclose(gradient.double(), gradients, rtol=rounding, atol=absolute)


@each_dtype
def test_small_losses_keep_their_digits(dtype):
    """The label is far ahead: the loss is no difference of almost equal numbers."""
    others = normal(9, dtype=dtype)
    for lead in (10, 30, 60):
        scores = torch.cat([torch.tensor([lead], dtype=dtype), others])[None]
        for k in (1, 2, 5):
            expected = float(reference.smooth_topk_loss_of_polynomials(scores[0], 0, k, 1))
            for target in (torch.tensor([0]), one_hot(torch.tensor([0]), 10)):
                actual = smooth_topk_loss(scores, target, k).item()
                assert actual == pytest.approx(expected, rel=1e-12 if dtype == torch.float64 else 1e-4)


@pytest.mark.parametrize('lead', [15.0, 19.9, 20.1, 25.0, 40.0])
def test_large_losses_keep_their_digits(lead):
    scores = torch.tensor([[0.0, lead]], dtype=torch.float64)
    value, gradient = value_and_gradient(lambda s: smooth_topk_loss(s, torch.tensor([0]), 1, margin=0), scores)
    assert value.item() == pytest.approx(lead + math.log1p(math.exp(-lead)), rel=1e-14)
    assert gradient[0, 1].item() == pytest.approx(1 / (1 + math.exp(-lead)), rel=1e-14)


@each_dtype
def test_many_classes_equal_the_summation_algorithm(dtype):
    scores, target = scene(4, 1000, dtype=dtype)
    for k, tau in ((1, 1.0), (5, 1.0), (5, 0.1), (9, 0.3)):
        expected = [
            float(reference.smooth_topk_loss_of_polynomials(row, int(y), k, tau))
            for row, y in zip(scores, target, strict=True)
        ]
        for labels in (target, one_hot(target, 1000)):
            actual = smooth_topk_loss(scores, labels, k, tau, reduction='none').double()
            np.testing.assert_allclose(actual, expected, rtol=1e-13 if dtype == torch.float64 else 1e-5)


@each_kind
def test_cross_entropy_with_k_1_tau_1_and_no_margin(soft):
    for shape in ((7, 2), (7, 12), (3, 5, 4, 2)):
        scores, target = scene(*shape, soft=soft)
        for reduction in ('none', 'sum'):
            actual, expected = (
                value_and_gradient(loss, scores)
                for loss in (
                    lambda s, t=target, r=reduction: smooth_topk_loss(s, t, 1, 1.0, 0.0, reduction=r),
                    lambda s, t=target, r=reduction: F.cross_entropy(s, t, reduction=r),
                )
            )
            torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-12)
    scores, target = scene(7, 12)
    expected = F.cross_entropy(scores, target)
    torch.testing.assert_close(smooth_topk_loss(scores, target, 1, 1, 0), expected, rtol=1e-11, atol=0)


@pytest.mark.parametrize('tau', [0.01, 0.3, 1, 10])
@pytest.mark.parametrize('margin', [0, 1])
def test_bounds_the_hard_loss(tau, margin):
    """A sum of N positive terms is between its largest and N times it, so τ log Σ exp(./τ) is the maximum and up to
    τ log N more. The loss is at most the hard one and τ log of the number of all sets, and at least the hard one
    without τ log of the number of sets with the label, which is nothing for k = 1.
    """
    for n, k in ((2, 1), (7, 1), (7, 3), (30, 5), (30, 29)):
        scores = torch.cat([5 * normal(40, n), torch.zeros(1, n), normal(40, n).round()])
        target = torch.arange(len(scores)) % n
        excess = smooth_topk_loss(scores, target, k, tau, margin, reduction='none') - hard_topk_loss(
            scores, target, k, margin, reduction='none'
        )
        assert excess.max() <= tau * math.log(math.comb(n, k)) + 1e-12
        assert excess.min() >= -tau * math.log(math.comb(n - 1, k - 1)) - 1e-12


@pytest.mark.parametrize('k', [2, 5])
def test_only_for_k_1_the_hard_loss_is_a_lower_bound(k):
    """Proposition 3. From 2 on, it is greater where k others lead the label by k (x - 1) and the rest is far below."""
    tau, x = 0.5, 6.0
    scores, target = torch.full((1, 20), -1e3, dtype=torch.float64), torch.tensor([0])
    scores[0, 0], scores[0, 1 : k + 1] = 0, k * (x - 1)
    smooth, hard = smooth_topk_loss(scores, target, k, tau).item(), hard_topk_loss(scores, target, k).item()
    assert hard == pytest.approx(x, rel=1e-12)
    assert smooth == pytest.approx(tau * math.log1p(math.exp(x / tau) / k), rel=1e-12)
    assert smooth < hard - 0.6 * tau
    scores = torch.cat([scores, 5 * normal(200, 20)])
    target = torch.arange(len(scores)) % 20
    smooth, hard = (
        smooth_topk_loss(scores, target, 1, tau, reduction='none'),
        hard_topk_loss(scores, target, 1, reduction='none'),
    )
    assert (smooth >= hard).all()


@pytest.mark.parametrize('tau', [0.01, 0.3, 0.6, 1, 3])
@pytest.mark.parametrize('k', [1, 2, 5])
def test_bounds_the_error_up_to_a_factor(k, tau):
    """Proposition 4: the loss of a label that is not among the k highest scores is at least 1 - τ log k."""
    scores = torch.cat([spread * normal(300, 12) for spread in (1e-3, 0.1, 3)])
    target = torch.arange(len(scores)) % 12
    loss = smooth_topk_loss(scores, target, k, tau, reduction='none')
    is_missed = (scores > scores.gather(1, target.unsqueeze(1))).sum(1) >= k
    bound = 1 - tau * math.log(k)
    assert (loss >= 0).all()
    assert loss[is_missed].min() >= bound
    assert loss[is_missed].min() < bound + 3 * tau, 'far from the bound'


@each_kind
@each_dtype
@pytest.mark.parametrize('tau', [1e-3, 1e-6, 1e-12, 1e-19, 1e-36, 1e-100])
def test_a_vanishing_temperature_is_the_hard_loss(tau, dtype, soft):
    scores, target = scene(20, 10, soft=soft, dtype=dtype)
    if not soft:  # from 0 to 1, a distance from the kinks that no temperature above bridges
        scores = scores.argsort(-1).argsort(-1).to(dtype) / 3
    for k in (1, 3, 9):
        smooth, hard = (
            value_and_gradient(loss, scores)
            for loss in (
                lambda s, k=k: smooth_topk_loss(s, target, k, tau, 0.8, reduction='none'),
                lambda s, k=k: hard_topk_loss(s, target, k, 0.8, reduction='none'),
            )
        )
        rounding = 1e-13 if dtype == torch.float64 else 1e-5
        torch.testing.assert_close(smooth[0], hard[0], rtol=rounding, atol=tau * math.log(252) + rounding)
        if tau < 1e-3 or not soft:
            torch.testing.assert_close(smooth[1], hard[1], rtol=0, atol=rounding)


@each_kind
@each_dtype
def test_finite_in_the_coldest_and_the_hottest(dtype, soft):
    for scale in (0.0, 1e-3, 1.0, 1e4):
        scores, target = scene(5, 8, soft=soft, dtype=dtype)
        for tau in (1e-36, 1e-25, 1e-18, 1e-5, 1e5, 1e20):
            for k in (1, 4, 7):
                value, gradient = value_and_gradient(
                    lambda s, y=target, k=k, t=tau: smooth_topk_loss(s, y, k, t), scores * scale
                )
                assert value.dtype == gradient.dtype == dtype
                assert value.isfinite()
                assert gradient.isfinite().all()
                assert gradient.abs().max() <= 1 / k + 1e-6


def test_shifts_that_are_exact_change_nothing_in_float32():
    scores, target = (64 * normal(6, 100, dtype=torch.float32)).round() / 64, torch.arange(6)
    actual, expected = (
        value_and_gradient(lambda s: smooth_topk_loss(s, target, 5, 0.01), s) for s in (scores + 65536, scores)
    )
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@each_kind
def test_gradients_add_up_to_0_and_fall_on_the_label_alone_and_a_temperature_scales_scores_and_margin(soft):
    scores, target = scene(20, 9, soft=soft)
    for k in (1, 4, 8):
        _, gradient = value_and_gradient(lambda s, k=k: smooth_topk_loss(s, target, k, reduction='none'), scores)
        assert gradient.sum(1).abs().max() < 1e-14
        if not soft:
            own = one_hot(target, 9).bool()
            assert (gradient[own] < 0).all()
            assert (gradient[~own] > 0).all()
    for tau in (0.1, 7):
        expected = tau * smooth_topk_loss(scores / tau, target, 3, 1.0, 1 / tau)
        torch.testing.assert_close(smooth_topk_loss(scores, target, 3, tau, 1.0), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize('shape', [(3, 2), (3, 5), (2, 4, 2, 2)], ids=str)
@each_kind
def test_gradcheck_and_gradgradcheck(shape, soft):
    scores, target = scene(*shape, soft=soft)
    scores.requires_grad_()
    weight = torch.rand(target.shape[:1] + shape[2:], generator=torch.Generator().manual_seed(4)).double()
    for k in {1, shape[1] - 1}:
        for tau, reduction in ((1.0, 'none'), (3.0, 'mean')):

            def loss(s, k=k, tau=tau, reduction=reduction):
                return smooth_topk_loss(s, target, k, tau, weight=weight, reduction=reduction)

            assert gradcheck(loss, scores)
            assert gradgradcheck(loss, scores, fast_mode=True)


@pytest.mark.parametrize(('tau', 'error'), [(0, ValueError), (math.nan, ValueError), ('1', TypeError)])
def test_bad_temperature(tau, error):
    with pytest.raises(error, match=f'`tau`.*{tau!r}'):
        smooth_topk_loss(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long), 2, tau)

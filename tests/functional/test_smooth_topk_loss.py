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
                found = smooth_topk_loss(scores, target, k).item()
                assert found == pytest.approx(expected, rel=1e-12 if dtype == torch.float64 else 1e-4)


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
            found = smooth_topk_loss(scores, labels, k, tau, reduction='none').double()
            np.testing.assert_allclose(found, expected, rtol=1e-13 if dtype == torch.float64 else 1e-5)


@each_kind
def test_cross_entropy_with_k_1_tau_1_and_no_margin(soft):
    for shape in ((7, 2), (7, 12), (3, 5, 4, 2)):
        scores, target = scene(*shape, soft=soft)
        for reduction in ('none', 'sum'):
            found, expected = (
                value_and_gradient(loss, scores)
                for loss in (
                    lambda s, t=target, r=reduction: smooth_topk_loss(s, t, 1, 1.0, 0.0, reduction=r),
                    lambda s, t=target, r=reduction: F.cross_entropy(s, t, reduction=r),
                )
            )
            torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    scores, target = scene(7, 12)
    expected = F.cross_entropy(scores, target)
    torch.testing.assert_close(smooth_topk_loss(scores, target, 1, 1, 0), expected, rtol=1e-11, atol=0)


@each_kind
def test_a_temperature_scales_scores_and_margin(soft):
    scores, target = scene(6, 9, soft=soft)
    for tau in (0.1, 7):
        expected = tau * smooth_topk_loss(scores / tau, target, 3, 1.0, 1 / tau)
        torch.testing.assert_close(smooth_topk_loss(scores, target, 3, tau, 1.0), expected, rtol=1e-12, atol=0)


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


@each_kind
def test_permutation_equivariant_and_shift_invariant(soft):
    scores, target = scene(6, 11, soft=soft)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(3))
    permuted = target[:, order] if soft else order.argsort()[target]
    for k in (1, 3, 10):
        value, gradient = value_and_gradient(lambda s, k=k: smooth_topk_loss(s, target, k), scores)
        found = value_and_gradient(lambda s, k=k: smooth_topk_loss(s, permuted, k), scores[:, order])
        torch.testing.assert_close(found, (value, gradient[:, order]), rtol=1e-12, atol=1e-14)
        found = value_and_gradient(lambda s, k=k: smooth_topk_loss(s, target, k), scores + 1000 * normal(6, 1))
        torch.testing.assert_close(found, (value, gradient), rtol=1e-10, atol=1e-12)


def test_shifts_that_are_exact_change_nothing_in_float32():
    scores, target = (64 * normal(6, 100, dtype=torch.float32)).round() / 64, torch.arange(6)
    found, expected = (
        value_and_gradient(lambda s: smooth_topk_loss(s, target, 5, 0.01), s) for s in (scores + 65536, scores)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@each_kind
def test_gradients_add_up_to_0_and_fall_on_the_label_alone(soft):
    scores, target = scene(20, 9, soft=soft)
    for k in (1, 4, 8):
        _, gradient = value_and_gradient(lambda s, k=k: smooth_topk_loss(s, target, k, reduction='none'), scores)
        assert gradient.sum(1).abs().max() < 1e-14
        if not soft:
            own = one_hot(target, 9).bool()
            assert (gradient[own] < 0).all()
            assert (gradient[~own] > 0).all()


@each_dtype
def test_shares_of_one_label_are_the_label(dtype):
    for shape in ((9, 7), (2, 7, 3, 2)):
        scores, target = scene(*shape, dtype=dtype)
        for k in (1, 3, 6):
            found, expected = (
                value_and_gradient(lambda s, t=t, k=k: smooth_topk_loss(s, t, k, reduction='none'), scores)
                for t in (one_hot(target, 7, dtype), target)
            )
            close = {'rtol': 1e-12, 'atol': 1e-13} if dtype == torch.float64 else {'rtol': 1e-5, 'atol': 1e-6}
            torch.testing.assert_close(found, expected, **close)


def test_mixed_labels_have_the_mean_of_their_losses():
    scores, first = scene(9, 7)
    second, lam = first.roll(1), torch.linspace(0, 1, 9).double()
    shares = lam[:, None] * one_hot(first, 7) + (1 - lam[:, None]) * one_hot(second, 7)
    for k in (1, 3, 6):
        expected = lam * smooth_topk_loss(scores, first, k, reduction='none')
        expected = expected + (1 - lam) * smooth_topk_loss(scores, second, k, reduction='none')
        found = smooth_topk_loss(scores, shares, k, reduction='none')
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


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


def test_the_shares_have_the_losses_of_the_labels_as_their_gradient():
    scores, shares = scene(4, 6, soft=True)
    shares.requires_grad_()
    gradient = torch.autograd.grad(smooth_topk_loss(scores, shares, 2, reduction='sum'), shares)[0]
    expected = [smooth_topk_loss(scores, torch.full((4,), y), 2, reduction='none') for y in range(6)]
    torch.testing.assert_close(gradient, torch.stack(expected, 1), rtol=1e-12, atol=1e-14)


@each_kind
def test_masked_classes_do_not_exist(soft):
    scores, target = scene(6, 5, soft=soft)
    wider = target if not soft else torch.cat([target, torch.zeros(6, 4)], 1)
    for nothing in (-INF, torch.finfo(torch.float64).min):
        masked = torch.cat([scores, torch.full((6, 4), nothing, dtype=torch.float64)], 1)
        for k in (1, 2, 4):
            value, gradient = value_and_gradient(lambda s, k=k: smooth_topk_loss(s, wider, k, 0.5), masked)
            expected = value_and_gradient(lambda s, k=k: smooth_topk_loss(s, target, k, 0.5), scores)
            torch.testing.assert_close((value, gradient[:, :5]), expected, rtol=1e-12, atol=1e-14)
            assert gradient[:, 5:].eq(0).all()


@each_kind
def test_nothing_to_lose_where_all_labels_fit_into_the_set(soft):
    scores = torch.full((2, 6), -INF).double()
    scores[0, :2] = normal(2)  # the second item has no labels at all
    target = torch.tensor([1, 1])
    for k in (2, 3, 5):
        value, gradient = value_and_gradient(
            lambda s, k=k: smooth_topk_loss(s, one_hot(target, 6) if soft else target, k), scores
        )
        assert value.item() == 0
        assert gradient.eq(0).all()


@each_kind
def test_a_masked_label_is_an_infinite_loss(soft):
    scores, target = scene(2, 5)
    scores[0, target[0]] = -INF
    value, gradient = value_and_gradient(
        lambda s: smooth_topk_loss(s, one_hot(target, 5) if soft else target, 2, reduction='none'), scores
    )
    assert value[0] == INF
    assert value[1].isfinite()
    assert gradient.isfinite().all()


def test_reductions():
    scores, target = scene(4, 6, 3)
    target[0, 1] = 255
    weight = torch.rand(4, 3, generator=torch.Generator().manual_seed(4)).double()
    weight[1, 1:] = 0
    losses = smooth_topk_loss(scores, target, 2, weight=weight, reduction='none')
    kept = (target != 255) & (weight != 0)
    expected = smooth_topk_loss(scores.movedim(1, 2)[kept], target[kept], 2, reduction='none') * weight[kept]
    assert losses.shape == (4, 3)
    assert losses[~kept].eq(0).all()
    torch.testing.assert_close(losses[kept], expected, rtol=1e-13, atol=0)
    total, mean = (smooth_topk_loss(scores, target, 2, weight=weight, reduction=r).item() for r in ('sum', 'mean'))
    assert total == pytest.approx(expected.sum().item(), rel=1e-13)
    assert mean == pytest.approx(expected.mean().item(), rel=1e-13)


@each_kind
@pytest.mark.parametrize('poison', [math.nan, INF, -INF])
def test_removed_items_leave_no_trace(soft, poison):
    scores, target = scene(6, 5, soft=soft)
    removed = torch.tensor([True, False, False, True, False, False])
    poisoned = scores.clone()
    poisoned[removed] = poison
    labels = target.clone()
    if soft:
        labels[removed] = math.nan
    calls = [({'weight': (~removed).double()}, labels)]
    if not soft:
        calls.append(({}, target.masked_fill(removed, 255)))
        calls.append(({'ignore_index': -1}, target.masked_fill(removed, -1)))
    expected = value_and_gradient(lambda s: smooth_topk_loss(s, target[~removed], 2), scores[~removed])
    for settings, labels in calls:
        value, gradient = value_and_gradient(lambda s, t=labels, o=settings: smooth_topk_loss(s, t, 2, **o), poisoned)
        torch.testing.assert_close((value, gradient[~removed]), expected, rtol=1e-13, atol=1e-15)
        assert gradient[removed].eq(0).all()


@each_kind
def test_nan_that_counts_is_not_hidden(soft):
    for k in (1, 2, 4):
        for c in range(5):
            scores, target = scene(1, 5, soft=soft)
            scores[0, c] = math.nan
            assert smooth_topk_loss(scores, target, k).isnan()


def test_shares_that_are_nan_are_not_hidden():
    scores, shares = scene(1, 5, soft=True)
    shares[0, 2] = math.nan
    assert smooth_topk_loss(scores, shares, 2).isnan()


@each_kind
def test_nothing_that_counts_is_an_attached_zero(soft):
    for shape in ((3, 5), (0, 5), (0, 5, 2, 3), (2, 5, 0), (3, 5, 2)):
        scores, target = scene(*shape, soft=soft)
        scores.requires_grad_()
        weight = torch.zeros(shape[0], *shape[2:])
        calls = [{'weight': weight}] + ([{}] if weight.numel() == 0 else [])
        for settings in calls:
            for reduction in ('mean', 'sum'):
                loss = smooth_topk_loss(scores, target, 2, reduction=reduction, **settings)
                assert loss.item() == 0
                assert torch.autograd.grad(loss, scores)[0].eq(0).all()
            assert smooth_topk_loss(scores, target, 2, reduction='none', **settings).shape == weight.shape


@pytest.mark.parametrize('shape', [(1, 2), (4, 3), (2, 3, 4, 5), (1, 7, 1, 1), (2, 3, 2, 2, 2)], ids=str)
@each_kind
def test_any_number_of_dimensions_and_any_layout(shape, soft):
    scores, target = scene(*shape, soft=soft)
    flat = target.movedim(1, -1).reshape(-1, shape[1]) if soft else target.reshape(-1)
    expected = smooth_topk_loss(scores.movedim(1, -1).reshape(-1, shape[1]), flat, shape[1] - 1)
    for layout in (
        scores,
        scores.movedim(1, -1).contiguous().movedim(-1, 1),
        torch.stack([scores, scores], -1)[..., 0],
    ):
        torch.testing.assert_close(smooth_topk_loss(layout, target, shape[1] - 1), expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16], ids=str)
@each_kind
def test_half_precision_is_computed_in_float32(dtype, soft):
    scores, target = scene(16, 300, soft=soft)
    scores = scores.to(dtype)
    for tau in (1.0, 0.1):
        value, gradient = value_and_gradient(lambda s, t=tau: smooth_topk_loss(s, target, 5, t), scores)
        expected = value_and_gradient(lambda s, t=tau: smooth_topk_loss(s, target, 5, t), scores.double())
        assert value.dtype == torch.float32
        assert gradient.dtype == dtype
        assert value.item() == pytest.approx(expected[0].item(), rel=1e-5)
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(gradient.double(), expected[1], rtol=eps, atol=1e-6)


@pytest.mark.parametrize('dtype', [torch.uint8, torch.int16, torch.int32], ids=str)
def test_integer_labels_of_any_width(dtype):
    scores, target = scene(6, 5)
    target[2] = 255 if dtype == torch.uint8 else -100
    expected = smooth_topk_loss(scores, target, 2, ignore_index=target[2].item())
    assert smooth_topk_loss(scores, target.to(dtype), 2, ignore_index=target[2].item()) == expected


@each_kind
def test_compiles_without_graph_breaks(soft):
    scores, target = scene(3, 6, soft=soft)

    def loss(s):
        return smooth_topk_loss(s, target, 2, weight=torch.ones(3))

    compiled = torch.compile(loss, fullgraph=True, backend='eager')
    torch.testing.assert_close(value_and_gradient(compiled, scores), value_and_gradient(loss, scores))


S, T = torch.zeros(2, 4), torch.zeros(2, dtype=torch.long)


@pytest.mark.parametrize(
    ('call', 'error', 'message'),
    [
        (lambda: smooth_topk_loss(S, T, 0), ValueError, '`k`.*0'),
        (lambda: smooth_topk_loss(S, T, -1), ValueError, '`k`.*-1'),
        (lambda: smooth_topk_loss(S, T, 4), ValueError, '`k`.*4'),
        (lambda: smooth_topk_loss(S, T), ValueError, '`k`.*5'),
        (lambda: smooth_topk_loss(S[:, :1], T, 1), ValueError, '`k`.*1'),
        (lambda: smooth_topk_loss(S, T, 2.0), TypeError, r'`k`.*2\.0'),
        (lambda: smooth_topk_loss(S, T, True), TypeError, '`k`.*True'),
        (lambda: smooth_topk_loss(S, T, '2'), TypeError, "`k`.*'2'"),
        (lambda: smooth_topk_loss(S, T, 2, 0), ValueError, '`tau`.*0'),
        (lambda: smooth_topk_loss(S, T, 2, -1.0), ValueError, '`tau`.*-1'),
        (lambda: smooth_topk_loss(S, T, 2, math.nan), ValueError, '`tau`.*nan'),
        (lambda: smooth_topk_loss(S, T, 2, math.inf), ValueError, '`tau`.*inf'),
        (lambda: smooth_topk_loss(S, T, 2, '1'), TypeError, "`tau`.*'1'"),
        (lambda: smooth_topk_loss(S, T, 2, True), TypeError, '`tau`.*True'),
        (lambda: smooth_topk_loss(S, T, 2, 1, -0.1), ValueError, r'`margin`.*-0\.1'),
        (lambda: smooth_topk_loss(S, T, 2, 1, math.nan), ValueError, '`margin`.*nan'),
        (lambda: smooth_topk_loss(S, T, 2, 1, None), TypeError, '`margin`.*None'),
        (lambda: smooth_topk_loss(S, T, 2, reduction='avg'), ValueError, "`reduction`.*'avg'"),
        (lambda: smooth_topk_loss(S[0], T, 2), ValueError, r'`scores`.*\(4,\)'),
        (lambda: smooth_topk_loss(S.long(), T, 2), TypeError, '`scores`.*int64'),
        (lambda: smooth_topk_loss(S, T[:1], 2), ValueError, r'`target`.*\(2,\).*\(1,\)'),
        (lambda: smooth_topk_loss(S, T + 4, 2), ValueError, r'`target`.*\[0, 3\].*Found 4'),
        (lambda: smooth_topk_loss(S, S - 1, 2), ValueError, '`target`.*-1'),
        (lambda: smooth_topk_loss(S, T, 2, weight=torch.ones(3)), ValueError, r'`weight`.*\(3,\)'),
        (lambda: smooth_topk_loss(S, T, 2, weight=-torch.ones(2)), ValueError, '`weight`.*-1'),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()

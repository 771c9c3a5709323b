import math

import numpy as np
import pytest
import torch
from reference import smooth_topk as reference
from topk_scenes import FAMILIES, INF, each_dtype, each_kind, normal, one_hot, scene, value_and_gradient
from torch.autograd import gradcheck

from mmseg_nondecomp.functional import hard_topk_loss


@pytest.mark.parametrize('family', FAMILIES)
@each_dtype
def test_equals_the_enumeration(family, dtype):
    rng, eps = np.random.default_rng(0), 4 * torch.finfo(dtype).eps
    for n, k in ((c, k) for c in (2, 3, 5, 12) for k in range(1, c)):
        row = torch.tensor(FAMILIES[family](rng, n)).to(dtype)
        labels = torch.arange(n)[row > -INF]
        scores, scale = row.expand(len(labels), n), max(1, row[row > -INF].abs().max().item())
        for margin in (0, 1):
            expected = [reference.hard_topk_loss(row, int(y), k, margin) for y in labels]
            values, gradients = (np.array(x, float) for x in zip(*expected, strict=True))
            for target in (labels, one_hot(labels, n)):
                value, gradient = value_and_gradient(
                    lambda s, t=target, k=k, m=margin: hard_topk_loss(s, t, k, m, reduction='none'), scores
                )
                np.testing.assert_allclose(value.double(), values, rtol=eps, atol=eps * scale)
                if family in ('normal', 'huge') and margin > 0:  # elsewhere at a kink, or beside one
                    np.testing.assert_allclose(gradient.double(), gradients, rtol=eps, atol=eps)


@pytest.mark.parametrize('k', [1, 5, 999])
def test_many_classes_equal_the_definition_by_ranks(k):
    scores, target = scene(8, 1000)
    expected = [float(reference.hard_topk_loss_of_ranks(*item, k)) for item in zip(scores, target, strict=True)]
    for labels in (target, one_hot(target, 1000)):
        np.testing.assert_allclose(
            hard_topk_loss(scores, labels, k, reduction='none'), expected, rtol=1e-14, atol=1e-15
        )


@pytest.mark.parametrize('margin', [0.0, 1.0])
def test_the_multi_margin_loss_of_the_strongest_rival_with_k_1(margin):
    """Crammer and Singer's loss."""
    scores, target = scene(50, 6)
    own = one_hot(target, 6).bool()
    rival = scores.masked_fill(own, -INF).amax(1)
    expected = (margin + rival - scores[own]).clamp(min=0)
    torch.testing.assert_close(
        hard_topk_loss(scores, target, 1, margin, reduction='none'), expected, rtol=1e-14, atol=0
    )


def test_zero_exactly_where_the_label_is_in_the_top_k_by_the_margin():
    scores, target = scene(500, 8)
    scores = scores / 3
    for k in (1, 3, 7):
        losses = hard_topk_loss(scores, target, k, 0, reduction='none')
        in_top_k = (scores.topk(k).indices == target[:, None]).any(1)
        assert 0 < in_top_k.sum() < 500
        assert ((losses == 0) == in_top_k).all()
        assert (hard_topk_loss(scores, target, k, 1, reduction='none') >= (~in_top_k).double()).all()


@each_kind
def test_permutation_equivariant_and_shift_invariant(soft):
    scores, target = scene(6, 11, soft=soft)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(3))
    permuted = target[:, order] if soft else order.argsort()[target]
    for k in (1, 3, 10):
        value, gradient = value_and_gradient(lambda s, k=k: hard_topk_loss(s, target, k), scores)
        found = value_and_gradient(lambda s, k=k: hard_topk_loss(s, permuted, k), scores[:, order])
        torch.testing.assert_close(found, (value, gradient[:, order]), rtol=1e-14, atol=1e-15)
        found = value_and_gradient(lambda s, k=k: hard_topk_loss(s, target, k), scores + 1000 * normal(6, 1))
        torch.testing.assert_close(found, (value, gradient), rtol=1e-11, atol=1e-15)


@each_dtype
def test_shares_of_one_label_are_the_label(dtype):
    for shape in ((9, 7), (2, 7, 3, 2)):
        scores, target = scene(*shape, dtype=dtype)
        for k in (1, 3, 6):
            found, expected = (
                value_and_gradient(lambda s, t=t, k=k: hard_topk_loss(s, t, k, reduction='none'), scores)
                for t in (one_hot(target, 7, dtype), target)
            )
            torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_mixed_labels_have_the_mean_of_their_losses():
    scores, first = scene(9, 7)
    scores = scores.round()
    second, lam = first.roll(1), torch.linspace(0, 1, 9).double()
    shares = lam[:, None] * one_hot(first, 7) + (1 - lam[:, None]) * one_hot(second, 7)
    for k in (1, 3, 6):
        expected = lam * hard_topk_loss(scores, first, k, reduction='none')
        expected = expected + (1 - lam) * hard_topk_loss(scores, second, k, reduction='none')
        torch.testing.assert_close(
            hard_topk_loss(scores, shares, k, reduction='none'), expected, rtol=1e-13, atol=1e-15
        )


@pytest.mark.parametrize('shape', [(3, 2), (3, 5), (2, 4, 2, 2)], ids=str)
@each_kind
def test_gradcheck(shape, soft):
    scores, target = scene(*shape, soft=soft)
    scores.requires_grad_()
    weight = torch.rand(target.shape[:1] + shape[2:], generator=torch.Generator().manual_seed(4)).double()
    for k in {1, shape[1] - 1}:
        for reduction in ('none', 'mean'):
            assert gradcheck(
                lambda s, k=k, r=reduction: hard_topk_loss(s, target, k, weight=weight, reduction=r), scores
            )


@each_kind
def test_masked_classes_do_not_exist(soft):
    scores, target = scene(6, 5, soft=soft)
    wider = target if not soft else torch.cat([target, torch.zeros(6, 4)], 1)
    masked = torch.cat([scores, torch.full((6, 4), -INF).double()], 1)
    for k in (1, 2, 4):
        value, gradient = value_and_gradient(lambda s, k=k: hard_topk_loss(s, wider, k), masked)
        expected = value_and_gradient(lambda s, k=k: hard_topk_loss(s, target, k), scores)
        torch.testing.assert_close((value, gradient[:, :5]), expected, rtol=1e-14, atol=0)
        assert gradient[:, 5:].eq(0).all()


@each_kind
def test_nothing_to_lose_where_all_labels_fit_into_the_set(soft):
    scores = torch.full((2, 6), -INF).double()
    scores[0, :2] = normal(2)  # the second item has no labels at all
    target = torch.tensor([1, 1])
    for k in (2, 3, 5):
        value, gradient = value_and_gradient(
            lambda s, k=k: hard_topk_loss(s, one_hot(target, 6) if soft else target, k), scores
        )
        assert value.item() == 0
        assert gradient.eq(0).all()


@each_kind
def test_a_masked_label_is_an_infinite_loss(soft):
    scores, target = scene(2, 5)
    scores[0, target[0]] = -INF
    value, gradient = value_and_gradient(
        lambda s: hard_topk_loss(s, one_hot(target, 5) if soft else target, 2, reduction='none'), scores
    )
    assert value[0] == INF
    assert value[1].isfinite()
    assert gradient.isfinite().all()


@each_kind
@pytest.mark.parametrize('poison', [math.nan, INF, -INF])
def test_removed_items_leave_no_trace(soft, poison):
    scores, target = scene(6, 5, soft=soft)
    removed = torch.tensor([True, False, False, True, False, False])
    poisoned = scores.clone()
    poisoned[removed] = poison
    calls = [({'weight': (~removed).double()}, target)]
    if not soft:
        calls.append(({}, target.masked_fill(removed, 255)))
        calls.append(({'ignore_index': -1}, target.masked_fill(removed, -1)))
    expected = value_and_gradient(lambda s: hard_topk_loss(s, target[~removed], 2), scores[~removed])
    for settings, labels in calls:
        value, gradient = value_and_gradient(lambda s, t=labels, o=settings: hard_topk_loss(s, t, 2, **o), poisoned)
        torch.testing.assert_close((value, gradient[~removed]), expected, rtol=1e-14, atol=0)
        assert gradient[removed].eq(0).all()


@each_kind
def test_nan_that_counts_is_not_hidden(soft):
    for k in (1, 2, 4):
        for c in range(5):
            scores, target = scene(1, 5, soft=soft)
            scores[0, c] = math.nan
            assert hard_topk_loss(scores, target, k).isnan()


@each_kind
def test_nothing_that_counts_is_an_attached_zero(soft):
    for shape in ((3, 5), (0, 5), (0, 5, 2, 3), (2, 5, 0), (3, 5, 2)):
        scores, target = scene(*shape, soft=soft)
        scores.requires_grad_()
        for reduction in ('mean', 'sum'):
            loss = hard_topk_loss(scores, target, 2, weight=torch.zeros(shape[0], *shape[2:]), reduction=reduction)
            assert loss.item() == 0
            assert torch.autograd.grad(loss, scores)[0].eq(0).all()


@pytest.mark.parametrize('shape', [(1, 2), (4, 3), (2, 3, 4, 5), (2, 3, 2, 2, 2)], ids=str)
@each_kind
def test_any_number_of_dimensions_and_any_layout(shape, soft):
    scores, target = scene(*shape, soft=soft)
    flat = target.movedim(1, -1).reshape(-1, shape[1]) if soft else target.reshape(-1)
    expected = hard_topk_loss(scores.movedim(1, -1).reshape(-1, shape[1]), flat, shape[1] - 1)
    for layout in (
        scores,
        scores.movedim(1, -1).contiguous().movedim(-1, 1),
        torch.stack([scores, scores], -1)[..., 0],
    ):
        torch.testing.assert_close(hard_topk_loss(layout, target, shape[1] - 1), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16], ids=str)
@each_kind
def test_half_precision_is_computed_in_float32(dtype, soft):
    scores, target = scene(16, 300, soft=soft)
    scores = scores.to(dtype)
    value, gradient = value_and_gradient(lambda s: hard_topk_loss(s, target), scores)
    expected = hard_topk_loss(scores.double(), target)
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)


@each_kind
def test_compiles_without_graph_breaks(soft):
    scores, target = scene(3, 6, soft=soft)

    def loss(s):
        return hard_topk_loss(s, target, 2, weight=torch.ones(3))

    compiled = torch.compile(loss, fullgraph=True, backend='eager')
    torch.testing.assert_close(value_and_gradient(compiled, scores), value_and_gradient(loss, scores))


S, T = torch.zeros(2, 4), torch.zeros(2, dtype=torch.long)


@pytest.mark.parametrize(
    ('call', 'error', 'message'),
    [
        (lambda: hard_topk_loss(S, T, 0), ValueError, '`k`.*0'),
        (lambda: hard_topk_loss(S, T, 4), ValueError, '`k`.*4'),
        (lambda: hard_topk_loss(S, T, 2.0), TypeError, r'`k`.*2\.0'),
        (lambda: hard_topk_loss(S, T, 2, -0.1), ValueError, r'`margin`.*-0\.1'),
        (lambda: hard_topk_loss(S, T, 2, math.inf), ValueError, '`margin`.*inf'),
        (lambda: hard_topk_loss(S, T, 2, '1'), TypeError, "`margin`.*'1'"),
        (lambda: hard_topk_loss(S, T, 2, reduction='avg'), ValueError, "`reduction`.*'avg'"),
        (lambda: hard_topk_loss(S[0], T, 2), ValueError, r'`scores`.*\(4,\)'),
        (lambda: hard_topk_loss(S.long(), T, 2), TypeError, '`scores`.*int64'),
        (lambda: hard_topk_loss(S, T - 1, 2), ValueError, r'`target`.*\[0, 3\].*Found -1'),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()

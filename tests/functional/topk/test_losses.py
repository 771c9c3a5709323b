"""Theorems of both the hard and the smooth top-k loss."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
import torch
from topk_scenes import INF, each_kind, normal, one_hot, scene, value_and_gradient

from mmseg_nondecomp.functional import hard_topk_loss, smooth_topk_loss


class Case(NamedTuple):
    """A loss, and how well it is computed in float64."""

    loss: Callable
    rtol: float
    atol: float


CASES = {
    'hard': Case(hard_topk_loss, rtol=1e-14, atol=0),
    'smooth': Case(smooth_topk_loss, rtol=1e-13, atol=1e-15),
    'cold': Case(partial(smooth_topk_loss, tau=0.1), rtol=1e-13, atol=1e-15),
}


@pytest.fixture(params=['hard', 'smooth', 'smooth of any range', 'cold', 'cold of any range'])
def case(request):
    name, _, any_range = request.param.partition(' of ')
    if any_range:
        request.getfixturevalue('of_any_range')
    return CASES[name]


@pytest.fixture
def loss(case):
    return case.loss


def assert_close(actual, expected, case, factor=1):
    torch.testing.assert_close(actual, expected, rtol=factor * case.rtol, atol=factor * case.atol)


@each_kind
def test_permutation_equivariant_and_shift_invariant(case, soft):
    scores, target = scene(6, 11, soft=soft)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(3))
    permuted = target[:, order] if soft else order.argsort()[target]
    for k in (1, 3, 10):
        value, gradient = value_and_gradient(lambda s, k=k: case.loss(s, target, k), scores)
        actual = value_and_gradient(lambda s, k=k: case.loss(s, permuted, k), scores[:, order])
        assert_close(actual, (value, gradient[:, order]), case)
        # By as many digits as they are larger the shifted scores are less exact.
        actual = value_and_gradient(lambda s, k=k: case.loss(s, target, k), scores + 1000 * normal(6, 1))
        assert_close(actual, (value, gradient), case, 1000)


def test_mixed_labels_have_the_mean_of_their_losses_and_in_their_gradient_the_losses(case):
    scores, first = scene(9, 7)
    second, lam = first.roll(1), torch.linspace(0, 1, 9).double()
    soft = lam[:, None] * one_hot(first, 7) + (1 - lam[:, None]) * one_hot(second, 7)
    for s in (scores, scores.round()):
        for k in (1, 3, 6):
            of_first, of_second = (case.loss(s, labels, k, reduction='none') for labels in (first, second))
            assert_close(case.loss(s, soft, k, reduction='none'), lam * of_first + (1 - lam) * of_second, case, 10)
    scores, soft = scene(4, 6, soft=True)
    gradient = torch.autograd.grad(case.loss(scores, soft.requires_grad_(), 2, reduction='sum'), soft)[0]
    expected = [case.loss(scores, torch.full((4,), y), 2, reduction='none') for y in range(6)]
    assert_close(gradient, torch.stack(expected, 1), case)


@each_kind
def test_masked_classes_do_not_exist(case, soft):
    scores, target = scene(6, 5, soft=soft)
    wider = torch.cat([target, torch.zeros(6, 4)], 1) if soft else target
    for nothing in (-INF, torch.finfo(torch.float64).min):
        masked = torch.cat([scores, torch.full((6, 4), nothing, dtype=torch.float64)], 1)
        for k in (1, 2, 4):
            value, gradient = value_and_gradient(lambda s, k=k: case.loss(s, wider, k), masked)
            expected = value_and_gradient(lambda s, k=k: case.loss(s, target, k), scores)
            assert_close((value, gradient[:, :5]), expected, case)
            assert gradient[:, 5:].eq(0).all()


@each_kind
def test_nothing_to_lose_where_all_labels_fit_into_the_set_and_a_masked_label_is_an_infinite_loss(loss, soft):
    scores = torch.full((2, 6), -INF).double()
    scores[0, :2] = normal(2)  # the second item has no labels at all
    target = one_hot(torch.tensor([1, 1]), 6) if soft else torch.tensor([1, 1])
    for k in (2, 3, 5):
        value, gradient = value_and_gradient(lambda s, k=k: loss(s, target, k), scores)
        assert value.item() == 0
        assert gradient.eq(0).all()
    scores, labels = scene(2, 5)
    scores[0, labels[0]] = -INF
    target = one_hot(labels, 5) if soft else labels
    value, gradient = value_and_gradient(lambda s: loss(s, target, 2, reduction='none'), scores)
    assert value[0] == INF
    assert value[1].isfinite()
    assert gradient.isfinite().all()


def test_reductions(case):
    scores, target = scene(4, 6, 3)
    target[0, 1] = 255
    weight = torch.rand(4, 3, generator=torch.Generator().manual_seed(4)).double()
    weight[1, 1:] = 0
    losses = case.loss(scores, target, 2, weight=weight, reduction='none')
    kept = (target != 255) & (weight != 0)
    expected = case.loss(scores.movedim(1, 2)[kept], target[kept], 2, reduction='none') * weight[kept]
    assert losses.shape == (4, 3)
    assert losses[~kept].eq(0).all()
    torch.testing.assert_close(losses[kept], expected, rtol=case.rtol, atol=0)
    total, mean = (case.loss(scores, target, 2, weight=weight, reduction=r).item() for r in ('sum', 'mean'))
    assert total == pytest.approx(expected.sum().item(), rel=case.rtol)
    assert mean == pytest.approx(expected.mean().item(), rel=case.rtol)


@each_kind
@pytest.mark.parametrize('poison', [math.nan, INF, -INF])
def test_removed_items_leave_no_trace(case, soft, poison):
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
        calls.append(({'weight': torch.where(removed, math.nan, 1.0)}, target.masked_fill(removed, 255)))
        calls.append(({'ignore_index': -1}, target.masked_fill(removed, -1)))
    expected = value_and_gradient(lambda s: case.loss(s, target[~removed], 2), scores[~removed])
    for settings, labels in calls:
        value, gradient = value_and_gradient(lambda s, t=labels, o=settings: case.loss(s, t, 2, **o), poisoned)
        assert_close((value, gradient[~removed]), expected, case)
        assert gradient[removed].eq(0).all()


@each_kind
def test_nan_that_counts_is_not_hidden(loss, soft):
    for k in (1, 2, 4):
        for c in range(5):
            scores, target = scene(1, 5, soft=soft)
            scores[0, c] = math.nan
            assert loss(scores, target, k).isnan()
            if soft:
                scores, target = scene(1, 5, soft=True)
                target[0, c] = math.nan
                assert loss(scores, target, k).isnan()


S, T = torch.zeros(2, 4), torch.zeros(2, dtype=torch.long)


@pytest.mark.parametrize('loss', [hard_topk_loss, smooth_topk_loss])
@pytest.mark.parametrize(
    ('call', 'error', 'message'),
    [
        (lambda loss: loss(S, T, 0), ValueError, '`k`.*0'),
        (lambda loss: loss(S, T), ValueError, '`k`.*5'),
        (lambda loss: loss(S, T, 2, margin=-0.1), ValueError, r'`margin`.*-0\.1'),
        (lambda loss: loss(S, T, 2, reduction='avg'), ValueError, "`reduction`.*'avg'"),
        (lambda loss: loss(S[0], T, 2), ValueError, r'`scores`.*\(4,\)'),
    ],
)
def test_bad_input(loss, call, error, message):
    with pytest.raises(error, match=message):
        call(loss)

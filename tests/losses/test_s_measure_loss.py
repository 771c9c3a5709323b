"""The Lagrangian written out, its multipliers, and what training on it comes to: the optimum of the linear program."""

import copy
import io
import math
import pickle
from collections import OrderedDict
from uuid import uuid4

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.logging import MessageHub
from reference import s_measures as reference
from torch import nn

from mmseg_nondecomp.losses.dual_state import LITTLE, MOST
from mmseg_nondecomp.losses.s_measure_loss import SMeasureLoss

MEASURES = {
    'F_1': dict(measure='f_beta'),
    'F_2': dict(measure='f_beta', beta=2.0),
    'precision at recall': dict(measure='precision_at_recall', target=0.8),
    'recall at precision': dict(measure='recall_at_precision', target=0.6),
    'area under ROC': dict(measure='auc_roc', anchors=3),
    'area under PR': dict(measure='auc_pr', anchors=3),
}
AT_ONE_POINT = {name: args for name, args in MEASURES.items() if 'anchors' not in args}
each_measure = pytest.mark.parametrize('args', MEASURES.values(), ids=MEASURES)
at_one_point = pytest.mark.parametrize('args', AT_ONE_POINT.values(), ids=AT_ONE_POINT)
each_surrogate = pytest.mark.parametrize('surrogate', ['hinge', 'logistic'])
MODES = [pytest.param(args, False, id=name) for name, args in MEASURES.items()] + [
    pytest.param(args, True, id=f'{name}, per example') for name, args in AT_ONE_POINT.items()
]
each_mode = pytest.mark.parametrize(('args', 'per_example'), MODES)


@pytest.fixture(autouse=True)
def _no_runner(monkeypatch):
    """No hub of another test tells the time."""
    monkeypatch.setattr(MessageHub, '_instance_dict', OrderedDict())


def batch(n=30, n_classes=1, seed=0, share=0.3, dtype=torch.float64):
    """Scores that are higher for positives, labels and ids."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(n, generator=generator) < share).long()
    labels[:2] = torch.tensor([0, 1])
    if n_classes > 1:
        labels = torch.arange(n) % n_classes
    scores = 1.5 * torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    scores += (F.one_hot(labels, n_classes) if n_classes > 1 else labels.unsqueeze(1)).double()
    return scores.to(dtype), labels, torch.arange(n)


def value_and_gradient(loss, scores, *args, **kwargs):
    scores = scores.detach().requires_grad_()
    value = loss(scores, *args, **kwargs)
    return value.item(), torch.autograd.grad(value, scores)[0]


def call(loss, scores, labels, ids=None, **kwargs):
    return loss(scores, labels, ids=ids if loss.per_example else None, **kwargs)


def everything(loss):
    """All that a loss keeps beside its settings, copied."""
    parts = [value for part in loss.get_extra_state().values() for value in part.values()]
    return [part.clone() for part in parts]


def same(one, other):
    """Bit for bit, where NaN stands for an example that is no positive of a class."""
    return torch.equal(one.nan_to_num(nan=1e300), other.nan_to_num(nan=1e300))


def assert_same_state(loss, other):
    for one, two in zip(everything(loss), everything(other), strict=True):
        assert same(one, two)


def is_finite(loss):
    if loss.examples is not None:
        n = len(loss.examples)
        of_positives = loss.examples.values[:n][loss.examples.positive[:n]]
        if not of_positives.isfinite().all() or loss.examples.values[:n].isinf().any():
            return False
    return loss.state is None or all(part.isfinite().all() for part in loss.state.as_dict().values())


# The Lagrangian in NumPy, as the paper has it: a sum over i.


def lagrangian(args, scores, positive, negative, epsilon, threshold, mu, surrogate):
    """L of one query at each operating point and its gradient for the scores, [K] and [K, n].

    Divided by what is paid for a true positive where that is above 1.

    Args:
        args: The measure.
        scores: Of shape [n].
        positive: How much each item counts as a positive, [n].
        negative: How much each item counts as a negative, [n].
        epsilon: Margins, [K]; and thresholds and multipliers.
        threshold: The same.
        mu: The same.
        surrogate: What bounds the rates.
    """
    measure, beta, target, n_anchors = (args.get(name) for name in ('measure', 'beta', 'target', 'anchors'))
    beta = 1.0 if beta is None else beta
    n_pos, n_neg = positive.sum(), negative.sum()
    found = []
    for k, (eps, b, price) in enumerate(zip(epsilon, threshold, mu, strict=True)):
        z = scores - b
        if surrogate == 'hinge':
            tau, phi = np.minimum(eps, z), np.maximum(0, eps + z)
            tau_slope, phi_slope = (z < eps) * 1.0, (z > -eps) * 1.0
        else:
            tau, phi = eps - eps * np.log2(1 + np.exp(-z / eps)), eps * np.log2(1 + np.exp(z / eps))
            tau_slope, phi_slope = (1 / (1 + np.exp(sign * z / eps)) / np.log(2) for sign in (1, -1))
        A, B = (positive * tau).sum() / n_pos, (negative * phi).sum() / n_neg
        dA, dB = positive * tau_slope / n_pos, negative * phi_slope / n_neg
        r = n_neg / n_pos
        if measure == 'f_beta':
            L, by_a, by_b = beta**2 * eps + r * B + price * (1 - A), -price, r
        elif measure == 'precision_at_recall':
            L, by_a, by_b = B + price * (target - A), -price, 1.0
        elif measure == 'auc_roc':
            L, by_a, by_b = 1 - A + price * (B - (k + 0.5) / n_anchors), -1.0, price
        else:
            p = target if measure == 'recall_at_precision' else (k + 0.5) / n_anchors
            L, by_a, by_b = 1 - A + price * (p * r * B - (1 - p) * A), -1 - price * (1 - p), price * p * r
        paid = max(1, -by_a)
        found.append((L / paid, (by_a * dA + by_b * dB) / paid))
    return tuple(np.array(part) for part in zip(*found, strict=True))


def with_state(args, scores, labels, seed=0, **kwargs):
    """A loss whose margins, thresholds and multipliers are not those that it starts with."""
    loss = SMeasureLoss(**args, **kwargs)
    with torch.no_grad():
        call(loss, scores, labels, torch.arange(len(scores)))
    generator = torch.Generator().manual_seed(seed)
    state = loss.state
    state.counts += 1e-9  # what there has been is next to nothing, but its multipliers have begun
    state.mu = state.price = 3 * torch.rand(state.mu.shape, generator=generator, dtype=torch.float64)
    if args['measure'] == 'f_beta':
        state.epsilon = 1 + torch.rand(state.mu.shape, generator=generator, dtype=torch.float64)
    if 'anchors' in args:
        state.threshold = torch.randn(state.mu.shape, generator=generator, dtype=torch.float64)
    return loss


def expected_of(loss, args, scores, positive, negative):
    """The loss of queries [Q, n] and its gradient, in NumPy."""
    queries = zip(*(part.numpy() for part in (scores, positive, negative)), strict=True)
    state = [part.numpy() for part in (loss.state.epsilon, loss.state.threshold, loss.state.price)]
    found = [lagrangian(args, *query, *(part[q] for part in state), loss.surrogate) for q, query in enumerate(queries)]
    values, gradients = zip(*found, strict=True)
    return np.mean(values), np.array([g.mean(0) for g in gradients]) / len(values)


def assert_is(found, expected):
    value, gradient = found
    assert value == pytest.approx(expected[0], rel=1e-8, abs=1e-9)
    assert np.abs(np.asarray(expected[1])).max() > 0
    np.testing.assert_allclose(np.asarray(gradient), np.asarray(expected[1]), rtol=1e-8, atol=1e-10)


@each_measure
@each_surrogate
class TestLagrangian:
    """Value and gradient against problem (3)'s, with the sums written out."""

    def test_of_one_channel(self, args, surrogate):
        scores, labels, _ = batch()
        loss = with_state(args, scores, labels, surrogate=surrogate)
        value, gradient = value_and_gradient(loss, scores, labels)
        positive = labels[None].double()
        assert_is((value, gradient.T), expected_of(loss, args, scores.T, positive, 1 - positive))

    def test_at_the_start(self, args, surrogate):
        """Margins are 1 and thresholds 0; multipliers are at the balance of the first call."""
        scores, labels, _ = batch()
        loss = SMeasureLoss(**args, surrogate=surrogate)
        value, gradient = value_and_gradient(loss, scores, labels)
        ones, positive = np.ones(args.get('anchors', 1)), labels.double().numpy()
        r = (1 - positive).sum() / positive.sum()
        mu = loss.problem.balance(torch.tensor([[r]]))[0].numpy()
        assert mu[0] == pytest.approx({'f_beta': r, 'precision_at_recall': 1, 'auc_roc': 1}.get(args['measure'], mu[0]))
        found = lagrangian(args, scores[:, 0].numpy(), positive, 1 - positive, ones, 0 * ones, mu, surrogate)
        assert_is((value, gradient[:, 0]), (found[0].mean(), found[1].mean(0)))

    def test_of_two_channels(self, args, surrogate):
        scores, labels, _ = batch()
        pred = torch.cat([scores.flip(0), scores.flip(0) + scores], 1)
        loss = with_state(args, pred, labels, surrogate=surrogate)
        value, gradient = value_and_gradient(loss, pred, labels)
        positive = labels[None].double()
        expected, of_score = expected_of(loss, args, scores.T, positive, 1 - positive)
        assert_is((value, gradient), (expected, np.concatenate([-of_score, of_score]).T))

    def test_of_several_classes(self, args, surrogate):
        scores, labels, _ = batch(n_classes=3)
        labels[-4:] = 3  # none of them
        loss = with_state(args, scores, labels, surrogate=surrogate)
        positive = F.one_hot(labels, 4)[:, :3].T.double()
        value, gradient = value_and_gradient(loss, scores, labels)
        assert_is((value, gradient.T), expected_of(loss, args, scores.T, positive, 1 - positive))

    def test_of_shares_and_weights(self, args, surrogate):
        generator = torch.Generator().manual_seed(3)
        scores, shares = batch(n_classes=3)[0], torch.rand(30, 3, generator=generator, dtype=torch.float64)
        weight = 2 * torch.rand(30, generator=generator, dtype=torch.float64)
        weight[::7] = 0
        loss = with_state(args, scores, shares, surrogate=surrogate, loss_weight=0.3)
        value, gradient = value_and_gradient(loss, scores, shares, weight)
        value, gradient = value / 0.3, gradient.T / 0.3
        positive, negative = ((weight[:, None] * part).T for part in (shares, 1 - shares))
        assert_is((value, gradient), expected_of(loss, args, scores.T, positive, negative))

    def test_of_maps_with_ignored_pixels(self, args, surrogate):
        scores, labels, _ = batch(48)
        maps, target = scores.view(2, 1, 4, 6), labels.view(2, 4, 6).clone()
        target[:, 1] = 255
        loss = with_state(args, maps, target, surrogate=surrogate)
        value, gradient = value_and_gradient(loss, maps, target)
        positive, negative = ((target == label).double().view(1, -1) for label in (1, 0))
        assert_is((value, gradient.view(1, -1)), expected_of(loss, args, scores.T, positive, negative))

    def test_gradcheck(self, args, surrogate):
        scores, labels, _ = batch(12)
        loss = with_state(args, scores, labels, surrogate=surrogate)
        assert torch.autograd.gradcheck(lambda x: loss(x, labels), scores.requires_grad_())


@at_one_point
class TestLagrangianPerExample:
    """The paper's form (4), with a τ and a λ of each example."""

    @pytest.fixture
    def data(self, args):
        """A call and a loss that knows its examples but for the last ten; all have margins, τ and λ at random."""
        scores, labels, ids = batch(40)
        loss = with_state(args, scores, labels, per_example=True, damping=0.0)
        loss.examples.rows = {2 * key: key for key in range(30)}
        generator = torch.Generator().manual_seed(1)
        loss.examples.values = torch.rand(30, 1, 3, generator=generator, dtype=torch.float64)
        loss.examples.positive = torch.ones(30, 1, dtype=torch.bool)
        return loss, scores, labels, 2 * ids

    def test_of_examples_that_are_known(self, args, data):
        loss, scores, labels, ids = data
        value, gradient = value_and_gradient(loss, scores[:30], labels[:30], ids=ids[:30])
        z, positive = scores[:30, 0].numpy(), labels[:30].numpy() == 1
        tau, lam = loss.examples.values[:30, 0, :2].numpy().T
        eps, mu, n_pos = loss.state.epsilon.item(), loss.state.price.item(), positive.sum()
        phi = np.maximum(0, eps + z[~positive])
        r, beta, target = (~positive).sum() / n_pos, args.get('beta', 1.0), args.get('target')
        if args['measure'] == 'f_beta':
            L, of_negative, paid = beta**2 * eps + phi.sum() / n_pos + mu * (1 - tau[positive].mean()), 1 / n_pos, mu
        elif args['measure'] == 'precision_at_recall':
            L, of_negative, paid = phi.mean() + mu * (target - tau[positive].mean()), 1 / (~positive).sum(), mu
        else:
            L = 1 - tau[positive].mean() + mu * (target * r * phi.mean() - (1 - target) * tau[positive].mean())
            of_negative, paid = mu * target / n_pos, 1 + mu * (1 - target)
        L += (lam * (tau - z))[positive].mean()
        expected = np.where(positive, -lam / n_pos, of_negative * (z > -eps))
        assert_is((value, gradient[:, 0]), (L / max(1, paid), expected / max(1, paid)))

    def test_of_new_examples_is_the_first_form(self, args, data):
        """(3) is (4) at its least over τ, and that is where an example begins."""
        _, scores, labels, ids = data
        one, other = (with_state(args, scores, labels, surrogate='hinge', per_example=kind) for kind in (True, False))
        found = value_and_gradient(one, scores, labels, ids=ids)
        assert_is(found, value_and_gradient(other, scores, labels))

    def test_a_call_may_have_both(self, args, data):
        """What it says of an example does not depend on whether the others are known."""
        loss, scores, labels, ids = data
        _, gradient = value_and_gradient(loss, scores, labels, ids=ids)
        _, of_known = value_and_gradient(loss, scores[:30], labels[:30], ids=ids[:30])
        fresh = copy.deepcopy(loss)
        fresh.examples.rows = {}
        _, of_new = value_and_gradient(fresh, scores, labels, ids=ids)
        positive = labels == 1
        torch.testing.assert_close(gradient[30:], of_new[30:])
        known = positive.clone()
        known[30:] = False
        ratio = gradient[known] / of_known[known[:30]]
        torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))

    def test_the_order_of_the_examples_does_not_matter(self, args, data):
        loss, scores, labels, ids = data
        order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
        value, gradient = value_and_gradient(loss, scores, labels, ids=ids)
        found = value_and_gradient(loss, scores[order], labels[order], ids=ids[order])
        assert_is((found[0], found[1]), (value, gradient[order].numpy()))


class TestSets:
    @each_measure
    def test_each_class_counts_alike_or_by_its_weight(self, args):
        scores, labels, _ = batch(n_classes=3)
        each = [SMeasureLoss(**args)(scores[:, c : c + 1], (labels == c).long()) for c in range(3)]
        torch.testing.assert_close(SMeasureLoss(**args)(scores, labels), sum(each) / 3)
        weighted = SMeasureLoss(**args, class_weight=[1.0, 0.0, 3.0])(scores, labels)
        torch.testing.assert_close(weighted, (each[0] + 3 * each[2]) / 4)
        torch.testing.assert_close(SMeasureLoss(**args, classes=[1, 2])(scores, labels), (each[1] + each[2]) / 2)

    def test_a_class_counts_once_it_was_seen(self):
        """Then its negatives count in batches without it."""
        scores, labels, _ = batch(n_classes=3)
        loss, without = SMeasureLoss(), labels % 2
        _, gradient = value_and_gradient(loss, scores, without)
        assert not gradient[:, 2].any()
        assert gradient[:, :2].any(0).all()
        loss.step()
        value_and_gradient(loss, scores, labels)
        loss.step()
        _, gradient = value_and_gradient(loss, scores, without)
        assert (gradient[:, 2] >= 0).all()
        assert gradient[:, 2].any()

    def test_all_classes_count_where_that_is_asked_for(self):
        scores, labels, _ = batch(n_classes=3)
        _, gradient = value_and_gradient(SMeasureLoss(classes='all'), scores, labels % 2)
        assert gradient[:, 2].any()

    @at_one_point
    @each_surrogate
    @pytest.mark.parametrize('per_example', [False, True])
    def test_batches_add_up_to_the_data_set(self, args, surrogate, per_example):
        """Each item has the weight in its batch that it has in the whole, however the positives fall on the batches."""
        if per_example and surrogate == 'logistic':
            return
        scores, labels, ids = batch(60)
        order = labels.argsort()  # the first batches have no positive
        loss = SMeasureLoss(**args, surrogate=surrogate, per_example=per_example)
        with torch.no_grad():
            call(loss, scores, labels, ids)
        n_pos = labels.sum()
        loss.state.counts = 1e12 * torch.stack([n_pos, 60 - n_pos]).double()[None]
        _, gradient = value_and_gradient(loss, scores, labels, ids=ids if per_example else None)
        for part in order.split(10):
            found = value_and_gradient(loss, scores[part], labels[part], ids=part if per_example else None)[1]
            torch.testing.assert_close(found / 6, gradient[part], rtol=1e-9, atol=0)

    @each_measure
    @each_surrogate
    def test_is_of_one_size_however_rare_the_positives(self, args, surrogate):
        """Where a true positive is paid more than 1, the loss is divided by it."""
        scores, labels, _ = batch(200, share=0.02)
        scores = 0.1 * scores + 0.5  # all are taken for positives
        value, gradient = value_and_gradient(SMeasureLoss(**args, surrogate=surrogate), scores, labels)
        assert abs(value) < 4
        assert gradient[labels == 0].sum() < 2 / math.log(2)

    def test_float32_stays_float32(self):
        scores, labels, ids = batch(dtype=torch.float32)
        for args in MEASURES.values():
            assert SMeasureLoss(**args)(scores, labels).dtype == torch.float32
        for args in AT_ONE_POINT.values():
            loss = SMeasureLoss(**args, per_example=True)
            for _ in range(2):
                assert loss(scores.requires_grad_(), labels, ids=ids).dtype == torch.float32
                loss.step()


def seen_and_stepped(loss, scores, labels, ids=None, **how):
    """A call that a gradient is taken of, and the step after it."""
    value_and_gradient(loss, scores, labels, ids=ids if loss.per_example else None)
    loss.step(**how)
    return loss


def start_of(loss):
    """Where multipliers begin, by what was seen."""
    positives, negatives = loss.state.counts[:, :1], loss.state.counts[:, 1:]
    r = torch.where(negatives > 0, negatives / positives.clamp(min=LITTLE), 1)
    return loss.problem.balance(r).clamp(max=MOST)


def assert_at_the_start(loss, query=slice(None)):
    for part in (loss.state.mu, loss.state.price):
        seen = loss.state.counts[query].sum(-1, keepdim=True) > 0  # else what it is has no meaning yet
        expected = start_of(loss)[query].where(seen, part[query])
        torch.testing.assert_close(part[query], expected, rtol=1e-12, atol=0)
    assert (loss.state.epsilon[query] == 1).all()
    assert not loss.state.threshold[query].any()


class TestCalls:
    @each_mode
    def test_do_not_change_what_a_loss_says(self, args, per_example):
        """But for what waits for the next step."""
        scores, labels, ids = batch()
        loss = SMeasureLoss(**args, per_example=per_example)
        for _ in range(2):
            before = None
            for _ in range(3):
                found = value_and_gradient(loss, scores, labels, ids=ids if per_example else None)
                kept = {k: v for k, v in loss.state.as_dict().items() if k != 'pending'}
                if before is not None:
                    assert found[0] == before[0]
                    assert torch.equal(found[1], before[1])
                    assert all(torch.equal(kept[name], before[2][name]) for name in kept)
                before = *found, {name: value.clone() for name, value in kept.items()}
            loss.step()

    @each_mode
    @pytest.mark.parametrize('how', ['no_grad', 'eval'])
    def test_that_nothing_is_to_be_learnt_from_are_not_learnt_from(self, args, per_example, how):
        scores, labels, ids = batch()
        loss = seen_and_stepped(SMeasureLoss(**args, per_example=per_example), scores, labels, ids)
        before = everything(loss)
        loss.train(how != 'eval')
        with torch.set_grad_enabled(how != 'no_grad'):
            call(loss, scores.clone().requires_grad_(), -labels + 1, ids + 100)
        assert all(same(*pair) for pair in zip(everything(loss), before, strict=True))

    @each_mode
    def test_of_parts_are_learnt_from_together(self, args, per_example):
        """As with gradients that are accumulated."""
        scores, labels, ids = batch()
        whole, parts = (SMeasureLoss(**args, per_example=per_example) for _ in range(2))
        for _ in range(3):
            value_and_gradient(whole, scores, labels, ids=ids if per_example else None)
            for part in (slice(11), slice(11, None)):
                value_and_gradient(parts, scores[part], labels[part], ids=ids[part] if per_example else None)
            whole.step()
            parts.step()
        for one, other in zip(everything(whole), everything(parts), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


class TestStep:
    @each_mode
    def test_without_a_call_nothing_is_done(self, args, per_example):
        scores, labels, ids = batch()
        loss = SMeasureLoss(**args, per_example=per_example)
        loss.step()
        assert loss.state is None
        with torch.no_grad():
            call(loss, scores, labels, ids)
        loss.step()
        assert_at_the_start(loss)

    @each_mode
    def test_twice_it_is_done_once(self, args, per_example):
        """What was seen before a step is not seen again by the next."""
        scores, labels, ids = batch()
        loss = seen_and_stepped(SMeasureLoss(**args, per_example=per_example), scores, labels, ids)
        before = loss.state.mu.clone(), loss.state.epsilon.clone(), loss.state.threshold.clone()
        loss.step()
        after = loss.state.mu, loss.state.epsilon, loss.state.threshold
        assert all(same(*pair) for pair in zip(before, after, strict=True))

    @each_mode
    def test_without_ascent_multipliers_stay(self, args, per_example):
        scores, labels, ids = batch()
        loss = SMeasureLoss(**args, per_example=per_example)
        for _ in range(3):
            seen_and_stepped(loss, scores, labels, ids, ascend=False)
            assert same(loss.state.mu, start_of(loss))
            assert same(loss.state.price, start_of(loss))
        loss.step()
        assert not same(loss.state.mu, start_of(loss))

    @each_mode
    @pytest.mark.parametrize('proxy', [True, False])
    def test_multipliers_go_where_they_should(self, args, per_example, proxy):
        """Up where the constraint is violated and down to 0, and not below, where it holds with room to spare."""
        labels, ids = torch.tensor([1] * 2 + [0] * 30), torch.arange(32)
        held = 30 * (2 * labels - 1).double().unsqueeze(1)
        found = -1 if args['measure'] in ('f_beta', 'precision_at_recall') else 1  # nothing is, or everything
        violated = found * held.abs() / 60
        steps = dict(momentum=0.0, eta_mu=0.2, eta_threshold=0.0)
        loss = SMeasureLoss(**args, per_example=per_example, proxy=proxy, **steps)
        for k in range(5):
            before = loss.state.mu.clone() if k else None
            seen_and_stepped(loss, violated, labels, ids)
            before = start_of(loss) if before is None else before
            assert (loss.state.mu > before).all() or (per_example and k)  # its violation is that of τ, which follow
        assert (loss.state.mu > start_of(loss)).all()
        for _ in range(1500):
            if args['measure'] == 'f_beta':
                loss.state.epsilon[:] = 2.0  # at a margin of 1 it can only just hold
            before = loss.state.mu.clone()
            seen_and_stepped(loss, held, labels, ids)
            assert ((loss.state.mu < before) | (before == 0)).all() or per_example
            assert (loss.state.mu >= 0).all()
            if not loss.state.mu.any():
                break
        assert not loss.state.mu.any()
        assert not loss.state.price.any()

    def test_margins_rise_where_positives_are_paid_for_more_than_they_cost(self):
        scores, labels, _ = batch()
        loss = seen_and_stepped(SMeasureLoss(), scores, labels)
        loss.state.price[:] = 1e3
        assert seen_and_stepped(loss, scores, labels).state.epsilon > 1
        loss.state.epsilon[:] = 1.05
        for _ in range(10):
            loss.state.price[:] = 0
            seen_and_stepped(loss, scores, labels)
        assert loss.state.epsilon == 1

    def test_of_measures_that_fix_it_the_margin_stays(self):
        scores, labels, ids = batch()
        for args, per_example in (case.values for case in MODES):
            if args['measure'] != 'f_beta':
                loss = SMeasureLoss(**args, per_example=per_example)
                for _ in range(5):
                    seen_and_stepped(loss, scores, labels, ids)
                assert (loss.state.epsilon == 1).all()

    def test_the_number_of_classes_stays(self):
        scores, labels, _ = batch(n_classes=3)
        loss = SMeasureLoss()
        loss(scores, labels)
        with pytest.raises(ValueError, match=r'`pred`.*for 3.*Found 4'):
            loss(torch.zeros(5, 4), torch.zeros(5).long())

    def test_reset_forgets(self):
        for args, per_example in (case.values for case in MODES):
            scores, labels, ids = batch()
            loss = seen_and_stepped(SMeasureLoss(**args, per_example=per_example), scores, labels, ids)
            loss.reset()
            assert_same_state(loss, SMeasureLoss(**args, per_example=per_example))
            loss(torch.zeros(5, 4), torch.zeros(5).long(), ids=torch.arange(5))


class TestPerExample:
    @at_one_point
    def test_comes_to_the_fixed_point(self, args):
        """With scores that stay: λ_i = w, what a true positive is paid, where z_i < ε; 0 where z_i > ε."""
        scores, labels, ids = batch(20, seed=3)
        loss = SMeasureLoss(**args, per_example=True, eta_mu=0.0, eta_epsilon=0.0, damping=0.5, eta_tau=0.1)
        seen_and_stepped(loss, torch.randn_like(scores), labels, ids)  # starts elsewhere
        loss.sizes = loss.sizes._replace(damping=1.0)
        for _ in range(400):
            loss.state.price = loss.state.mu.clone()
            seen_and_stepped(loss, scores, labels, ids)
        pay = loss.problem.prices(loss.state.mu, loss.state.rates().r)[0].item()
        epsilon = loss.state.epsilon.item()
        n_below = 0
        for key, row in loss.examples.rows.items():
            tau, lam, z = loss.examples.values[row, 0].tolist()
            assert labels[key] == 1
            assert z == scores[key, 0]
            assert tau == pytest.approx(min(epsilon, z), abs=5e-3)
            assert lam == pytest.approx(pay if z < epsilon else 0, abs=5e-3)
            n_below += z < epsilon
        assert n_below > 0
        assert n_below < labels.sum() or args['measure'] == 'f_beta'  # whose margin the projection raises

    @at_one_point
    def test_examples_that_are_not_seen_stay(self, args):
        scores, labels, ids = batch(40)
        loss = seen_and_stepped(SMeasureLoss(**args, per_example=True), scores, labels, ids)
        before = loss.examples.values.clone()
        for seed in range(5):
            moved = batch(20, seed=seed)[0]
            seen_and_stepped(loss, moved, labels[:20], ids[:20])
        unseen = [loss.examples.rows[key] for key in range(20, 40) if labels[key]]
        assert torch.equal(loss.examples.values[unseen], before[unseen])
        seen = [loss.examples.rows[key] for key in range(20) if labels[key]]
        assert not torch.equal(loss.examples.values[seen], before[seen])

    @at_one_point
    @pytest.mark.parametrize('proxy', [True, False])
    def test_no_tau_exceeds_the_margin_it_was_projected_with(self, args, proxy):
        loss = SMeasureLoss(**args, per_example=True, proxy=proxy, eta_tau=1.0, eta_epsilon=0.5)
        for seed in range(30):
            scores, labels, ids = batch(12, seed=seed)
            seen_and_stepped(loss, 3 * scores, labels, 5 * ids % 37)
            rows = [loss.examples.rows[key] for key in (5 * ids % 37)[labels == 1].tolist()]
            assert (loss.examples.values[rows, 0, 0] <= loss.state.epsilon).all()

    @pytest.mark.parametrize(
        ('ids', 'found'),
        [
            (None, 'None'),
            (torch.arange(4), r'int64 of shape \(4,\)'),
            (torch.arange(5).float(), 'float32'),
            (torch.arange(5).view(5, 1), r'\(5, 1\)'),
        ],
    )
    def test_ids_are_checked(self, ids, found):
        with pytest.raises(ValueError, match=f'`ids`.*`per_example=True`.*{found}'):
            SMeasureLoss(per_example=True)(torch.zeros(5, 1), torch.zeros(5).long(), ids=ids)

    def test_maps_have_no_ids(self):
        with pytest.raises(ValueError, match=r'`ids`.*\(2, 1, 3, 3\)'):
            SMeasureLoss(per_example=True)(torch.zeros(2, 1, 3, 3), torch.zeros(2, 3, 3).long(), ids=torch.arange(2))


class TestDegenerate:
    CALLS = {
        'no positives': lambda s, y: (s, torch.zeros_like(y)),
        'no negatives': lambda s, y: (s, torch.ones_like(y)),
        'nothing': lambda s, y: (s, torch.full_like(y, 255)),
        'no items': lambda s, y: (s[:0], y[:0]),
        'one item': lambda s, y: (s[:1], y[:1]),
        'all equal': lambda s, y: (0 * s, y),
        'perfect': lambda s, y: (s * 0 + 50 * (2 * y[:, None] - 1), y),
        'huge': lambda s, y: (1e30 * s, y),
        'huge, all wrong': lambda s, y: (s * 0 - 1e30 * (2 * y[:, None] - 1), y),
        'minute': lambda s, y: (1e-30 * s, y),
    }

    @each_mode
    @pytest.mark.parametrize('proxy', [True, False])
    @pytest.mark.parametrize('kind', CALLS)
    @pytest.mark.parametrize('first', [True, False])
    def test_calls_are_finite_and_leave_a_finite_state(self, args, per_example, proxy, kind, first):
        scores, labels, ids = batch(dtype=torch.float32)
        loss = SMeasureLoss(**args, per_example=per_example, proxy=proxy)
        if not first:
            seen_and_stepped(loss, scores, labels, ids)
        its_scores, its_labels = self.CALLS[kind](scores, labels)
        value, gradient = value_and_gradient(
            loss, its_scores, its_labels, ids=ids[: len(its_labels)] if per_example else None
        )
        assert math.isfinite(value)
        assert gradient.isfinite().all()
        assert kind not in ('nothing', 'no items') or value == 0
        loss.step()
        assert is_finite(loss)
        assert (loss.state.epsilon >= 1).all()
        # And then it learns as before.
        value, gradient = value_and_gradient(loss, scores, labels, ids=ids if per_example else None)
        assert math.isfinite(value)
        assert gradient.any()

    @each_mode
    @pytest.mark.parametrize('kind', ['no positives', 'no negatives', 'nothing'])
    def test_rates_that_were_not_seen_move_nothing(self, args, per_example, kind):
        scores, labels, ids = batch()
        its_scores, its_labels = self.CALLS[kind](scores, labels)
        loss = SMeasureLoss(**args, per_example=per_example)
        for _ in range(3):
            seen_and_stepped(loss, its_scores, its_labels, ids)
        assert_at_the_start(loss)

    @each_mode
    def test_of_a_class_that_is_never_seen_nothing_moves(self, args, per_example):
        scores, labels, ids = batch(n_classes=3)
        loss = SMeasureLoss(**args, per_example=per_example)
        for _ in range(3):
            seen_and_stepped(loss, scores, labels % 2, ids)
        assert_at_the_start(loss, 2)
        assert not same(loss.state.mu[:2], start_of(loss)[:2])
        assert is_finite(loss)

    @each_mode
    @pytest.mark.parametrize('proxy', [True, False])
    @pytest.mark.parametrize('poison', [math.nan, math.inf, -math.inf])
    def test_what_is_no_number_does_not_poison_the_state(self, args, per_example, proxy, poison):
        """Of a class that has it nothing is learnt; the loss says NaN or infinity."""
        scores, labels, ids = batch(n_classes=3, dtype=torch.float32)
        loss, other = (SMeasureLoss(**args, per_example=per_example, proxy=proxy) for _ in range(2))
        for each in (loss, other):
            seen_and_stepped(each, scores, labels, ids)
        poisoned = scores.clone()
        poisoned[5, 1] = poison
        value, _ = value_and_gradient(loss, poisoned, labels, ids=ids if per_example else None)
        assert math.isnan(value) or not math.isnan(poison)
        loss.step()
        assert is_finite(loss)
        found = value_and_gradient(loss, scores, labels, ids=ids if per_example else None)
        assert math.isfinite(found[0])
        assert found[1].isfinite().all()

    @each_mode
    @pytest.mark.parametrize('proxy', [True, False])
    def test_nothing_is_learnt_from_nan(self, args, per_example, proxy):
        scores, labels, ids = batch(dtype=torch.float32)
        loss = SMeasureLoss(**args, per_example=per_example, proxy=proxy)
        value_and_gradient(loss, scores * math.nan, labels, ids=ids if per_example else None)
        loss.step()
        assert not loss.state.counts.any()
        assert_at_the_start(loss)


LINEAR = AT_ONE_POINT | {'recall at precision': dict(measure='recall_at_precision', target=0.5)}
"""A precision of 0.6 has a multiplier of 10, which takes ten times as long to come to."""


def separate_points(seed=1, n_pos=20, n_neg=60):
    """Features of positives and negatives with a column of ones; far enough apart for the precision to be in reach."""
    rng = np.random.default_rng(seed)
    pos, neg = rng.normal(size=(n_pos, 3)), rng.normal(size=(n_neg, 3))
    pos[:, 0] += 2.5
    return [np.hstack([features, np.ones((len(features), 1))]) for features in (pos, neg)]


def train(loss, model, features, labels, n_steps, lr, ids=None, batches=None, decay=0.01):
    """Adam with a learning rate that falls to a hundredth, on the whole set or on batches of indices."""
    optimizer = torch.optim.Adam(model.parameters(), lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, decay, n_steps)
    for k in range(n_steps):
        part = slice(None) if batches is None else batches[k % len(batches)]
        optimizer.zero_grad()
        its_ids = None if ids is None else ids[part]
        loss(model(features[part]), labels[part], **({} if its_ids is None else dict(ids=its_ids))).backward()
        optimizer.step()
        schedule.step()
        if isinstance(loss, SMeasureLoss):
            loss.step()
    return loss


@pytest.mark.parametrize('args', LINEAR.values(), ids=LINEAR)
@pytest.mark.parametrize('per_example', [False, True])
class TestLinearProgram:
    """On small linear problems the Lagrangian comes to the optimum of problem (2), which SciPy solves.

    Adam's last steps are of 3e-5 on scores of about 1, the multipliers' of a thousandth: 1 % is what is asked for.
    """

    @pytest.fixture
    def trained(self, args, per_example):
        pos, neg = separate_points()
        features = torch.tensor(np.vstack([pos, neg]))
        labels = (torch.arange(len(features)) < len(pos)).long()
        model = nn.Linear(4, 1, bias=False, dtype=torch.float64)
        nn.init.zeros_(model.weight)
        loss = SMeasureLoss(**args, surrogate='hinge', proxy=False, per_example=per_example)
        ids = torch.arange(len(features)) if per_example else None
        train(loss, model, features, labels, 2000 if per_example else 1500, 3e-2, ids, decay=1e-3)
        return loss, model.weight.detach()[0].numpy(), pos, neg

    def test_is_solved(self, args, per_example, trained):
        loss, w, pos, neg = trained
        measure, target = args['measure'], args.get('target')
        program = reference.solve_lp(pos, neg, **args)
        epsilon, mu = loss.state.epsilon.item(), loss.state.mu.item()
        if measure == 'precision_at_recall':
            mu *= len(neg) / len(pos)  # the program's cost has false positives for each positive
        tau, phi = np.minimum(epsilon, pos @ w), np.maximum(0, epsilon + neg @ w)
        objective = {
            'f_beta': args.get('beta', 1.0) ** 2 * epsilon + phi.sum() / len(pos),
            'precision_at_recall': phi.sum() / len(pos),
            'recall_at_precision': 1 - tau.mean(),
        }[measure]
        violation = reference.rate_violation(tau, phi, measure, target)
        assert objective == pytest.approx(program.objective, rel=1e-2)
        assert violation <= 1e-2
        # Complementary slackness: the price of the constraint is paid in full.
        assert abs(mu * violation) <= 1e-2 * program.objective
        # The multiplier is that of the program, and with F_β the optimal value itself. Others are the slope of the
        # value in the target, which has steps: they take longer.
        assert mu == pytest.approx(program.mu, rel=0.02 if measure == 'f_beta' else 0.15)
        if per_example:
            found = loss.examples.values[[loss.examples.rows[i] for i in range(len(pos))], 0].numpy()
            tau, lam, z = found.T
            paid, _ = loss.problem.prices(loss.state.mu, loss.state.rates().r)
            assert (tau <= epsilon).all()
            assert (tau - z).mean() <= 1e-2
            assert (lam >= 0).all()
            assert np.abs(lam * (tau - z)).mean() <= 2e-2 * paid.item()
            assert np.abs((paid.item() - lam) * (epsilon - tau)).mean() <= 2e-2 * paid.item()


def imbalanced(seed=0, n=4000, share=0.05, n_features=6):
    """A class of three modes among many more others, which it overlaps."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(n, generator=generator) < share).long()
    modes = torch.randn(3, n_features, generator=generator)
    modes = 2.4 * modes / modes.norm(dim=1, keepdim=True)
    features = torch.randn(n, n_features, generator=generator)
    return features + labels.unsqueeze(1) * modes[torch.randint(0, 3, (n,), generator=generator)], labels


def network(n_features=6, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(n_features, 16), nn.ReLU(), nn.Linear(16, 1))


class TestConstraints:
    @staticmethod
    def precision_and_recall(n_steps, **args):
        features, labels = imbalanced()
        model = network()
        train(SMeasureLoss(**args), model, features, labels, n_steps, 0.02)
        with torch.no_grad():
            scores = model(features)[:, 0]
        return reference.precision_recall(scores.tolist(), labels.tolist())

    def test_of_a_recall_holds(self):
        precision, recall = self.precision_and_recall(1000, measure='precision_at_recall', target=0.9)
        assert recall == pytest.approx(0.9, abs=0.01)
        assert precision > 0.2  # 0.05 is that of chance

    def test_of_a_precision_holds(self):
        precision, recall = self.precision_and_recall(1000, measure='recall_at_precision', target=0.6)
        assert precision == pytest.approx(0.6, abs=0.01)
        assert recall > 0.4

    def test_of_the_bound_of_a_recall_is_far_from_the_recall(self):
        """Why multipliers follow the true rates."""
        precision, recall = self.precision_and_recall(500, measure='precision_at_recall', target=0.9, proxy=False)
        assert recall > 0.95
        assert precision < 0.2


class TestAreaUnderRoc:
    def test_operating_points_and_area(self):
        """Each threshold has the false positive rate that is asked for, or less where its multiplier is 0."""
        features, labels = imbalanced(n=2000)
        model, anchors = network(), 3
        loss = SMeasureLoss('auc_roc', anchors=anchors)
        train(loss, model, features, labels, 500, 0.02)
        pairwise = network()
        train(lambda z, y: F.softplus(z[y == 0, 0] - z[y == 1]).mean(), pairwise, features, labels, 500, 0.02)
        areas = []
        for each in (model, pairwise):
            with torch.no_grad():
                z = each(features)[:, 0]
            areas.append((z[labels == 1, None] > z[labels == 0]).double().mean().item())
        assert areas[1] > 0.9
        assert areas[0] == pytest.approx(areas[1], abs=0.01)
        with torch.no_grad():
            negatives = model(features)[labels == 0]
        shares = (negatives > loss.state.threshold[0]).double().mean(0)
        grid = (torch.arange(anchors) + 0.5) / anchors
        binding = loss.state.mu[0] > 0.05
        assert (shares <= grid + 0.02).all()
        assert binding.any()
        assert ((shares - grid).abs() <= 0.03)[binding].all()
        assert (loss.state.threshold[0].diff() < 0).all()


class TestNoNaN:
    """The logs of the paper's code are NaN from the second of 40 epochs on."""

    @each_mode
    def test_over_40_epochs_beside_cross_entropy(self, args, per_example):
        features, labels = imbalanced(n=120, share=0.2)
        batches = torch.arange(120).split(40)
        for alpha in (1e-4, 1e-3, 1e-2, 1e-1, 1.0):
            model = network()
            loss = SMeasureLoss(**args, per_example=per_example, loss_weight=alpha)
            optimizer = torch.optim.Adam(model.parameters(), 1e-2)
            for _ in range(40):
                for part in batches:
                    scores = model(features[part])
                    value = F.binary_cross_entropy_with_logits(scores[:, 0], labels[part].float())
                    value = value + call(loss, scores, labels[part], part)
                    optimizer.zero_grad()
                    value.backward()
                    optimizer.step()
                    loss.step(ascend=not per_example or part[0] == 80)  # once in an epoch, as the paper has it
                    assert value.isfinite()
            assert all(weights.isfinite().all() for weights in model.parameters())
            assert is_finite(loss)
            with torch.no_grad():
                assert ((model(features)[:, 0] > 0) == (labels == 1)).double().mean() > 0.6

    @each_mode
    @pytest.mark.parametrize('proxy', [True, False])
    def test_where_the_target_is_out_of_reach(self, args, per_example, proxy):
        """Features say nothing of the class."""
        labels = (torch.arange(80) % 4 == 0).long()
        features = torch.randn(80, 2, generator=torch.Generator().manual_seed(0))
        args = args | (dict(target=0.999) if 'target' in args else {})
        model = nn.Linear(2, 1)
        loss = SMeasureLoss(**args, per_example=per_example, proxy=proxy)
        train(loss, model, features, labels, 200, 0.1, torch.arange(80) if per_example else None)
        assert all(weights.isfinite().all() for weights in model.parameters())
        assert is_finite(loss)


class TestCheckpoint:
    @staticmethod
    def run(loss, model, optimizer, steps):
        features, labels = imbalanced(n=200, share=0.3)
        for k in steps:
            part = torch.randperm(200, generator=torch.Generator().manual_seed(k))[:25]
            optimizer.zero_grad()
            call(loss, model(features[part]), labels[part], 3 * part).backward()
            optimizer.step()
            loss.step(ascend=k % 3 > 0)

    @staticmethod
    def fresh(args, per_example):
        model = network()
        return SMeasureLoss(**args, per_example=per_example), model, torch.optim.SGD(model.parameters(), 0.1, 0.9)

    @each_mode
    def test_resumed_is_uninterrupted(self, args, per_example):
        whole = self.fresh(args, per_example)
        self.run(*whole, range(40))
        first, second = (self.fresh(args, per_example) for _ in range(2))
        self.run(*first, range(20))
        file = io.BytesIO()
        torch.save([part.state_dict() for part in first], file)
        file.seek(0)
        self.run(*second, range(3))  # what it has been before does not matter
        for part, state in zip(second, torch.load(file, weights_only=True), strict=True):
            part.load_state_dict(state)
        assert_same_state(first[0], second[0])
        self.run(*second, range(20, 40))
        assert_same_state(whole[0], second[0])
        for one, other in zip(whole[1].parameters(), second[1].parameters(), strict=True):
            assert torch.equal(one, other)

    @each_mode
    @pytest.mark.parametrize('duplicate', [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))])
    def test_copies_go_on_alone(self, args, per_example, duplicate):
        loss, model, optimizer = self.fresh(args, per_example)
        self.run(loss, model, optimizer, range(5))
        other, before = duplicate(loss), everything(loss)
        assert_same_state(loss, other)
        self.run(other, model, optimizer, range(5, 8))
        assert all(same(*pair) for pair in zip(everything(loss), before, strict=True))
        assert not torch.equal(loss.state.mu, other.state.mu)

    @each_mode
    def test_a_model_trained_with_another_loss_loads(self, args, per_example):
        scores, labels, ids = batch()
        loss = SMeasureLoss(**args, per_example=per_example)
        model = nn.ModuleDict(dict(head=nn.Linear(2, 2), loss=loss))
        other = nn.ModuleDict(dict(head=nn.Linear(2, 2), loss=nn.CrossEntropyLoss()))
        assert not model.load_state_dict(other.state_dict()).missing_keys
        seen_and_stepped(loss, scores, labels, ids)
        before = everything(loss)
        model.load_state_dict(other.state_dict())
        assert all(same(*pair) for pair in zip(everything(loss), before, strict=True))
        assert list(other.load_state_dict(model.state_dict(), strict=False).unexpected_keys) == ['loss._extra_state']

    @each_mode
    def test_before_the_first_call(self, args, per_example):
        loss, other = (SMeasureLoss(**args, per_example=per_example) for _ in range(2))
        other.load_state_dict(loss.state_dict())
        scores, labels, ids = batch()
        for each in (loss, other):
            seen_and_stepped(each, scores, labels, ids)
        assert_same_state(loss, other)

    @each_mode
    def test_the_type_of_the_module_is_not_that_of_its_state(self, args, per_example):
        scores, labels, ids = batch()
        loss, same = (SMeasureLoss(**args, per_example=per_example) for _ in range(2))
        seen_and_stepped(same, scores, labels, ids)
        seen_and_stepped(same, scores, labels, ids)
        seen_and_stepped(loss.half(), scores, labels, ids)
        seen_and_stepped(loss.bfloat16().float(), scores, labels, ids)
        assert_same_state(loss, same)

    def test_nothing_of_it_is_a_parameter_of_the_network(self):
        """Or an optimizer, a weight decay, a clipped norm or a moving average would take hold of it."""
        scores, labels, ids = batch()
        for args, per_example in (case.values for case in MODES):
            loss = seen_and_stepped(SMeasureLoss(**args, per_example=per_example), scores, labels, ids)
            assert not list(loss.parameters())
            assert not list(loss.buffers())


class TestRunner:
    @pytest.fixture
    def hub(self):
        hub = MessageHub.get_instance(str(uuid4()))
        hub.update_info('loop_stage', 'train')
        return hub

    @staticmethod
    def logged(hub, name):
        return hub.get_scalar(f'train/{name}').current()

    @pytest.mark.parametrize('iteration', ['first', 'second'])
    def test_logs_the_measure_and_the_violation(self, hub, iteration):
        scores, labels, _ = batch(60)
        z, y = scores[:, 0].tolist(), labels.tolist()
        precision, recall = reference.precision_recall(z, y)
        both = dict(precision=precision, recall=recall)
        for args, expected in (
            (dict(measure='f_beta', beta=2.0), dict(f_beta=reference.f_beta(z, y, 2.0), violation=1 - recall)),
            (dict(measure='precision_at_recall', target=0.8), dict(**both, violation=0.8 - recall)),
            (dict(measure='recall_at_precision', target=0.8), dict(**both, violation=0.8 - precision)),
            (dict(measure='auc_roc', anchors=1), dict(auc_roc=reference.auc_roc(z, y))),
            (dict(measure='auc_pr', anchors=1), dict(violation=0.5 - precision)),
        ):
            loss = SMeasureLoss(**args, loss_name='loss_mine', loss_weight=3.0, eta_epsilon=0.0, eta_threshold=0.0)
            for _ in range(1 if iteration == 'first' else 2):
                seen_and_stepped(loss, scores, labels)
            for name, value in expected.items():
                # An area is counted in 4096 cells, where scores nearer than one in a hundred are ties.
                tolerance = 5e-3 if name == 'auc_roc' else 1e-9
                found = hub.log_scalars[f'train/loss_mine_{name}'].data[0][-1]
                assert found == pytest.approx(value, abs=tolerance), (args, name)

    def test_logs_the_mean_of_the_classes_that_are_present(self, hub):
        scores, labels, _ = batch(60, n_classes=3)
        labels = labels % 2
        SMeasureLoss()(scores.requires_grad_(), labels)
        each = [reference.f_beta(scores[:, c].tolist(), (labels == c).tolist()) for c in range(2)]
        assert self.logged(hub, 'loss_s_measure_f_beta') == pytest.approx(sum(each) / 2)

    def test_logs_nothing_of_nothing_and_nothing_unless_it_trains(self, hub):
        scores, labels, _ = batch()
        SMeasureLoss()(scores.requires_grad_(), torch.full_like(labels, 255))
        SMeasureLoss().eval()(scores, labels)
        with torch.no_grad():
            SMeasureLoss()(scores, labels)
        assert not hub.log_scalars

    @each_mode
    def test_steps_once_in_each_iteration(self, hub, args, per_example):
        """Before what the next has to say, and however often it is called in one."""
        scores, labels, ids = batch()
        loss, by_hand = (SMeasureLoss(**args, per_example=per_example) for _ in range(2))
        by_hand.follows_runner = False
        for iteration in range(4):
            hub.update_info('iter', iteration)
            for part in (slice(11), slice(11, None)):
                for each in (loss, by_hand):
                    found = scores[part].clone().requires_grad_()
                    call(each, found, labels[part], ids[part])
            if iteration < 3:
                by_hand.step()
        assert_same_state_but_for_pending(loss, by_hand)

    def test_begins_anew_with_a_training(self, hub):
        scores, labels, _ = batch()
        loss = seen_and_stepped(SMeasureLoss(), scores, labels)
        hub.update_info('iter', 0)
        found = loss(scores.clone().requires_grad_(), labels)
        assert not loss.state.counts.any()
        torch.testing.assert_close(found.detach(), SMeasureLoss()(scores, labels))

    def test_goes_on_where_one_is_resumed(self, hub):
        """With the step that was yet to come when it was saved."""
        scores, labels, _ = batch()
        loss, other = SMeasureLoss(), SMeasureLoss()
        hub.update_info('iter', 6)
        loss(scores.clone().requires_grad_(), labels)
        other.load_state_dict(copy.deepcopy(loss.state_dict()))
        hub.update_info('iter', 7)
        for each in (loss, other):
            each(scores.clone().requires_grad_(), labels)
        assert (loss.state.mu != 1).any()
        assert_same_state(loss, other)


def assert_same_state_but_for_pending(loss, other):
    """The last step of one is yet to come."""
    for each in (loss, other):
        if each.state.pending.any():
            each.step()
    assert_same_state(loss, other)


class TestSettings:
    def test_are_shown(self):
        shown = repr(SMeasureLoss('precision_at_recall', target=0.9))
        expected = "measure='precision_at_recall', target=0.9, surrogate='logistic', proxy=True, per_example=False"
        assert shown == f"SMeasureLoss({expected}, scope='batch')"
        assert 'beta=2.0' in repr(SMeasureLoss(beta=2.0))

    def test_of_examples_are_those_of_the_paper_by_default(self):
        loss = SMeasureLoss(per_example=True)
        assert (loss.surrogate, loss.proxy) == ('hinge', False)
        assert (SMeasureLoss().surrogate, SMeasureLoss().proxy) == ('logistic', True)
        assert SMeasureLoss(per_example=True, proxy=True).proxy

    @pytest.mark.parametrize(
        ('args', 'error', 'message'),
        [
            (dict(measure='dice'), ValueError, "`measure`.*'dice'"),
            (dict(beta=-1.0), ValueError, '`beta`.*-1.0'),
            (dict(measure='precision_at_recall'), ValueError, '`target`.*None'),
            (dict(measure='auc_pr', anchors=0), ValueError, '`anchors`.*0'),
            (dict(surrogate='square'), ValueError, "`surrogate`.*'square'"),
            (dict(per_example=True, surrogate='logistic'), ValueError, "`per_example`.*hinge.*'logistic'"),
            (dict(per_example=True, measure='auc_roc'), ValueError, "`per_example`.*'auc_roc'"),
            (dict(per_example=1), TypeError, '`per_example`.*1'),
            (dict(proxy='no'), TypeError, "`proxy`.*'no'"),
            (dict(scope='image'), ValueError, "`scope`.*'image'"),
            (dict(scope='epoch'), ValueError, "`scope`.*'epoch'"),
            (dict(classes='some'), ValueError, "`classes`.*'some'"),
            (dict(class_weight=[-1.0]), ValueError, '`class_weight`.*-1.0'),
            (dict(eta_mu=-1.0), ValueError, '`eta_mu`.*-1.0'),
            (dict(eta_lambda='fast'), TypeError, "`eta_lambda`.*'fast'"),
            (dict(damping=math.inf), ValueError, '`damping`.*inf'),
            (dict(momentum=1.0), ValueError, '`momentum`.*1.0'),
            (dict(use_sigmoid=False), TypeError, '`use_sigmoid`'),
            (dict(gamma=2.0), TypeError, '`gamma`'),
        ],
    )
    def test_mistakes_are_found_at_construction(self, args, error, message):
        with pytest.raises(error, match=message):
            SMeasureLoss(**args)

    def test_items_have_no_loss_of_their_own(self):
        with pytest.raises(ValueError, match=r'`reduction_override`.*"none"'):
            SMeasureLoss()(*batch()[:2], reduction_override='none')

    def test_label_0_of_a_single_class_of_mmdetection(self):
        scores, labels, _ = batch()
        expected = SMeasureLoss()(scores, labels)
        torch.testing.assert_close(SMeasureLoss(use_sigmoid=True)(scores, 1 - labels), expected)

"""The Lagrangian written out, and what training on it comes to: the optimum of the linear program."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from reference import s_measures as reference
from s_measure_scenes import (
    AT_ONE_POINT,
    at_one_point,
    batch,
    call,
    each_measure,
    each_mode,
    each_surrogate,
    imbalanced,
    is_finite,
    network,
    seen_and_stepped,
    value_and_gradient,
    with_variables,
)
from torch import nn

from mmseg_nondecomp.losses.s_measure_loss import SMeasureLoss


def lagrangian(args, scores, positive, negative, epsilon, threshold, mu, surrogate):
    """L of one query at each operating point and its gradient for the scores, [K] and [K, n], as a sum over i.

    Divided by what is paid for a true positive where that is above 1. Scores and the weights of items as positives
    and negatives are of shape [n], the variables of shape [K].
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
    loss = with_variables(SMeasureLoss(**args, **kwargs), scores, labels)
    generator = torch.Generator().manual_seed(seed)
    state = loss.state
    state.counts += 1e-9  # next to nothing, but its multipliers have started
    state.mu = state.damped_mu = 3 * torch.rand(state.mu.shape, generator=generator, dtype=torch.float64)
    if args['measure'] == 'f_beta':
        state.epsilon = 1 + torch.rand(state.mu.shape, generator=generator, dtype=torch.float64)
    if 'anchors' in args:
        state.threshold = torch.randn(state.mu.shape, generator=generator, dtype=torch.float64)
    return loss


def expected_of(loss, args, scores, positive, negative):
    queries = zip(*(part.numpy() for part in (scores, positive, negative)), strict=True)
    state = [part.numpy() for part in (loss.state.epsilon, loss.state.threshold, loss.state.damped_mu)]
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
def test_value_and_gradient_are_those_of_the_lagrangian_for_any_margins_and_multipliers(args, surrogate):
    """Those of a first call in all layouts are compared with their definition in tests/hard_use/test_contract.py."""
    scores, labels, _ = batch(n_classes=3)
    labels[-4:] = 3  # none of them
    generator = torch.Generator().manual_seed(3)
    shares = torch.rand(30, 3, generator=generator, dtype=torch.float64)
    weight = 2 * torch.rand(30, generator=generator, dtype=torch.float64)
    weight[::7] = 0
    one_hot = F.one_hot(labels, 4)[:, :3].double()
    for target, positive, mass in ((labels, one_hot, None), (shares, shares, weight)):
        loss = with_state(args, scores, target, surrogate=surrogate, loss_weight=0.3, mode='multilabel')
        value, gradient = value_and_gradient(loss, scores, target, mass)
        mass = torch.ones(30, 1) if mass is None else mass[:, None]
        masses = ((mass * part).T.double() for part in (positive, 1 - positive))
        assert_is((value / 0.3, gradient.T / 0.3), expected_of(loss, args, scores.T, *masses))


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
        eps, mu, n_pos = loss.state.epsilon.item(), loss.state.damped_mu.item(), positive.sum()
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

    def test_of_new_examples_is_the_first_form_and_their_order_does_not_matter(self, args, data):
        """(3) is (4) at its least over τ, and that is where an example begins."""
        loss, scores, labels, ids = data
        one, other = (with_state(args, scores, labels, surrogate='hinge', per_example=kind) for kind in (True, False))
        assert_is(value_and_gradient(one, scores, labels, ids=ids), value_and_gradient(other, scores, labels))
        order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
        value, gradient = value_and_gradient(loss, scores, labels, ids=ids)
        found = value_and_gradient(loss, scores[order], labels[order], ids=ids[order])
        assert_is(found, (value, gradient[order]))

    def test_a_call_may_have_both(self, args, data):
        """The gradient of an example does not depend on whether the table has the others."""
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


class TestSets:
    def test_a_class_counts_once_it_was_seen_or_from_the_start_where_that_is_asked_for(self):
        """Then its negatives count in batches without it."""
        scores, labels, _ = batch(n_classes=3)
        loss, without = SMeasureLoss(), labels % 2
        assert value_and_gradient(SMeasureLoss(classes='all'), scores, without)[1][:, 2].any()
        _, gradient = value_and_gradient(loss, scores, without)
        assert gradient.any(0).tolist() == [True, True, False]
        loss.step()
        seen_and_stepped(loss, scores, labels)
        _, gradient = value_and_gradient(loss, scores, without)
        assert (gradient[:, 2] >= 0).all()
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
        loss = with_variables(SMeasureLoss(**args, surrogate=surrogate, per_example=per_example), scores, labels)
        n_pos = labels.sum()
        loss.state.counts = 1e12 * torch.stack([n_pos, 60 - n_pos]).double()[None]
        _, gradient = value_and_gradient(loss, scores, labels, ids=ids)
        for part in order.split(10):
            found = value_and_gradient(loss, scores[part], labels[part], ids=part)[1]
            torch.testing.assert_close(found / 6, gradient[part], rtol=1e-9, atol=0)

    @each_measure
    @each_surrogate
    def test_has_one_size_for_any_number_of_positives(self, args, surrogate):
        """The loss is divided by the weight of the true positive rate where that is above 1."""
        scores, labels, _ = batch(200, share=0.02)
        scores = 0.1 * scores + 0.5  # all are taken for positives
        value, gradient = value_and_gradient(SMeasureLoss(**args, surrogate=surrogate), scores, labels)
        assert abs(value) < 4
        assert gradient[labels == 0].sum() < 2 / math.log(2)

    @at_one_point
    def test_float32_stays_float32_per_example(self, args):
        scores, labels, ids = batch(dtype=torch.float32)
        loss = SMeasureLoss(**args, per_example=True)
        for _ in range(2):
            assert loss(scores.requires_grad_(), labels, ids=ids).dtype == torch.float32
            loss.step()


@pytest.mark.parametrize(
    ('ids', 'found'),
    [
        (None, 'None'),
        (torch.arange(4), r'int64 of shape \(4,\)'),
        (torch.arange(5).float(), 'float32'),
        (torch.arange(5).view(5, 1), r'\(5, 1\)'),
    ],
)
def test_ids_are_checked_and_maps_have_none(ids, found):
    with pytest.raises(ValueError, match=f'`ids`.*`per_example=True`.*{found}'):
        SMeasureLoss(per_example=True)(torch.zeros(5, 1), torch.zeros(5).long(), ids=ids)
    with pytest.raises(ValueError, match=r'`ids`.*\(2, 1, 3, 3\)'):
        SMeasureLoss(per_example=True)(torch.zeros(2, 1, 3, 3), torch.zeros(2, 3, 3).long(), ids=torch.arange(2))


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
            paid, _ = loss.problem.weights(loss.state.mu, loss.state.rates().r)
            assert (tau <= epsilon).all()
            assert (tau - z).mean() <= 1e-2
            assert (lam >= 0).all()
            assert np.abs(lam * (tau - z)).mean() <= 2e-2 * paid.item()
            assert np.abs((paid.item() - lam) * (epsilon - tau)).mean() <= 2e-2 * paid.item()


@pytest.mark.parametrize(
    ('n_steps', 'args', 'held', 'other_is_above', 'precision_is_below'),
    [
        (1000, dict(measure='precision_at_recall', target=0.9), ('recall', 0.9), 0.2, 1),  # 0.05 is that of chance
        (1000, dict(measure='recall_at_precision', target=0.6), ('precision', 0.6), 0.4, 1),
        # Why multipliers follow the true rates: their bound is far from the recall.
        (500, dict(measure='precision_at_recall', target=0.9, proxy=False), ('recall', 0.975), 0, 0.2),
    ],
)
def test_constraints_hold_of_the_true_rates(n_steps, args, held, other_is_above, precision_is_below):
    features, labels = imbalanced()
    model = network()
    train(SMeasureLoss(**args), model, features, labels, n_steps, 0.02)
    with torch.no_grad():
        scores = model(features)[:, 0]
    precision, recall = reference.precision_recall(scores.tolist(), labels.tolist())
    assert precision < precision_is_below
    found = dict(precision=precision, recall=recall)
    name, target = held
    assert found.pop(name) == pytest.approx(target, abs=0.01 if precision_is_below == 1 else 0.025)
    assert min(found.values()) > other_is_above


def test_operating_points_and_area_under_the_roc_curve():
    """Each threshold has the false positive rate that is asked for, or less where its multiplier is 0."""
    features, labels = imbalanced(n=2000)
    model, pairwise, anchors = network(), network(), 3
    loss = SMeasureLoss('auc_roc', anchors=anchors)
    train(loss, model, features, labels, 500, 0.02)
    train(lambda z, y: F.softplus(z[y == 0, 0] - z[y == 1]).mean(), pairwise, features, labels, 500, 0.02)
    with torch.no_grad():
        of_pairwise, z = pairwise(features)[:, 0], model(features)[:, 0]
    area, expected = ((each[labels == 1, None] > each[labels == 0]).double().mean() for each in (z, of_pairwise))
    assert expected > 0.9
    assert area.item() == pytest.approx(expected.item(), abs=0.01)
    shares = (z[labels == 0, None] > loss.state.threshold[0]).double().mean(0)
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


class TestLog:
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
                # An area is counted in 4096 bins, where scores nearer than one in a hundred are ties.
                tolerance = 5e-3 if name == 'auc_roc' else 1e-9
                found = hub.log_scalars[f'train/loss_mine_{name}'].data[0][-1]
                assert found == pytest.approx(value, abs=tolerance), (args, name)

    def test_logs_the_mean_of_the_classes_that_are_present_and_only_while_it_trains(self, hub):
        scores, labels, _ = batch(60, n_classes=3)
        SMeasureLoss()(scores.requires_grad_(), torch.full_like(labels, 255))
        SMeasureLoss().eval()(scores, labels)
        with torch.no_grad():
            SMeasureLoss()(scores, labels)
        assert not hub.log_scalars
        labels = labels % 2
        SMeasureLoss()(scores, labels)
        each = [reference.f_beta(scores[:, c].tolist(), (labels == c).tolist()) for c in range(2)]
        assert hub.get_scalar('train/loss_s_measure_f_beta').current() == pytest.approx(sum(each) / 2)


class TestSettings:
    def test_are_shown_and_of_examples_those_of_the_paper_by_default(self):
        shown = "measure='precision_at_recall', beta=1.0, target=0.9, surrogate='logistic', proxy=True"
        expected = f"SMeasureLoss({shown}, per_example=False, scope='batch')"
        assert repr(SMeasureLoss('precision_at_recall', target=0.9)) == expected
        loss = SMeasureLoss(per_example=True)
        assert (loss.surrogate, loss.proxy) == ('hinge', False)
        assert SMeasureLoss(per_example=True, proxy=True).proxy

    @pytest.mark.parametrize(
        ('args', 'error', 'message'),
        [
            (dict(measure='dice'), ValueError, "`measure`.*'dice'"),
            (dict(measure='precision_at_recall'), ValueError, '`target`.*None'),
            (dict(per_example=True, surrogate='logistic'), ValueError, "`per_example`.*hinge.*'logistic'"),
            (dict(per_example=True, measure='auc_roc'), ValueError, "`per_example`.*'auc_roc'"),
            (dict(classes='some'), ValueError, "`classes`.*'some'"),
        ],
    )
    def test_mistakes_are_found_at_construction(self, args, error, message):
        with pytest.raises(error, match=message):
            SMeasureLoss(**args)

    def test_items_have_no_loss_of_their_own(self):
        with pytest.raises(ValueError, match=r'`reduction_override`.*"none"'):
            SMeasureLoss()(*batch()[:2], reduction_override='none')

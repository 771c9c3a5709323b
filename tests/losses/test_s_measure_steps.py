"""Margins, thresholds, τ and multipliers: when they move and where to, and that they survive a checkpoint."""

import copy
import io
import math
import pickle

import pytest
import torch
from s_measure_scenes import (
    MODES,
    batch,
    call,
    each_mode,
    imbalanced,
    is_finite,
    network,
    seen_and_stepped,
    value_and_gradient,
)
from torch import nn

from mmseg_nondecomp.functional.s_measures.multipliers import MIN_COUNT
from mmseg_nondecomp.functional.s_measures.problem import MAX_MULTIPLIER
from mmseg_nondecomp.losses.s_measure_loss import SMeasureLoss


def everything(loss):
    parts = [value for part in loss.get_extra_state().values() for value in part.values()]
    return [part.clone() for part in parts]


def same(one, other):
    """Bit for bit, where NaN stands for an example that is no positive of a class."""
    return torch.equal(one.nan_to_num(nan=1e300), other.nan_to_num(nan=1e300))


def assert_same_state(loss, other):
    assert all(same(*pair) for pair in zip(everything(loss), everything(other), strict=True))


def start_of(loss):
    positives, negatives = loss.state.counts[:, :1], loss.state.counts[:, 1:]
    r = torch.where(negatives > 0, negatives / positives.clamp(min=MIN_COUNT), 1)
    return loss.problem.balance(r).clamp(max=MAX_MULTIPLIER)


def assert_at_the_start(loss, query=slice(None)):
    for part in (loss.state.mu, loss.state.damped_mu):
        seen = loss.state.counts[query].sum(-1, keepdim=True) > 0  # else what it is has no meaning yet
        expected = start_of(loss)[query].where(seen, part[query])
        torch.testing.assert_close(part[query], expected, rtol=1e-12, atol=0)
    assert (loss.state.epsilon[query] == 1).all()
    assert not loss.state.threshold[query].any()


class TestCalls:
    @each_mode
    def test_do_not_change_the_loss(self, args, per_example):
        """Except for the pending sums of the next step."""
        scores, labels, ids = batch()
        loss = SMeasureLoss(**args, per_example=per_example)
        for _ in range(2):
            calls = []
            for _ in range(3):
                value, gradient = value_and_gradient(loss, scores, labels, ids=ids)
                kept = [part.clone() for name, part in loss.state.as_dict().items() if name != 'pending']
                calls.append([torch.tensor(value), gradient, *kept])
            assert all(torch.equal(*pair) for each in calls for pair in zip(calls[0], each, strict=True))
            loss.step()

    @each_mode
    @pytest.mark.parametrize('how', ['no_grad', 'eval'])
    def test_in_evaluation_or_without_gradient_change_nothing(self, args, per_example, how):
        scores, labels, ids = batch()
        loss = seen_and_stepped(SMeasureLoss(**args, per_example=per_example), scores, labels, ids)
        before = everything(loss)
        loss.train(how != 'eval')
        with torch.set_grad_enabled(how != 'no_grad'):
            call(loss, scores.clone().requires_grad_(), -labels + 1, ids + 100)
        assert all(same(*pair) for pair in zip(everything(loss), before, strict=True))

    @each_mode
    def test_of_parts_are_counted_together(self, args, per_example):
        """As with gradients that are accumulated."""
        scores, labels, ids = batch()
        whole, parts = (SMeasureLoss(**args, per_example=per_example) for _ in range(2))
        for _ in range(3):
            value_and_gradient(whole, scores, labels, ids=ids)
            for part in (slice(11), slice(11, None)):
                value_and_gradient(parts, scores[part], labels[part], ids=ids[part])
            whole.step()
            parts.step()
        for one, other in zip(everything(whole), everything(parts), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


class TestStep:
    @each_mode
    def test_without_a_call_nothing_is_done_and_twice_it_is_done_once(self, args, per_example):
        """The items before a step do not count again in the next."""
        scores, labels, ids = batch()
        loss = SMeasureLoss(**args, per_example=per_example)
        loss.step()
        assert loss.state is None
        with torch.no_grad():
            call(loss, scores, labels, ids)
        loss.step()
        assert loss.state is None
        state = seen_and_stepped(loss, scores, labels, ids).state
        before = state.mu.clone(), state.epsilon.clone(), state.threshold.clone()
        loss.step()
        assert all(same(*pair) for pair in zip(before, (state.mu, state.epsilon, state.threshold), strict=True))

    @each_mode
    def test_without_ascent_multipliers_stay(self, args, per_example):
        scores, labels, ids = batch()
        loss = SMeasureLoss(**args, per_example=per_example)
        for _ in range(3):
            seen_and_stepped(loss, scores, labels, ids, ascend=False)
            assert same(loss.state.mu, start_of(loss))
            assert same(loss.state.damped_mu, start_of(loss))
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
        assert not loss.state.damped_mu.any()

    def test_margins_rise_where_true_positives_weigh_more_than_they_cost_but_stay_where_they_are_fixed(self):
        scores, labels, ids = batch()
        loss = seen_and_stepped(SMeasureLoss(), scores, labels)
        loss.state.damped_mu[:] = 1e3
        assert seen_and_stepped(loss, scores, labels).state.epsilon > 1
        loss.state.epsilon[:] = 1.05
        for _ in range(10):
            loss.state.damped_mu[:] = 0
            seen_and_stepped(loss, scores, labels)
        assert loss.state.epsilon == 1
        for args, per_example in (case.values for case in MODES if case.values[0]['measure'] != 'f_beta'):
            loss = SMeasureLoss(**args, per_example=per_example)
            for _ in range(5):
                seen_and_stepped(loss, scores, labels, ids)
            assert (loss.state.epsilon == 1).all()

    @each_mode
    def test_the_number_of_classes_stays_until_a_reset_which_forgets_all(self, args, per_example):
        scores, labels, ids = batch(n_classes=3)
        loss = seen_and_stepped(SMeasureLoss(**args, per_example=per_example), scores, labels, ids)
        other = torch.zeros(5, 4), torch.zeros(5).long()
        with pytest.raises(ValueError, match=r'`pred`.*for 3.*Found 4'):
            loss(*other, ids=torch.arange(5))
        loss.reset()
        assert_same_state(loss, SMeasureLoss(**args, per_example=per_example))
        loss(*other, ids=torch.arange(5))


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
        value, gradient = value_and_gradient(loss, its_scores, its_labels, ids=ids[: len(its_labels)])
        assert math.isfinite(value)
        assert gradient.isfinite().all()
        assert kind not in ('nothing', 'no items') or value == 0
        loss.step()
        assert is_finite(loss)
        assert (loss.state.epsilon >= 1).all()
        # And then it learns as before.
        value, gradient = value_and_gradient(loss, scores, labels, ids=ids)
        assert math.isfinite(value)
        assert gradient.any()

    @each_mode
    def test_rates_without_items_move_nothing(self, args, per_example):
        scores, labels, ids = batch()
        for kind in ('no positives', 'no negatives', 'nothing'):
            loss = SMeasureLoss(**args, per_example=per_example)
            for _ in range(3):
                seen_and_stepped(loss, *self.CALLS[kind](scores, labels), ids)
            assert_at_the_start(loss)
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
    def test_scores_that_are_not_finite_do_not_enter_the_state(self, args, per_example, proxy, poison):
        """The class with such a score learns nothing; the loss is NaN or infinite."""
        scores, labels, ids = batch(n_classes=3, dtype=torch.float32)
        loss = seen_and_stepped(SMeasureLoss(**args, per_example=per_example, proxy=proxy), scores, labels, ids)
        poisoned = scores.clone()
        poisoned[5, 1] = poison
        value, _ = value_and_gradient(loss, poisoned, labels, ids=ids)
        assert math.isnan(value) or not math.isnan(poison)
        loss.step()
        assert is_finite(loss)
        value, gradient = value_and_gradient(loss, scores, labels, ids=ids)
        assert math.isfinite(value)
        assert gradient.isfinite().all()
        loss.reset()
        seen_and_stepped(loss, scores * math.nan, labels, ids)
        assert not loss.state.counts.any()
        assert_at_the_start(loss)


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
    def test_copies_go_on_alone_and_nothing_in_them_is_a_parameter(self, args, per_example, duplicate):
        """Otherwise an optimizer, weight decay, gradient clipping or a moving average would change it."""
        loss, model, optimizer = self.fresh(args, per_example)
        self.run(loss, model, optimizer, range(5))
        assert not [*loss.parameters(), *loss.buffers()]
        other, before = duplicate(loss), everything(loss)
        assert_same_state(loss, other)
        self.run(other, model, optimizer, range(5, 8))
        assert all(same(*pair) for pair in zip(everything(loss), before, strict=True))
        assert not torch.equal(loss.state.mu, other.state.mu)

    @each_mode
    def test_is_loaded_before_the_first_call_and_from_another_loss_and_has_a_type_of_its_own(self, args, per_example):
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
        loss, other = (SMeasureLoss(**args, per_example=per_example) for _ in range(2))
        other.load_state_dict(loss.state_dict())
        for convert in (lambda module: module.half(), lambda module: module.bfloat16().float()):
            seen_and_stepped(convert(loss), scores, labels, ids)
            seen_and_stepped(other, scores, labels, ids)
            assert_same_state(loss, other)


class TestRunner:
    @each_mode
    def test_steps_once_in_each_iteration(self, hub, args, per_example):
        """Before what the next has to say, and however often it is called in one."""
        scores, labels, ids = batch()
        loss, by_hand = (SMeasureLoss(**args, per_example=per_example) for _ in range(2))
        by_hand.follows_runner = False
        for iteration in range(4):
            hub.update_info('iter', iteration)
            by_hand.step()
            for part in (slice(11), slice(11, None)):
                for each in (loss, by_hand):
                    call(each, scores[part].clone().requires_grad_(), labels[part], ids[part])
        for each in (loss, by_hand):
            each.step()
        assert_same_state(loss, by_hand)

    def test_steps_when_it_is_compiled(self, hub):
        """A graph knows no iteration, and breaks where the clock is read."""
        torch._dynamo.reset()
        scores, labels, _ = batch()
        loss, other = SMeasureLoss(), SMeasureLoss()
        compiled = torch.compile(other, backend='eager')
        for iteration in range(4):
            hub.update_info('iter', iteration)
            for each in (loss, compiled):
                each(scores.clone().requires_grad_(), labels)
        assert loss.state.steps == 0
        assert (loss.state.mu != 1).any()
        assert_same_state(loss, other)

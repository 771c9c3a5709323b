"""Dual variables of S-measures: the Lagrangian, its margins, thresholds and multipliers, and their steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mmseg_nondecomp.functional._inputs import Inputs, Reduce, check_flag, check_number, check_option
from mmseg_nondecomp.functional.s_measures.problem import MAX_MULTIPLIER, RateProblem
from mmseg_nondecomp.functional.s_measures.projection import ExampleTable, check_state
from mmseg_nondecomp.functional.s_measures.rates import SURROGATES, RatedItems, Sums, true_measures

MIN_COUNT = 1e-6  # decayed count below which a query has no statistics


@dataclass(frozen=True)
class StepSizes:
    """Step sizes of the variables, and the two settings that damp oscillations."""

    eta_epsilon: float
    eta_threshold: float
    eta_mu: float
    eta_tau: float
    eta_lambda: float
    damping: float
    momentum: float

    def __post_init__(self) -> None:
        for each in fields(self):
            check_number(each.name, getattr(self, each.name), '[0, 1)' if each.name == 'momentum' else '[0, inf)')


def negatives_per_positive(counts: Tensor) -> Tensor:
    """Return the number of negatives for each positive, of shape [Q, 1], from the numbers of both, [Q, 2]."""
    return counts[:, 1:] / counts[:, :1].clamp(min=MIN_COUNT)


def lagrangians(
    problem: RateProblem,
    state: DualState,
    penalties: Tensor,
    counts: Tensor,
    reduce: Reduce,
    examples: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the Lagrangian of each query, and whether it has had a positive; both of shape [Q].

    ``penalties`` [Q, K, 2] are the sums over positives and over negatives, ``counts`` [Q, 2] their numbers in the set.
    ``examples`` returns w_A times the sum over positives, [Q, 1], for w_A [Q, 1]; it replaces that of ``penalties``.
    """
    total = state.counts + counts
    # Means are over the expected numbers of positives and negatives in a set of this size: each item has the same
    # weight in any mini-batch.
    fraction = counts.sum(1, keepdim=True) / total.sum(1, keepdim=True).clamp(min=MIN_COUNT)
    expected = (total * fraction).clamp(min=MIN_COUNT)
    r = negatives_per_positive(total)
    mu = state.started(state.damped_mu, state.counts, r, problem)
    w_a, w_b = problem.weights(mu, r)
    weights = torch.stack([w_a, w_b], -1)
    if examples is not None:
        penalties = torch.stack([examples(w_a), penalties[..., 1]], -1)
        weights = torch.stack([torch.ones_like(w_a), w_b], -1)
    parts = (penalties * (weights / expected.unsqueeze(1))).sum(-1)
    constant = torch.addcmul(problem.constant(state.epsilon, mu), w_a, state.epsilon, value=-1)
    return ((constant + reduce(parts)) / w_a.clamp(min=1)).mean(1), total[:, 0] > 0


class Rates(NamedTuple):
    """Rates of each query at each operating point, of shape [Q, K]."""

    r: Tensor  # negatives for each positive, of shape [Q, 1]
    tp: Tensor
    fp: Tensor
    a: Tensor  # bound on the true positive rate, in units of the margin
    b: Tensor  # bound on the false positive rate
    a_by_epsilon: Tensor
    b_by_epsilon: Tensor
    a_by_threshold: Tensor
    b_by_threshold: Tensor


def _shapes(q: int, k: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the variables by their keys in checkpoints."""
    points, sums = (q, k), (q, k, len(Sums._fields))
    named = dict(epsilon=points, threshold=points, mu=points, price=points)
    return named | dict(counts=(q, 2), recent=sums, pending=sums, steps=())


@dataclass
class DualState:
    """Variables of Q queries at K operating points, in float64; the same on all processes."""

    epsilon: Tensor  # margins of shape [Q, K]
    threshold: Tensor  # values subtracted from the scores, of shape [Q, K]
    mu: Tensor  # multipliers of the constraints, of shape [Q, K]
    damped_mu: Tensor  # multipliers with the damping of the present violations, of shape [Q, K]
    counts: Tensor  # numbers of positives and negatives in all steps, of shape [Q, 2]
    recent: Tensor  # decayed `Sums`, of shape [Q, K, 10]
    pending: Tensor  # `Sums` of the calls since the last step, of shape [Q, K, 10]
    steps: Tensor  # number of steps since the last ascent

    @classmethod
    def start(cls, n_queries: int, n_points: int, device: torch.device) -> DualState:
        """Return margins and multipliers of one without statistics."""
        ones, make = ('epsilon', 'mu', 'price'), partial(torch.full, dtype=torch.float64, device=device)
        return cls(*(make(shape, float(key in ones)) for key, shape in _shapes(n_queries, n_points).items()))

    @classmethod
    def from_dict(cls, state: dict[str, Tensor]) -> DualState:
        """Return the variables of a checkpoint; raise ValueError if a tensor is missing or does not fit."""
        q, k = check_state(state, 'epsilon', (None, None)).shape
        return cls(*(check_state(state, key, shape).clone() for key, shape in _shapes(q, k).items()))

    def as_dict(self) -> dict[str, Tensor]:
        """Return copies of the variables, for a checkpoint."""
        return dict(zip(_shapes(0, 0), (getattr(self, each.name).clone() for each in fields(self)), strict=True))

    def to(self, device: torch.device) -> DualState:
        """Return the variables on a device."""
        if self.epsilon.device == device:
            return self
        return DualState(*(value.to(device) for value in self.as_dict().values()))

    def restore(self, before: dict[str, Tensor], where: Tensor) -> None:
        """Restore the variables from `as_dict` if the condition holds."""
        for each, value in zip(fields(self), before.values(), strict=True):
            setattr(self, each.name, torch.where(where, value, getattr(self, each.name)))

    def count(self, problem: RateProblem) -> None:
        """Count the pending sums as a step, without those of a query that are not finite."""
        sums = torch.where(self.pending.isfinite().all(-1).all(-1)[:, None, None], self.pending, 0)
        before = self.counts.clone()
        self.recent += sums
        self.counts += sums[:, 0, :2]
        both = torch.stack([self.mu, self.damped_mu])
        self.mu, self.damped_mu = self.started(both, before, negatives_per_positive(self.counts), problem).unbind(0)
        self.steps += 1
        self.pending.zero_()

    @staticmethod
    def started(multiplier: Tensor, before: Tensor, r: Tensor, problem: RateProblem) -> Tensor:
        """Return multipliers, and the balance of both classes for queries that lacked positives or negatives before."""
        balance = problem.balance(r.masked_fill(r == 0, 1)).clamp(max=MAX_MULTIPLIER)
        return torch.where((before > 0).all(1, keepdim=True), multiplier, balance)

    def has_rates(self) -> Tensor:
        """Return whether a query has recent positives and negatives, bool of shape [Q, 1]."""
        return (self.recent[:, :1, :2] > MIN_COUNT).all(-1)

    def rates(self) -> Rates:
        """Return the recent rates; they are meaningless for queries without (`has_rates`)."""
        return self.rates_of(Sums(*self.recent.unbind(-1)))

    def rates_of(self, sums: Sums) -> Rates:
        """Return the rates of sums at the present margins and thresholds."""
        n_pos, n_neg = sums.n_pos.clamp(min=MIN_COUNT), sums.n_neg.clamp(min=MIN_COUNT)
        a, b = self.epsilon - sums.penalty_pos / n_pos, sums.penalty_neg / n_neg
        # A bound doubles where margin and scores do: ε dA/dε + mean z dA/dz = A.
        return Rates(
            r=negatives_per_positive(self.counts),
            tp=sums.tp / n_pos,
            fp=sums.fp / n_neg,
            a=a,
            b=b,
            a_by_epsilon=(a - sums.turn_pos / n_pos) / self.epsilon,
            b_by_epsilon=(b - sums.turn_neg / n_neg) / self.epsilon,
            a_by_threshold=-sums.slope_pos / n_pos,
            b_by_threshold=-sums.slope_neg / n_neg,
        )

    def violation(self, problem: RateProblem, rates: Rates, proxy: bool) -> Tensor:
        """Return the violation of the constraints by the true rates or by their bounds, of shape [Q, K]."""
        if proxy:
            return problem.true_violation(self.epsilon, rates.tp, rates.fp, rates.r)
        return problem.violation(rates.a, rates.b, rates.r)

    def move_epsilon(self, problem: RateProblem, rates: Rates, sizes: StepSizes, proxy: bool) -> None:
        """Move the margins against the slope of the loss; with scores of the scale A = 1 no margin is below 1."""
        a, b = (rates.tp, rates.fp) if proxy else (rates.a_by_epsilon, rates.b_by_epsilon)
        moved = self.epsilon - sizes.eta_epsilon * self._slope(problem, rates.r, a, b, problem.cost_epsilon)
        self.epsilon = torch.where(self.has_rates(), moved.clamp(min=1), self.epsilon)

    def move_threshold(self, problem: RateProblem, rates: Rates, sizes: StepSizes) -> None:
        """Move the thresholds against the slope of the loss."""
        slope = self._slope(problem, rates.r, rates.a_by_threshold, rates.b_by_threshold)
        self.threshold = torch.where(self.has_rates(), self.threshold - sizes.eta_threshold * slope, self.threshold)

    def _slope(self, problem: RateProblem, r: Tensor, a: Tensor, b: Tensor, cost: Tensor | int = 0) -> Tensor:
        """Return the derivative of the loss from those of both bounds and of the cost."""
        w_a, w_b = problem.weights(self.damped_mu, r)
        return (cost - w_a * a + w_b * b) / w_a.clamp(min=1)

    def ascend(self, violation: Tensor, sizes: StepSizes) -> None:
        """Move the multipliers by the violation, and decay the sums once for each step since the last ascent.

        Above 1, steps are in proportion to the multiplier: that of F_β begins at the number of negatives for each
        positive and ends near 1, that of a slack constraint is 0.
        """
        moves, scale = self.has_rates(), self.mu.clamp(min=1)
        damped = sizes.damping * scale * violation
        self.mu = torch.where(moves, (self.mu + sizes.eta_mu * scale * violation).clamp(0, MAX_MULTIPLIER), self.mu)
        self.damped_mu = torch.where(moves, (self.mu + damped).clamp(0, MAX_MULTIPLIER), self.mu)
        self.recent *= sizes.momentum**self.steps
        self.steps.zero_()


class Statistics(NamedTuple):
    """Intermediate results of a call, for the next step and the log."""

    state: DualState
    problem: RateProblem
    items: RatedItems
    sums: Tensor  # `Sums` of all processes as one tensor, of shape [Q, K, 10]
    ids: Tensor | None  # ids of the examples

    def measures(self, beta: float, proxy: bool) -> dict[str, Tensor]:
        """Return the true measures and the violation, as means over queries with positives and negatives."""
        sums = Sums(*self.sums.unbind(-1))
        present = (sums.n_pos[:, 0] > 0) & (sums.n_neg[:, 0] > 0)
        if not present.any():
            return {}
        rates = self.state.rates_of(sums)
        rates = rates._replace(r=negatives_per_positive(self.state.counts + self.sums[:, 0, :2]))
        violation = self.state.violation(self.problem, rates, proxy)
        values = true_measures(self.items, self.problem.measure, beta, sums) | {'violation': violation.mean(1)}
        return {name: torch.where(present, value, 0).sum() / present.sum() for name, value in values.items()}


class DualAscent(nn.Module):
    """Dual variables of a measure, their steps and their checkpoints; no parameters, and the same on all processes."""

    follows_runner = True  # whether the variables step in each iteration of a Runner

    def set_up(
        self, problem: RateProblem, sizes: StepSizes, surrogate: str | None, proxy: bool | None, per_example: bool
    ) -> None:
        """Check and set the settings; without a surrogate or a proxy, those that fit ``per_example``."""
        check_flag('per_example', per_example)
        check_flag('proxy', proxy, optional=True)
        self.problem, self.sizes, self.per_example = problem, sizes, per_example
        self.surrogate = ('hinge' if per_example else 'logistic') if surrogate is None else surrogate
        self.proxy = not per_example if proxy is None else proxy
        check_option('surrogate', self.surrogate, SURROGATES)
        if per_example and (problem.is_area or self.surrogate != 'hinge'):
            raise ValueError(
                'Parameter `per_example` should be False but for a measure at one operating point, and with '
                f"`surrogate='hinge'`. Found True with {problem.measure!r} and {self.surrogate!r}."
            )
        self.reset()

    def reset(self) -> None:
        """Start anew, without statistics."""
        self.state: DualState | None = None
        self.examples = ExampleTable() if self.per_example else None
        self._iteration: int | None = None

    @torch.no_grad()
    def step(self, ascend: bool = True) -> None:
        """Move margins, thresholds and τ down, and with ``ascend``, project the τ and move the multipliers up.

        Rates include the training calls since the last step; without any, nothing moves. All processes step together.
        """
        state, problem, sizes = self.state, self.problem, self.sizes
        if state is None:
            return
        # The device compares: reading the result would synchronise with it.
        before, is_idle = state.as_dict(), ~state.pending.any() & (state.steps == 0)
        state.count(problem)
        rates = state.rates()
        violation = state.violation(problem, rates, self.proxy)
        by_tau = problem.has_margin and self.per_example and not self.proxy
        if problem.has_margin and not by_tau:
            state.move_epsilon(problem, rates, sizes, self.proxy)
        if self.examples is not None:
            w_a, w_b = problem.weights(state.damped_mu, rates.r)
            self.examples.descend(state.epsilon[:, 0], w_a[:, 0], sizes.eta_tau, sizes.damping)
            if ascend:
                slope = problem.cost_epsilon + w_b * rates.b_by_epsilon
                etas = sizes.eta_lambda, sizes.eta_epsilon if by_tau else None
                bound, tau = self.examples.project(state.epsilon[:, 0], slope[:, 0], *etas)
                state.epsilon = bound.clamp(min=1).unsqueeze(1)
                if not self.proxy:
                    from_tau = problem.violation(tau.unsqueeze(1), rates.b, rates.r)
                    violation = torch.where(from_tau.isnan(), violation, from_tau)
        if problem.is_area:
            state.move_threshold(problem, rates, sizes)
        if ascend:
            state.ascend(violation, sizes)
        state.restore(before, is_idle)

    def follow(self, iteration: int | None) -> None:
        """Step if the iteration is a new one, and start anew if it is the first."""
        if iteration is None or iteration == self._iteration:
            return
        if iteration == 0:
            self.reset()
        else:
            self.step()
        self._iteration = iteration

    def learn(self, statistics: Statistics) -> None:
        """Add the sums of a call to those of the next step."""
        self.state, self.problem = statistics.state, statistics.problem
        self.state.pending += statistics.sums

    def variables(self, inputs: Inputs) -> tuple[DualState, RateProblem]:
        """Return the variables of the queries, and the problem, on the device of the inputs."""
        n_queries, device = inputs.n_classes, inputs.scores.device
        problem = self.problem.to(device)
        if self.state is None:
            return DualState.start(n_queries, len(problem.cost), device), problem
        if len(self.state.epsilon) != n_queries:
            raise ValueError(
                'Parameter `pred` should keep its number of classes: there are multipliers for '
                f'{len(self.state.epsilon)}. Found {n_queries}.'
            )
        return self.state.to(device), problem

    def get_extra_state(self) -> dict[str, dict[str, Tensor]]:
        """Return the variables, for ``state_dict``."""
        parts = {'queries': self.state, 'examples': self.examples}
        return {name: part.as_dict() for name, part in parts.items() if part is not None}

    def set_extra_state(self, state: dict[str, dict[str, Tensor]]) -> None:
        """Load the variables of a checkpoint."""
        self.reset()
        if 'queries' in state:
            self.state = DualState.from_dict(state['queries'])
        if 'examples' in state and self.examples is not None:
            self.examples.load(state['examples'])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load a checkpoint; that of a training with another loss has no such state."""
        super()._load_from_state_dict(state_dict, prefix, *others)
        _, _, missing_keys, *_ = others
        missing_keys[:] = [key for key in missing_keys if key != f'{prefix}_extra_state']

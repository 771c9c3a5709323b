"""What an S-measure loss keeps from step to step beside the network: margins, thresholds, multipliers, and counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional.rate_problem import RateProblem
from mmseg_nondecomp.losses.rated_items import Sums

LITTLE = 1e-6
"""Items; what has faded to less is not remembered."""

MOST = 1e4
"""Of a multiplier. What it cannot bring about cannot be had."""


def negatives_for_each(counts: Tensor) -> Tensor:
    """Return the number of negatives for each positive, of shape [Q, 1], from the numbers of both, [Q, 2]."""
    return counts[:, 1:] / counts[:, :1].clamp(min=LITTLE)


class StepSizes(NamedTuple):
    """How far the variables of an S-measure loss go in a step, and how they are kept from swinging."""

    eta_epsilon: float
    eta_threshold: float
    eta_mu: float
    eta_tau: float
    eta_lambda: float
    damping: float
    momentum: float


def check_step_sizes(sizes: StepSizes) -> None:
    """Raise unless all are numbers in their ranges."""
    for name, value in sizes._asdict().items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f'Parameter `{name}` should be a number. Found {value!r}.')
        if not 0 <= value < (1 if name == 'momentum' else math.inf):
            limit = 'below 1' if name == 'momentum' else 'finite'
            raise ValueError(f'Parameter `{name}` should be at least 0 and {limit}. Found {value}.')


def check_kept(name: str, value: object, shape: tuple[int | None, ...], dtype: torch.dtype) -> Tensor:
    """A tensor of a checkpoint; raises unless it has this shape, with any size where it says None, and this dtype.

    One that is larger than its memory, as `Tensor.expand` makes them, could be of any size.
    """
    if isinstance(value, Tensor) and value.dtype == dtype and len(value.shape) == len(shape):
        sizes = zip(shape, value.shape, strict=True)
        if all(size in (None, found) for size, found in sizes) and value.nbytes <= value.untyped_storage().nbytes():
            return value
    found = f'{value.dtype} of shape {tuple(value.shape)}' if isinstance(value, Tensor) else type(value).__name__
    raise ValueError(f'The state of an S-measure loss should have `{name}` as {dtype} of shape {shape}. Found {found}.')


class Rates(NamedTuple):
    """What was seen of each query at each operating point, of shape [Q, K]."""

    r: Tensor
    """Negatives for each positive, of shape [Q, 1]."""
    tp: Tensor
    fp: Tensor
    a: Tensor
    """The bound of the true positive rate, in units of the margin."""
    b: Tensor
    """The bound of the false positive rate."""
    a_by_epsilon: Tensor
    b_by_epsilon: Tensor
    a_by_threshold: Tensor
    b_by_threshold: Tensor


@dataclass
class DualState:
    """The variables of Q queries at K operating points, in float64; the same on all processes."""

    epsilon: Tensor
    """The margins, of shape [Q, K]."""
    threshold: Tensor
    """What is taken off the scores, of shape [Q, K]."""
    mu: Tensor
    """The multipliers of the constraints on the rates, of shape [Q, K]."""
    price: Tensor
    """The multipliers and what the present violations add, of shape [Q, K]."""
    counts: Tensor
    """How many positives and negatives there have been, of shape [Q, 2]."""
    recent: Tensor
    """`Sums` that are being forgotten, [Q, K, 10]."""
    pending: Tensor
    """`Sums` of the calls since the last step, [Q, K, 10]."""
    steps: Tensor
    """How many steps there have been since the last ascent."""

    @classmethod
    def start(cls, n_queries: int, n_points: int, device: torch.device) -> DualState:
        """Margins of one, and nothing seen."""
        epsilon, mu, price = torch.ones(3, n_queries, n_points, dtype=torch.float64, device=device)
        return cls(
            epsilon=epsilon,
            threshold=torch.zeros_like(epsilon),
            mu=mu,
            price=price,
            counts=epsilon.new_zeros(n_queries, 2),
            recent=epsilon.new_zeros(n_queries, n_points, len(Sums._fields)),
            pending=epsilon.new_zeros(n_queries, n_points, len(Sums._fields)),
            steps=epsilon.new_zeros(()),
        )

    @classmethod
    def from_dict(cls, state: dict[str, Tensor]) -> DualState:
        """From a checkpoint.

        Raises:
            ValueError: If it has something else.
        """
        q, k = check_kept('epsilon', state.get('epsilon'), (None, None), torch.float64).shape
        sums = q, k, len(Sums._fields)
        shapes = {'counts': (q, 2), 'recent': sums, 'pending': sums, 'steps': ()}
        kept = {field.name: state.get(field.name) for field in fields(cls)}
        return cls(
            **{
                name: check_kept(name, part, shapes.get(name, (q, k)), torch.float64).clone()
                for name, part in kept.items()
            }
        )

    def as_dict(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        return {field.name: getattr(self, field.name).clone() for field in fields(self)}

    def to(self, device: torch.device) -> DualState:
        """The same on another device."""
        return DualState(**{name: value.to(device) for name, value in self.as_dict().items()})

    def put_back(self, before: dict[str, Tensor], where: Tensor) -> None:
        """Have what was there before, from `as_dict`, if the condition holds."""
        for name, value in before.items():
            setattr(self, name, torch.where(where, value, getattr(self, name)))

    def learn(self, problem: RateProblem) -> None:
        """Count what was seen in a step; nothing of a query whose sums are no numbers."""
        sums = torch.where(self.pending.isfinite().all(-1).all(-1)[:, None, None], self.pending, 0)
        before = self.counts.clone()
        self.recent += sums
        self.counts += sums[:, 0, :2]
        both = self.begun(torch.stack([self.mu, self.price]), before, negatives_for_each(self.counts), problem)
        self.mu, self.price = both.unbind(0)
        self.steps += 1
        self.pending.zero_()

    @staticmethod
    def begun(multiplier: Tensor, before: Tensor, r: Tensor, problem: RateProblem) -> Tensor:
        """A multiplier; of queries that lacked positives or negatives before, where both sides weigh the same."""
        balance = problem.balance(r.masked_fill(r == 0, 1)).clamp(max=MOST)
        return torch.where((before > 0).all(1, keepdim=True), multiplier, balance)

    def known(self) -> Tensor:
        """Of which queries positives and negatives are remembered, bool of shape [Q, 1]."""
        return (self.recent[:, :1, :2] > LITTLE).all(-1)

    def rates(self) -> Rates:
        """The rates of what is remembered; they mean nothing for queries that are not known."""
        return self.rates_of(Sums(*self.recent.unbind(-1)))

    def rates_of(self, sums: Sums) -> Rates:
        """The rates of what was summed at the present margins and thresholds."""
        n_pos, n_neg = sums.n_pos.clamp(min=LITTLE), sums.n_neg.clamp(min=LITTLE)
        a, b = self.epsilon - sums.penalty_pos / n_pos, sums.penalty_neg / n_neg
        # A bound doubles where margin and scores do: ε dA/dε + mean z dA/dz = A.
        return Rates(
            r=negatives_for_each(self.counts),
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
        """By how much the constraints do not hold, for the true rates or for their bounds, of shape [Q, K]."""
        if proxy:
            return problem.true_violation(self.epsilon, rates.tp, rates.fp, rates.r)
        return problem.violation(rates.a, rates.b, rates.r)

    def move_epsilon(self, problem: RateProblem, rates: Rates, sizes: StepSizes, proxy: bool) -> None:
        """A step against the slope of the loss; the scale of the scores where A = 1 has no margin below 1."""
        pay, charge = problem.prices(self.price, rates.r)
        a, b = (rates.tp, rates.fp) if proxy else (rates.a_by_epsilon, rates.b_by_epsilon)
        slope = (problem.cost_epsilon - pay * a + charge * b) / pay.clamp(min=1)
        self.epsilon = torch.where(self.known(), (self.epsilon - sizes.eta_epsilon * slope).clamp(min=1), self.epsilon)

    def move_threshold(self, problem: RateProblem, rates: Rates, sizes: StepSizes) -> None:
        """A step against the slope of the loss."""
        pay, charge = problem.prices(self.price, rates.r)
        slope = (charge * rates.b_by_threshold - pay * rates.a_by_threshold) / pay.clamp(min=1)
        self.threshold = torch.where(self.known(), self.threshold - sizes.eta_threshold * slope, self.threshold)

    def ascend(self, violation: Tensor, sizes: StepSizes) -> None:
        """Raise the multipliers of what is violated, and forget a little for each step since the last ascent.

        Above one, steps are in proportion to the multiplier: that of F_β begins at the number of negatives for
        each positive and ends near one, that of a slack constraint is 0.
        """
        known, scale = self.known(), self.mu.clamp(min=1)
        self.mu = torch.where(known, (self.mu + sizes.eta_mu * scale * violation).clamp(0, MOST), self.mu)
        self.price = torch.where(known, (self.mu + sizes.damping * scale * violation).clamp(0, MOST), self.mu)
        self.recent *= sizes.momentum**self.steps
        self.steps.zero_()

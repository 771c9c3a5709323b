r"""S-measures as linear problems in two rates: F_β, precision at recall, recall at precision, and areas under curves.

Of items with a score z, taken for positives where z > 0, let A be the share of the positives that are found and B the
share of the negatives that are taken for positives, with r negatives for each positive. A measure is

.. math:: \min \; c_0 + c_\varepsilon \varepsilon + c_A A + c_B B \quad \text{s.t.} \quad d + d_A A + d_B B \le 0

with numbers c and d of its own, and bounds in place of A and B that a gradient goes through:

.. math:: A = \operatorname{mean}_{S^+} \min(\varepsilon, z_i), \qquad
   B = \operatorname{mean}_{S^-} \max(0, \varepsilon + z_j).

The margin ε is 1 but for F_β, which is :math:`(1 + \beta^2) / (1 + (\beta^2 + r B) / A)`: there the scale of the scores
is free, and the one where A = 1 makes the ratio linear. Then ε is one over the recall. This is problem (2) of the paper
with means where it has sums, so that nothing depends on the number of examples.

Reference:
    S. N. Ravi, A. Venkatesh, G. M. Fung, V. Singh: Optimizing nondecomposable data dependent regularizers via
    Lagrangian reparameterization offers significant performance and efficiency gains. AAAI 2020, sections 3 and 6.
    https://arxiv.org/abs/1909.12398
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

MEASURES = ('f_beta', 'precision_at_recall', 'recall_at_precision', 'auc_roc', 'auc_pr')
AREAS = ('auc_roc', 'auc_pr')


class RateProblem(NamedTuple):
    """The numbers of a measure, each of shape [K]: K problems for an area under a curve, one for other measures."""

    cost: Tensor
    cost_epsilon: Tensor
    cost_a: Tensor
    cost_b: Tensor
    limit: Tensor
    limit_a: Tensor
    limit_b: Tensor
    per_positive: bool
    """Whether c_B and d_B are factors of r B, the false positives for each positive."""

    def to(self, device: torch.device) -> RateProblem:
        """The same on another device."""
        *numbers, per_positive = self
        return RateProblem._make([*torch.stack(numbers).to(device), per_positive])

    def prices(self, mu: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """What the Lagrangian pays for A and what it charges for B.

        Args:
            mu: The multiplier of the constraint, of shape [Q, K].
            r: Negatives for each positive, of shape [Q, 1].
        """
        charge = torch.addcmul(self.cost_b, mu, self.limit_b)
        return -torch.addcmul(self.cost_a, mu, self.limit_a), charge * r if self.per_positive else charge

    def constant(self, epsilon: Tensor, mu: Tensor) -> Tensor:
        """What the Lagrangian has beside the rates, of shape [Q, K]."""
        return torch.addcmul(torch.addcmul(self.cost, self.cost_epsilon, epsilon), self.limit, mu)

    def balance(self, r: Tensor) -> Tensor:
        """The multiplier with which taking all for positives and taking none have the same Lagrangian, if there is one.

        There neither class drowns the other: all positives weigh as much as all negatives.
        """
        r = r if self.per_positive else torch.ones_like(r)
        ratio = torch.addcmul(self.cost_a, r, self.cost_b) / torch.addcmul(self.limit_a, r, self.limit_b)
        return torch.nan_to_num(-ratio).clamp(min=0)

    def violation(self, a: Tensor, b: Tensor, r: Tensor) -> Tensor:
        """The left side of the constraint: above 0 where it does not hold."""
        return self.limit + self.limit_a * a + self.limit_b * (b * r if self.per_positive else b)

    def true_violation(self, epsilon: Tensor, tp: Tensor, fp: Tensor, r: Tensor) -> Tensor:
        """The same from rates that were counted, :math:`A = ε tp` and :math:`B = ε fp`, in units of the margin.

        A bound on the precision is read as such, so that it is as urgent when little is found as when much is: as what
        lacks of it. Where nothing is found it is kept.
        """
        plain = self.violation(epsilon * tp, epsilon * fp, r) / epsilon
        if not self.per_positive:
            return plain
        found = tp + r * fp
        none = NOTHING_FOUND * (found < NOTHING_FOUND)
        return torch.where(self.limit_b > 0, self.limit_b - (tp + none) / (found + none), plain)


NOTHING_FOUND = 0.01
"""Fewer items taken for positives, for each positive, are as good as none."""


def rate_problem(measure: str, beta: float = 1.0, target: float | None = None, anchors: int = 10) -> RateProblem:
    """The problem of a measure.

    Args:
        measure: ``'f_beta'``, ``'precision_at_recall'``, ``'recall_at_precision'``, ``'auc_roc'`` or ``'auc_pr'``.
        beta: How many times as much the recall counts as the precision in F_β.
        target: The recall, or the precision, that is asked for.
        anchors: The number of operating points that an area is the mean over, in the middles of as many equal parts of
            [0, 1]: of false positive rates for ROC, of precisions for PR.

    Raises:
        TypeError: If an argument is of a wrong type.
        ValueError: If an argument is out of range, or missing.
    """
    _check(measure, beta, target, anchors)
    grid = [(k + 0.5) / anchors for k in range(anchors)]
    if measure == 'f_beta':
        return _stack([dict(cost_epsilon=beta**2, cost_b=1, limit=1, limit_a=-1)], per_positive=True)
    if measure == 'precision_at_recall':
        return _stack([dict(cost_b=1, limit=target, limit_a=-1)])
    if measure == 'auc_roc':
        return _stack([dict(cost=1, cost_a=-1, limit=-share, limit_b=1) for share in grid])
    precisions = grid if target is None else [target]
    return _stack([dict(cost=1, cost_a=-1, limit_a=p - 1, limit_b=p) for p in precisions], per_positive=True)


def _stack(points: list[dict], per_positive: bool = False) -> RateProblem:
    numbers = [[point.get(name, 0) for point in points] for name in RateProblem._fields[:-1]]
    return RateProblem._make([*torch.tensor(numbers, dtype=torch.float64), per_positive])


def _check(measure: str, beta: float, target: float | None, anchors: int) -> None:
    if measure not in MEASURES:
        raise ValueError(f'Parameter `measure` should be one of {MEASURES}. Found {measure!r}.')
    for name, number in (('beta', beta), ('target', target)):
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        if not is_number and (number is not None or name == 'beta'):
            raise TypeError(f'Parameter `{name}` should be a number. Found {number!r}.')
    if not 0 < beta < float('inf'):
        raise ValueError(f'Parameter `beta` should be above 0 and finite. Found {beta}.')
    if measure.endswith(('at_recall', 'at_precision')):
        if target is None or not 0 < target < 1:
            rate = 'recall' if measure.endswith('recall') else 'precision'
            raise ValueError(f'Parameter `target` should be the {rate} to keep, between 0 and 1. Found {target}.')
    elif target is not None:
        raise ValueError(f'Parameter `target` should be None: {measure!r} has no constraint to choose. Found {target}.')
    if isinstance(anchors, bool) or not isinstance(anchors, int):
        raise TypeError(f'Parameter `anchors` should be an integer. Found {anchors!r}.')
    if anchors < 1:
        raise ValueError(f'Parameter `anchors` should be at least 1. Found {anchors}.')

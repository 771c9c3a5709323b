r"""S-measures as linear problems in two rates: F_β, precision at recall, recall at precision, and areas under curves.

Items with a score z above 0 are predicted positive. Let A be the true positive rate, B the false positive rate, and r
the number of negatives for each positive. A measure is the problem

.. math:: \min \; c_0 + c_\varepsilon \varepsilon + c_A A + c_B B \quad \text{s.t.} \quad d + d_A A + d_B B \le 0

with coefficients c and d of the measure. Training replaces both rates by differentiable bounds:

.. math:: A = \operatorname{mean}_{S^+} \min(\varepsilon, z_i), \qquad
   B = \operatorname{mean}_{S^-} \max(0, \varepsilon + z_j).

The margin ε is 1 but for F_β, which is :math:`(1 + \beta^2) / (1 + (\beta^2 + r B) / A)`: there the scale of the scores
is free, and the one where A = 1 makes the ratio linear. Then ε is one over the recall. This is problem (2) of the paper
with means in place of sums, so that nothing depends on the number of examples, and with a μ of the opposite sign.

The Lagrangian has a multiplier μ for the constraint. That of F_β is

.. math:: L = \beta^2 \varepsilon + r \operatorname{mean}_{S^-} \max(0, \varepsilon + z_j)
   + \mu \left( 1 - \operatorname{mean}_{S^+} \min(\varepsilon, z_i) \right),

the minimum over τ of the paper's form (4), which has a τ and a λ for each positive:

.. math:: L = \beta^2 \varepsilon + r \operatorname{mean}_{S^-} \max(0, \varepsilon + z_j)
   + \mu (1 - \operatorname{mean}_{S^+} \tau_i) + \operatorname{mean}_{S^+} \lambda_i (\tau_i - z_i).

Reference:
    S. N. Ravi, A. Venkatesh, G. M. Fung, V. Singh: Optimizing nondecomposable data dependent regularizers via
    Lagrangian reparameterization offers significant performance and efficiency gains. AAAI 2020, sections 3 and 6.
    https://arxiv.org/abs/1909.12398
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import check_integer, check_number, check_option

MEASURES = ('f_beta', 'precision_at_recall', 'recall_at_precision', 'auc_roc', 'auc_pr')

MAX_MULTIPLIER = 1e4  # upper bound on multipliers; a constraint still violated there is treated as infeasible
NO_POSITIVES = 0.01  # fewer predicted positives for each positive count as none


class RateProblem(NamedTuple):
    """Coefficients of a measure, each of shape [K]: K operating points for an area under a curve, else one."""

    cost: Tensor
    cost_epsilon: Tensor
    cost_a: Tensor
    cost_b: Tensor
    limit: Tensor
    limit_a: Tensor
    limit_b: Tensor
    measure: str  # one of `MEASURES`

    @property
    def is_area(self) -> bool:
        """Whether each operating point has a threshold."""
        return self.measure in ('auc_roc', 'auc_pr')

    @property
    def has_margin(self) -> bool:
        """Whether the margin is a variable."""
        return self.measure == 'f_beta'

    @property
    def per_positive(self) -> bool:
        """Whether c_B and d_B are factors of r B, the number of false positives for each positive."""
        return self.measure in ('f_beta', 'recall_at_precision', 'auc_pr')

    def to(self, device: torch.device) -> RateProblem:
        """Return the problem on a device."""
        if self.cost.device == device:
            return self
        *numbers, measure = self
        return RateProblem._make([*torch.stack(numbers).to(device), measure])

    def weights(self, mu: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        """Return w_A and w_B of the Lagrangian, which is `constant` - w_A A + w_B B, for mu [Q, K] and r [Q, 1]."""
        of_b = torch.addcmul(self.cost_b, mu, self.limit_b)
        return -torch.addcmul(self.cost_a, mu, self.limit_a), of_b * r if self.per_positive else of_b

    def constant(self, epsilon: Tensor, mu: Tensor) -> Tensor:
        """Return the part of the Lagrangian without rates, of shape [Q, K]."""
        return torch.addcmul(torch.addcmul(self.cost, self.cost_epsilon, epsilon), self.limit, mu)

    def balance(self, r: Tensor) -> Tensor:
        """Return the multiplier at which all positives weigh as much as all negatives, w_A = w_B; 0 if there is none.

        There it makes no difference whether all items are predicted positive or none.
        """
        r = r if self.per_positive else torch.ones_like(r)
        ratio = torch.addcmul(self.cost_a, r, self.cost_b) / torch.addcmul(self.limit_a, r, self.limit_b)
        return torch.nan_to_num(-ratio).clamp(min=0)

    def violation(self, a: Tensor, b: Tensor, r: Tensor) -> Tensor:
        """Return the left side of the constraint, above 0 where it does not hold."""
        return self.limit + self.limit_a * a + self.limit_b * (b * r if self.per_positive else b)

    def true_violation(self, epsilon: Tensor, tp: Tensor, fp: Tensor, r: Tensor) -> Tensor:
        """Return the violation for true rates, :math:`A = ε tp` and :math:`B = ε fp`, in units of the margin.

        Violation of a precision is target minus precision, independent of the number of predicted positives. Without
        predicted positives the constraint holds.
        """
        violation = self.violation(epsilon * tp, epsilon * fp, r) / epsilon
        if not self.per_positive:
            return violation
        predicted = tp + r * fp
        none = NO_POSITIVES * (predicted < NO_POSITIVES)
        return torch.where(self.limit_b > 0, self.limit_b - (tp + none) / (predicted + none), violation)


def rate_problem(measure: str, beta: float = 1.0, target: float | None = None, anchors: int = 10) -> RateProblem:
    """Return the problem of a measure, one of `MEASURES`.

    ``beta`` is the weight of the recall relative to the precision in F_β, ``target`` the recall or the precision of the
    constraint. The operating points of an area are the middles of as many equal parts of [0, 1] as there are
    ``anchors``: of false positive rates for ROC, of precisions for PR.
    """
    check_option('measure', measure, MEASURES)
    check_number('beta', beta, '(0, inf)')
    check_integer('anchors', anchors, lowest=1)
    if (target is None) == measure.endswith(('at_recall', 'at_precision')):
        expected = 'a number in (0, 1)' if target is None else 'None'
        raise ValueError(f'Parameter `target` should be {expected} for measure {measure!r}. Found {target}.')
    if target is not None:
        check_number('target', target, '(0, 1)')
    grid = [(k + 0.5) / anchors for k in range(anchors)]
    points: list[dict]
    if measure == 'f_beta':
        points = [dict(cost_epsilon=beta**2, cost_b=1, limit=1, limit_a=-1)]
    elif measure == 'precision_at_recall':
        points = [dict(cost_b=1, limit=target, limit_a=-1)]
    elif measure == 'auc_roc':
        points = [dict(cost=1, cost_a=-1, limit=-rate, limit_b=1) for rate in grid]
    else:
        precisions = grid if target is None else [target]
        points = [dict(cost=1, cost_a=-1, limit_a=p - 1, limit_b=p) for p in precisions]
    numbers = [[point.get(name, 0) for point in points] for name in RateProblem._fields[:-1]]
    return RateProblem._make([*torch.tensor(numbers, dtype=torch.float64), measure])

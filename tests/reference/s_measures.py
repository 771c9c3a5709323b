r"""Oracles of S-measures by reparameterisation: the projection, the linear programs, and the measures themselves.

**Projection.** The set of the paper, `C = {(τ, ε) : τ_i <= ε, ε >= 0}`, is a cone. Its points are
`(τ, ε) = ε (1, ..., 1) + Σ_i (ε - τ_i) (-e_i)`, so `(1, ..., 1)` and the `-e_i` of the n numbers generate it. Three
views of the nearest point of `C` to `x`, of which none sorts:

* `project`: it is the point nearest to `x` of the affine hull of some face, where some `τ_i = ε` and maybe `ε = 0`, and
  it is feasible. So it is the nearest to `x` of all 2^(n+1) such points that are. Exact, in fractions;
* `project_onto_generators`: it is `G z` for the `z >= 0` that minimises `|G z - x|`, where the columns of `G` are the
  generators: non-negative least squares, by SciPy;
* `distance_bound`: the polar cone is `C° = {(r, d) : r_i >= 0, Σ r_i + d <= 0}`. For `t` in `C` and `d` in `C°`,
  `(|t - x|² - |x|² + |x - d|²) / 2` is a duality gap of the problem, whose objective is strongly convex:

      |t - P(x)|² <= |t - x + d|² - 2 t . d.

  One `d` made from the residual thus bounds how far *any* given point is from the projection. Exact, for any n.

**Programs.** With the scores `s_i = w . a(x_i)`, `n+` positives, and all means over `n+`, those over negatives too, a
measure is the program `min C(ε, τ, φ)` such that

    τ_i <= ε,    τ_i <= s_i    (i in S+),    φ_j >= 0,    φ_j >= ε + s_j    (j in S-),

and what the table says. Its dual has the multipliers `μ >= 0` of the rate constraint, `λ_i >= 0` of `τ_i <= s_i` and
`ν_j >= 0` of `φ_j >= ε + s_j`, as in the Lagrangian
`C + μ (rate constraint) + mean λ_i (τ_i - s_i) + mean ν_j (ε + s_j - φ_j)`:

    measure                 C               rate constraint                  p           q    value of the dual
    f_beta                  β² ε + mean φ   1 - mean τ = 0                   μ           1    μ
    precision_at_recall R   mean φ          R - mean τ <= 0                  μ           1    μ R + mean ν - mean κ
    recall_at_precision α   1 - mean τ      α mean φ - (1 - α) mean τ <= 0   1 + μ(1-α)  μ α  1 + mean ν - mean κ

for `0 <= ν_j <= q`, `κ_i = p - λ_i >= 0` (the multiplier of `τ_i <= ε`), `mean λ_i a_i = mean ν_j a_j`, and for f_beta,
where ε is a variable and not 1, `β² + mean ν - mean κ >= 0`. With f_beta the right side of one constraint alone is not
0, so that the optimal value is μ itself.

A feasible point bounds the counts of the decisions `s > 0` by `TP >= n+ mean τ / ε` and `FP <= n+ mean φ / ε`. Hence
`F_β >= (1 + β²) / (1 + C)`; a recall of R and a precision of `R / (R + C)`; a precision of α and a recall of `1 - C`.

References:
    S. N. Ravi, A. Venkatesh, G. M. Fung, V. Singh: Optimizing nondecomposable data dependent regularizers via
    Lagrangian reparameterization offers significant performance and efficiency gains. AAAI 2020.
    E. Eban, M. Schain, A. Mackey, A. Gordon, R. A. Saurous, G. Elidan: Scalable learning of non-decomposable
    objectives. AISTATS 2017.
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog, nnls

Array = npt.NDArray[np.float64]


def project(tau: Sequence[Any], eps: Any) -> tuple[list[Fraction], Fraction]:
    """Return the point of `C` nearest to numbers and their bound, exactly, by trying all faces, for `n <= 10`."""
    tau, eps = [Fraction(t) for t in tau], Fraction(eps)
    best: tuple[Fraction, list[Fraction], Fraction] | None = None
    for tied in itertools.product((False, True), repeat=len(tau)):
        at_bound = [t for t, is_tied in zip(tau, tied, strict=True) if is_tied]
        for e in (Fraction(0), (eps + sum(at_bound)) / (1 + len(at_bound))):
            point = [e if is_tied else t for t, is_tied in zip(tau, tied, strict=True)]
            if e < 0 or any(t > e for t in point):
                continue
            distance = (e - eps) ** 2 + sum((t - s) ** 2 for t, s in zip(point, tau, strict=True) if t != s)
            if best is None or distance < best[0]:
                best = distance, point, e
    assert best is not None  # all numbers at the bound 0 are a feasible point
    return best[1], best[2]


def project_onto_generators(tau: npt.ArrayLike, eps: float) -> tuple[Array, float]:
    """Return the nearest point of `C` by non-negative least squares, to about 1e-14 of the largest number."""
    x = np.append(np.asarray(tau, np.float64), eps)
    scale = np.abs(x).max() or 1.0
    generators = -np.eye(x.size)
    generators[:, -1] = 1
    nearest = generators @ nnls(generators, x / scale)[0] * scale
    return nearest[:-1], float(nearest[-1])


def distance_bound(tau: Sequence[Any], eps: Any, tau_p: Sequence[Any], eps_p: Any) -> float:
    """Return a number that the Euclidean distance of `(tau_p, eps_p)` from the projection of `(tau, eps)` is not above.

    It is 0 for the projection, of the size of the rounding for a rounded one that is feasible, and infinite for a point
    that is not feasible. What it says holds of every point: nothing is assumed of how it was found.
    """
    tau, tau_p = [Fraction(t) for t in tau], [Fraction(t) for t in tau_p]
    eps, e = Fraction(eps), Fraction(eps_p)
    if e < 0 or any(t > e for t in tau_p):
        return math.inf
    # In the polar cone, with t . d = 0: only numbers at the bound have given up anything, and all of it went to it.
    r = [max(s - t, Fraction(0)) if t == e else Fraction(0) for s, t in zip(tau, tau_p, strict=True)]
    d = -sum(r, Fraction(0)) if e > 0 else min(eps, -sum(r, Fraction(0)))
    squared = (e - eps + d) ** 2 + sum((t - s + r_i) ** 2 for s, t, r_i in zip(tau, tau_p, r, strict=True))
    if squared == 0:
        return 0.0
    root = Fraction(math.isqrt(math.ceil(squared * 4**1200)) + 1, 2**1200)
    rounded = float(root)
    return rounded if rounded >= root else math.nextafter(rounded, math.inf)


def is_projection(tau: Sequence[Any], eps: Any, tau_p: Sequence[Any], eps_p: Any, tolerance: float = 0) -> bool:
    """Return whether a point is the projection on `C`, or certainly within the tolerance of it."""
    return distance_bound(tau, eps, tau_p, eps_p) <= tolerance


def algorithm_4_as_printed(tau: Sequence[Any], eps: Any) -> tuple[list[Any], Any]:
    """Follow Algorithm 4 of the paper to the letter; it is wrong.

    Its `k*` is not set where all numbers exceed the bound; here it is n + 1 then.
    """
    n = len(tau)
    order = sorted(range(n), key=lambda i: -tau[i])
    gamma = [None, eps, *(tau[i] for i in order)]  # counted from 1
    result = list(gamma)
    result[1] = max(gamma[1], 0)
    k = n + 1
    for t in range(1, n + 1):
        if gamma[t + 1] <= max(result[1], 0):
            k = t
            break
        result[1] = t * result[1] / (t + 1) + gamma[t] / (t + 1)
    result[1] = max(result[1], 0)
    result[2:k] = [result[1]] * (k - 2)  # positions 2 to k* - 1
    result[k:] = gamma[k:]
    unsorted = [result[2 + order.index(i)] for i in range(n)]
    return unsorted, result[1]


class Program(NamedTuple):
    """A solved program and the multipliers of its dual.

    Attributes:
        objective: The optimal value C.
        w: Weights of the features.
        epsilon: The margin ε; 1 but for f_beta.
        tau: One τ_i for each positive.
        phi: One φ_j for each negative.
        mu: Multiplier of the rate constraint.
        lam: Multipliers of τ_i <= s_i, in the scale of means.
        nu: Multipliers of φ_j >= ε + s_j, in the same scale.
    """

    objective: float
    w: Array
    epsilon: float
    tau: Array
    phi: Array
    mu: float
    lam: Array
    nu: Array


def solve_lp(
    features_pos: npt.ArrayLike,
    features_neg: npt.ArrayLike,
    measure: str,
    beta: float = 1.0,
    target: float | None = None,
) -> Program:
    """Solve problem (2) of the paper, with means for sums, or its sibling for a rate constraint.

    Args:
        features_pos: The features a(x_i) of the positives [n+, d], with a column of ones where there is a bias.
        features_neg: Those of the negatives [n-, d].
        measure: `'f_beta'`, `'precision_at_recall'` or `'recall_at_precision'`.
        beta: How much more the recall counts than the precision in F_β.
        target: The recall R or the precision α.

    Raises:
        RuntimeError: If there is no optimum. A precision that no linear score reaches with this surrogate has none.
    """
    pos, neg = np.asarray(features_pos, np.float64), np.asarray(features_neg, np.float64)
    (n_pos, d), n_neg = pos.shape, len(neg)
    n_variables = d + n_pos + n_neg + 1
    w, tau, phi = slice(d), slice(d, d + n_pos), slice(d + n_pos, d + n_pos + n_neg)  # and ε, the last

    mean_tau, mean_phi, epsilon = (np.zeros(n_variables) for _ in range(3))
    mean_tau[tau] = mean_phi[phi] = 1 / n_pos
    epsilon[-1] = 1
    cost, constant = {
        'f_beta': (beta**2 * epsilon + mean_phi, 0.0),
        'precision_at_recall': (mean_phi, 0.0),
        'recall_at_precision': (-mean_tau, 1.0),
    }[measure]

    below_bound, below_score = np.zeros((n_pos, n_variables)), np.zeros((n_pos, n_variables))
    below_bound[:, tau] = below_score[:, tau] = np.eye(n_pos)
    below_bound[:, -1] = -1
    below_score[:, w] = -pos
    hinge = np.zeros((n_neg, n_variables))
    hinge[:, w], hinge[:, phi], hinge[:, -1] = neg, -np.eye(n_neg), 1
    a_ub, b_ub = np.concatenate([below_bound, below_score, hinge]), np.zeros(2 * n_pos + n_neg)
    equality: dict[str, Any] = {}
    if measure == 'f_beta':
        equality = dict(A_eq=mean_tau[None], b_eq=[1.0])
    elif measure == 'precision_at_recall':
        a_ub, b_ub = np.concatenate([a_ub, -mean_tau[None]]), np.append(b_ub, -target)
    else:
        rate = target * mean_phi - (1 - target) * mean_tau
        a_ub, b_ub = np.concatenate([a_ub, rate[None]]), np.append(b_ub, 0.0)

    margin = (0, None) if measure == 'f_beta' else (1, 1)
    result = linprog(
        cost,
        A_ub=a_ub,
        b_ub=b_ub,
        **equality,
        bounds=[(None, None)] * (d + n_pos) + [(0, None)] * n_neg + [margin],
        method='highs-ds',
        options={'primal_feasibility_tolerance': 1e-10, 'dual_feasibility_tolerance': 1e-10},
    )
    if not result.success:
        raise RuntimeError(f'linprog failed: {result.message}')
    # SciPy's marginals are derivatives of the value in the right sides: not above 0 for an upper bound.
    multipliers = -result.ineqlin.marginals
    return Program(
        objective=float(result.fun + constant),
        w=result.x[w],
        epsilon=float(result.x[-1]),
        tau=result.x[tau],
        phi=result.x[phi],
        mu=float(result.eqlin.marginals[0] if measure == 'f_beta' else multipliers[-1]),
        lam=n_pos * multipliers[n_pos : 2 * n_pos],
        nu=n_pos * multipliers[2 * n_pos : 2 * n_pos + n_neg],
    )


def dual_value(
    features_pos: npt.ArrayLike,
    features_neg: npt.ArrayLike,
    program: Program,
    measure: str,
    beta: float = 1.0,
    target: float | None = None,
) -> tuple[float, float]:
    """Return the value of the dual at the multipliers of a program, and by how much they miss its constraints.

    Where they miss none, the value is a lower bound of what any feasible point has, whoever found the multipliers.
    """
    pos, neg = np.asarray(features_pos, np.float64), np.asarray(features_neg, np.float64)
    mu, lam, nu = program.mu, program.lam, program.nu
    price_tau, price_phi = prices(mu, measure, target)
    kappa = price_tau - lam
    surplus = (nu.sum() - kappa.sum()) / len(pos)  # the derivative of the Lagrangian in ε, without its own cost
    missed = [-mu, *-lam, *-nu, *-kappa, *(nu - price_phi), *np.abs(lam @ pos - nu @ neg) / len(pos)]
    if measure == 'f_beta':
        return mu, max(*missed, -(beta**2 + surplus))
    constant = mu * target if measure == 'precision_at_recall' else 1.0
    return constant + surplus, max(missed)


def prices(mu: float, measure: str, target: float | None = None) -> tuple[float, float]:
    """Return what the Lagrangian pays for mean τ, and what it charges for mean φ: p and q of the table."""
    if measure == 'recall_at_precision':
        return 1 + mu * (1 - target), mu * target
    return mu, 1.0


def rate_violation(tau: npt.ArrayLike, phi: npt.ArrayLike, measure: str, target: float | None = None) -> float:
    """Return the left side of the rate constraint, which a feasible point has not above 0."""
    mean_tau, mean_phi = np.mean(tau), np.sum(phi) / np.size(tau)
    if measure == 'recall_at_precision':
        return float(target * mean_phi - (1 - target) * mean_tau)
    return float((1.0 if measure == 'f_beta' else target) - mean_tau)


def count(scores: Sequence[Any], labels: Sequence[Any], threshold: Any = None) -> tuple[int, int, int]:
    """Return TP, FP and FN of the decisions `score > 0`, or `score >= threshold` where there is one."""
    decisions = [score > 0 if threshold is None else score >= threshold for score in scores]
    pairs = [(decision, bool(label)) for decision, label in zip(decisions, labels, strict=True)]
    return pairs.count((True, True)), pairs.count((True, False)), pairs.count((False, True))


def f_beta(scores: Sequence[Any], labels: Sequence[Any], beta: float = 1.0) -> float:
    """Return F_β of the decisions `score > 0`; 0 without true positives."""
    return _f_beta(*count(scores, labels), beta)


def precision_recall(scores: Sequence[Any], labels: Sequence[Any]) -> tuple[float, float]:
    """Return the precision and the recall of the decisions `score > 0`; 0 where they are of nothing."""
    return _precision_recall(*count(scores, labels))


def best_f_beta(scores: Sequence[Any], labels: Sequence[Any], beta: float = 1.0) -> float:
    """Return the largest F_β of all thresholds."""
    return max(_f_beta(*count(scores, labels, threshold), beta) for threshold in scores)


def best_precision_at_recall(scores: Sequence[Any], labels: Sequence[Any], recall: float) -> float:
    """Return the largest precision of the thresholds that reach a recall."""
    points = [_precision_recall(*count(scores, labels, threshold)) for threshold in scores]
    return max((p for p, r in points if r >= recall), default=0.0)


def best_recall_at_precision(scores: Sequence[Any], labels: Sequence[Any], precision: float) -> float:
    """Return the largest recall of the thresholds that reach a precision; 0 if none does."""
    points = [_precision_recall(*count(scores, labels, threshold)) for threshold in scores]
    return max((r for p, r in points if p >= precision), default=0.0)


def auc_roc(scores: Sequence[Any], labels: Sequence[Any]) -> float:
    """Return the share of pairs whose positive scores more than the negative; equal scores are half a pair."""
    positives = [score for score, label in zip(scores, labels, strict=True) if label]
    negatives = [score for score, label in zip(scores, labels, strict=True) if not label]
    won = sum((p > n) + Fraction(1, 2) * (p == n) for p in positives for n in negatives)
    return float(won / (len(positives) * len(negatives)))


def _f_beta(tp: int, fp: int, fn: int, beta: float) -> float:
    return (1 + beta**2) * tp / ((1 + beta**2) * tp + beta**2 * fn + fp) if tp else 0.0


def _precision_recall(tp: int, fp: int, fn: int) -> tuple[float, float]:
    return (tp / (tp + fp), tp / (tp + fn)) if tp else (0.0, 0.0)

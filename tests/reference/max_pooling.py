"""Oracles of the loss max-pooling operator.

For the losses `l` of `n` pixels, an exponent `1 <= p <= inf` and a real number of pixels
`1 <= m <= n`, the operator is the optimal value and the optimal weights of

    max { w . l : ||w||_p <= gamma, ||w||_inf <= tau, w >= 0 },
    gamma = n^(-1/q),  tau = gamma m^(-1/p),  1/p + 1/q = 1.

Two solvers that share no derivation are given, and a checker that needs neither of them:

* `sorted_weights` evaluates the closed form (Theorems 1 and 2, Algorithm 1);
* `convex_weights` solves the problem numerically and certifies what it found;
* `optimality_gap` and `feasibility` prove the optimality of *any* weights. For every `lam >= 0`,
  Hölder's inequality alone gives

      w . l = w . lam + w . (l - lam) <= tau sum(lam) + gamma ||l - lam||_q,

  so feasible weights that nearly attain one such bound are nearly optimal, whoever made them.

Numbers are `numpy.longdouble` unless said otherwise. Losses are one-dimensional, finite and
non-negative; weights are in their order, and `m` need not be whole.

Reference: Rota Bulò, Neuhold, Kontschieder, "Loss Max-Pooling for Semantic Image Segmentation",
CVPR 2017.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

Array = npt.NDArray[np.longdouble]


class Solution(NamedTuple):
    """A primal-dual pair of `convex_weights`, with its certificate.

    Attributes:
        w: Primal point, feasible up to rounding.
        lam: Dual point, the multipliers of `w <= tau`.
        value: Primal value `w . l`, a lower bound of the optimal value.
        bound: Dual value at `lam`, an upper bound of the optimal value.
        gap: `(bound - value) / bound`, and 0 if the bound is 0.
    """

    w: Array
    lam: Array
    value: np.longdouble
    bound: np.longdouble
    gap: np.longdouble


def conjugate_exponent(p: float) -> np.longdouble:
    """Return `q = p / (p - 1)`, with `q = inf` for `p = 1` and `q = 1` for `p = inf`."""
    if p == 1:
        return np.longdouble(np.inf)
    if p == np.inf:
        return np.longdouble(1)
    return np.longdouble(p) / (np.longdouble(p) - 1)


def radii(n: int, p: float, m: float) -> tuple[np.longdouble, np.longdouble]:
    """Return the bounds `(gamma, tau)` of the p-norm and of the largest weight."""
    gamma = np.longdouble(n) ** (-1 / conjugate_exponent(p))
    return gamma, gamma * np.longdouble(m) ** (-1 / np.longdouble(p))


def norm(x: npt.ArrayLike, r: float | np.longdouble) -> np.longdouble:
    """Return `||x||_r` for `1 <= r <= inf`, to 1e-15, where no power can overflow."""
    x = np.abs(np.asarray(x, np.longdouble))
    largest: np.longdouble = x.max()
    if largest == 0 or r == np.inf:
        return largest
    # Double precision is quicker and enough: the root undoes what the power does to its error.
    powers = np.asarray(x / largest, np.float64) ** np.float64(r)
    total: np.longdouble = powers.sum(dtype=np.longdouble)
    return largest * total ** (1 / np.longdouble(r))


def sorted_weights(losses: npt.ArrayLike, p: float, m: float) -> tuple[Array, np.longdouble]:
    """Evaluate the closed form of the paper: Theorem 1 for `p > 1` and Theorem 2 for `p = 1`.

    The optimal weights are not unique in three cases, and these are the choices made:

    * `p = 1`: the pixels tied at `alpha*`, the loss of rank `ceil(m)`, share what the larger losses
      leave uniformly; if all losses are zero, this gives every pixel `1 / n`;
    * `1 < p < inf`: pixels without loss get 0, hence all of them if all losses are zero;
    * `p = inf`: every pixel gets `1 / n`, with or without loss.

    Returns:
        The weights `w*`, in the order of the losses, and the value of equation (10).
    """
    losses = np.asarray(losses, np.longdouble)
    _, tau = radii(losses.size, p, m)
    if p == np.inf:
        return np.full_like(losses, tau), tau * losses.sum()
    if p == 1:
        return _weights_of_p_1(losses, m, tau)

    n = losses.size
    order = np.argsort(losses, kind='stable')
    ascending = losses[order]
    n_zeros = int(np.count_nonzero(losses == 0))
    q = conjugate_exponent(p)
    surplus = np.longdouble(m) - n  # m - |J*| is this plus the pixels outside J*

    # Algorithm 1, with a_i divided by a power of the i-th loss: r_i = a_i / l_i^q lies in [1, i],
    # whatever q is. `eta_i > 0` reads `c_i > r_i`, and since r_i >= 1 the c of the previous step,
    # by which alpha* is divided, is positive in spite of rounding.
    r = np.longdouble(0)
    first = n  # position where J* begins, counted from 0
    for i in range(n_zeros, n):
        step = np.exp(q * _log_ratio(ascending[i - 1], ascending[i])) if i > n_zeros else 0
        r_next = 1 + r * step
        if surplus + i + 1 > r_next:
            first = i
            break
        r = r_next

    w = np.zeros_like(losses)
    w[order[first:]] = tau
    if first == n_zeros:  # alpha* = 0
        return w, tau * ascending[first:].sum()
    c = surplus + first
    pivot = ascending[first - 1]
    alpha = pivot * (r / c) ** (1 / q)
    # (l / alpha*)^(q - 1), where alpha* itself is not exact enough to be raised to a large power.
    exponent = _log_ratio(ascending[n_zeros:first], pivot) / (np.longdouble(p) - 1)
    w[order[n_zeros:first]] = tau * np.exp(exponent + np.log(c / r) / np.longdouble(p))
    return w, tau * (ascending[first:].sum() + c * alpha)


def _weights_of_p_1(losses: Array, m: float, tau: np.longdouble) -> tuple[Array, np.longdouble]:
    descending = np.sort(losses)[::-1]
    alpha = descending[math.ceil(m) - 1]
    above, tied = losses > alpha, losses == alpha
    share = (np.longdouble(m) - np.count_nonzero(above)) / np.count_nonzero(tied)
    w = tau * (above + share * tied)

    whole = math.floor(m)
    next_loss = descending[whole] if whole < losses.size else 0
    value = tau * (descending[:whole].sum() + (np.longdouble(m) - whole) * next_loss)
    return w, value


def _log_ratio(x: Array, y: np.longdouble) -> Array:
    """Return `log(x / y)` of positive numbers, exact also where the ratio rounds to 1."""
    ratio = x / y
    log: Array = np.where(ratio > 0.5, np.log1p(np.maximum((x - y) / y, -0.5)), np.log(ratio))
    return log


def convex_weights(losses: npt.ArrayLike, p: float, m: float) -> Solution:
    """Solve the problem numerically, without sorting, and certify the result.

    For `p = 1` it is a linear program. Otherwise the constraint `||w||_p <= gamma` is relaxed
    with a multiplier `mu`: what is left, `max { w . l - mu/p sum(w^p) : 0 <= w <= tau }`, is
    solved pixel by pixel by `min(tau, (l / mu)^(1 / (p - 1)))`, and `mu` is found by bisection as
    the smallest for which the p-norm is not exceeded.
    """
    losses = np.asarray(losses, np.longdouble)
    if p == 1:
        w, lam = _solve_linear_program(losses, m)
    elif p == np.inf:  # the ball is the box
        w, lam = np.full_like(losses, radii(losses.size, p, m)[1]), losses
    else:
        w, lam = _solve_by_bisection(losses, p, m)
    bound = dual_bound(losses, lam, p, m)
    return Solution(w, lam, w @ losses, bound, _relative_gap(bound, w @ losses))


def _solve_linear_program(losses: Array, m: float) -> tuple[Array, Array]:
    gamma, tau = radii(losses.size, 1, m)
    # The solver's tolerances are absolute: a large objective makes them tight.
    scale = losses.max() / 1e4 if losses.any() else np.longdouble(1)
    result = linprog(
        -np.asarray(losses / scale, np.float64),
        A_ub=np.ones((1, losses.size)),
        b_ub=[m],
        bounds=(0, 1),
        method='highs-ds',
        options={'primal_feasibility_tolerance': 1e-10, 'dual_feasibility_tolerance': 1e-10},
    )
    if not result.success:
        raise RuntimeError(f'linprog failed: {result.message}')
    w = tau * np.clip(np.asarray(result.x, np.longdouble), 0, 1)
    w *= gamma / max(gamma, norm(w, 1))
    lam = scale * np.maximum(0, -np.asarray(result.upper.marginals, np.longdouble))
    return w, lam


def _solve_by_bisection(losses: Array, p: float, m: float) -> tuple[Array, Array]:
    _, tau = radii(losses.size, p, m)
    positive = losses > 0
    if np.count_nonzero(positive) <= m:  # the box alone binds
        return tau * positive, losses
    log_losses = np.log(losses[positive])

    # The multiplier is parametrised by the loss at which the weight reaches tau, mu = level /
    # tau^(p - 1), in logarithms. The weights are compared with tau: (gamma / tau)^p = m.
    def log_weights(log_level: np.longdouble) -> Array:
        exponents: Array = np.minimum(0, (log_losses - log_level) / (np.longdouble(p) - 1))
        return exponents

    low = log_losses.min()  # all weights are tau: too large
    high = log_losses.max() + np.log(np.longdouble(log_losses.size))
    middle = (low + high) / 2
    while low < middle < high and high - low > 1e-19:
        exponents = np.longdouble(p) * log_weights(middle)
        below = exponents < 0
        # The weights at the bound are subtracted, so that they do not absorb the tiny ones.
        if np.exp(exponents[below]).sum() <= np.longdouble(m) - np.count_nonzero(~below):
            high = middle
        else:
            low = middle
        middle = (low + high) / 2

    w = np.zeros_like(losses)
    w[positive] = tau * np.exp(log_weights(high))
    # The derivative of the relaxed problem where w = tau.
    return w, np.maximum(0, losses - np.exp(high))


def dual_bound(losses: npt.ArrayLike, lam: npt.ArrayLike, p: float, m: float) -> np.longdouble:
    """Return `tau sum(lam) + gamma ||l - lam||_q` for `lam >= 0`, which no feasible weights exceed.

    Raises:
        ValueError: If `lam` has a negative entry: the bound would not hold.
    """
    losses, lam = np.asarray(losses, np.longdouble), np.asarray(lam, np.longdouble)
    if not (lam >= 0).all():
        raise ValueError(f'lam must be non-negative, found {lam.min()}')
    gamma, tau = radii(losses.size, p, m)
    penalty: np.longdouble = tau * lam.sum()
    return penalty + gamma * norm(losses - lam, conjugate_exponent(p))


def optimality_gap(losses: npt.ArrayLike, w: npt.ArrayLike, p: float, m: float) -> np.longdouble:
    """Return how far `w . l` stays, relatively, below an upper bound of the optimal value.

    The bound is the least of `dual_bound(losses, max(losses - alpha, 0), p, m)` over `alpha`, by
    golden-section search. It is an upper bound wherever the search stops, so a small gap of weights
    that pass `feasibility` proves that they are optimal. The weights take no part in the search.

    Returns:
        `(bound - w . l) / bound`, and 0 if all losses are zero. It is negative, beyond rounding,
        only for infeasible weights.
    """
    losses, w = np.asarray(losses, np.longdouble), np.asarray(w, np.longdouble)
    return _relative_gap(_least_bound(losses, p, m), w @ losses)


def _relative_gap(bound: np.longdouble, value: np.longdouble) -> np.longdouble:
    return (bound - value) / bound if bound > 0 else np.longdouble(0)


def _least_bound(losses: Array, p: float, m: float) -> np.longdouble:
    if not losses.any():
        return np.longdouble(0)

    def bound(log_alpha: np.longdouble) -> np.longdouble:
        return dual_bound(losses, np.maximum(0, losses - np.exp(log_alpha)), p, m)

    # The bound decreases, then increases, in alpha. It looks flat where alpha is too small to
    # count, left of the minimum, so that a tie sends the search to the right.
    rounding = 1e-15
    shrink = (np.sqrt(np.longdouble(5)) - 1) / 2
    low, high = np.log(losses[losses > 0].min()), np.log(losses.max())
    least = min(bound(low), bound(high), dual_bound(losses, losses, p, m))
    left, right = high - shrink * (high - low), low + shrink * (high - low)
    at_left, at_right = bound(left), bound(right)
    while high - low > 1e-14:
        least = min(least, at_left, at_right)
        if at_left < at_right * (1 - rounding):
            high, right, at_right = right, left, at_left
            left = high - shrink * (high - low)
            at_left = bound(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + shrink * (high - low)
            at_right = bound(right)
    return least


def feasibility(w: npt.ArrayLike, p: float, m: float) -> tuple[np.longdouble, np.longdouble, np.longdouble]:
    """Return `(||w||_p / gamma - 1, ||w||_inf / tau - 1, min(w))`.

    Feasible weights have the first two at most 0 and the third at least 0. The first is computed
    from logarithms, because `sum(w^p)` and `gamma` underflow for large `p` and `n`.
    """
    w = np.asarray(w, np.longdouble)
    largest = np.abs(w).max()
    if largest == 0:
        return np.longdouble(-1), np.longdouble(-1), w.min()
    gamma, tau = radii(w.size, p, m)
    log_excess = np.log(norm(w / largest, p)) + np.log(largest) - np.log(gamma)
    return np.expm1(log_excess), largest / tau - 1, w.min()

"""Oracles of the top-k losses, by enumeration of the sets of k labels.

Of `n` labels with the scores `s`, `Y^(k)` are the sets `A` of `k` labels, and `Y_y^(k)` those among them that have the
label `y`. With `f(A) = Σ_{j in A} s_j`, the loss of the paper (equation 9, with a margin `Δ`) is

    L(s, y) = τ log Σ_{A in Y^(k)} exp((Δ [y not in A] + f(A) / k) / τ) - τ log Σ_{A in Y_y^(k)} exp(f(A) / kτ),

and its derivative, a difference of two expectations,

    ∂L / ∂s_j = (P(j in A) - P(j in A | y in A)) / k.

`smooth_topk_loss`, `hard_topk_loss` (equation 8: maxima instead of sums), `topk_marginals` (appendix C) and
`elementary_symmetric` write out such sums. They share no step with

* `summation_algorithm` (Algorithm 3) and `backward_algorithm` (Algorithm 2), for numbers of any type: with fractions
  both are exact, with floats the second is not, which is the subject of the paper's appendix B.2;
* `smooth_topk_loss_of_polynomials` (equation 10), which keeps the digits of losses close to 0;
* `hard_topk_loss_of_ranks` (appendix A), for which nothing is enumerated.

A score of -inf removes a label from all sets. Where no set is left, and the loss is `-inf - (-inf)`, it is 0; without a
set that has `y`, it is inf. Everything is of one item: scores are one-dimensional. Numbers are `numpy.longdouble`.

Reference: Berrada, Zisserman, Kumar, "Smooth Loss Functions for Deep Top-k Classification", ICLR 2018.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.longdouble]


class Loss(NamedTuple):
    """A value, and the gradient where there is a finite one."""

    value: np.longdouble
    gradient: Array


@functools.cache
def members(n: int, k: int) -> npt.NDArray[np.bool_]:
    """Return whether each set of k of n labels (rows) has each label (columns)."""
    sets = [np.isin(np.arange(n), A) for A in itertools.combinations(range(n), k)]
    return np.array(sets).reshape(len(sets), n)


def set_scores(s: Array, has: npt.NDArray[np.bool_]) -> Array:
    """Return the sum of the scores in each set."""
    return np.where(has, s, 0).sum(1, dtype=np.longdouble)


def log_sum_exp(x: Array) -> np.longdouble:
    """Return log Σ exp(x), which is -inf for nothing."""
    highest = x.max(initial=-np.inf)
    return highest if np.isinf(highest) else highest + np.log(np.exp(x - highest).sum())


def expectation(has: npt.NDArray[np.bool_], x: Array) -> Array:
    """Return the probability of each label to be in a set that is drawn in proportion to exp(x)."""
    if log_sum_exp(x) == -np.inf:
        return np.zeros(has.shape[1], np.longdouble)
    p = np.exp(x - log_sum_exp(x))
    return p @ has


def elementary_symmetric(e: Sequence[Any], k: int) -> Any:
    """Return σ_k, the sum over all sets of k numbers of their products, in the type of the numbers."""
    total = 0
    for A in itertools.combinations(e, k):
        product = 1
        for number in A:
            product = product * number
        total = total + product
    return total


def log_elementary_symmetric(x: npt.ArrayLike, k: int) -> Loss:
    """Return log σ_k of exp(x), and its gradient."""
    x = np.asarray(x, np.longdouble)
    has = members(x.size, k)
    f = set_scores(x, has)
    return Loss(log_sum_exp(f), expectation(has, f))


def topk_marginals(s: npt.ArrayLike, k: int) -> Array:
    """Return the probability of each label to be in a set that is drawn with weight exp(f(A)); they add up to k."""
    return log_elementary_symmetric(s, k).gradient


def smooth_topk_loss(s: npt.ArrayLike, y: int, k: int, tau: float, margin: float = 1) -> Loss:
    """Return equation 9 and its gradient. The value has an absolute error: it is a difference."""
    s, tau = np.asarray(s, np.longdouble), np.longdouble(tau)
    has = members(s.size, k)
    f = set_scores(s, has) / (k * tau)
    augmented = f + np.where(has[:, y], 0, margin / tau)
    of_all, with_y = log_sum_exp(augmented), log_sum_exp(f[has[:, y]])
    if of_all == -np.inf:
        return Loss(np.longdouble(0), np.zeros_like(s))
    gradient = (expectation(has, augmented) - expectation(has[has[:, y]], f[has[:, y]])) / k
    return Loss(tau * (of_all - with_y), gradient)


def hard_topk_loss(s: npt.ArrayLike, y: int, k: int, margin: float = 1) -> Loss:
    """Return equation 8 and a gradient, which is the only one where the maxima are attained once."""
    s = np.asarray(s, np.longdouble)
    has = members(s.size, k)
    f = set_scores(s, has) / k
    augmented = f + np.where(has[:, y], 0, margin)
    best, best_with_y = augmented.argmax(), np.where(has[:, y], f, -np.inf).argmax()
    if augmented[best] == -np.inf:
        return Loss(np.longdouble(0), np.zeros_like(s))
    gradient = (has[best].astype(np.longdouble) - has[best_with_y]) / k
    return Loss(augmented[best] - f[has[:, y]].max(), gradient)


def hard_topk_loss_of_ranks(s: npt.ArrayLike, y: int, k: int, margin: float = 1) -> np.longdouble:
    """Return max(s_{without y, [k]} / k + margin - s_y / k, 0), as appendix A defines it."""
    s = np.asarray(s, np.longdouble)
    kth = np.sort(np.delete(s, y))[::-1][k - 1]
    return max(margin + (kth - s[y]) / k, np.longdouble(0)) if kth > -np.inf else np.longdouble(0)


def summation_algorithm(e: Sequence[Any], k: int) -> list[Any]:
    """Return σ_0, ..., σ_k of the numbers: Algorithm 3, number by number, in their type."""
    zero = e[0] - e[0]
    sigma = [zero + 1] + [zero] * k
    for number in e:
        # From the highest degree down, so that the lower one is still without the number.
        for j in range(k, 0, -1):
            sigma[j] = sigma[j] + number * sigma[j - 1]
    return sigma


def backward_algorithm(e: Sequence[Any], sigma: Sequence[Any], k: int) -> list[Any]:
    """Return ∂σ_k / ∂e_i for each i: Algorithm 2, a recursion over the degree that subtracts, in the given type."""
    derivatives = []
    for number in e:
        delta = sigma[0]
        for j in range(2, k + 1):
            delta = sigma[j - 1] - number * delta
        derivatives.append(delta)
    return derivatives


def smooth_topk_loss_of_polynomials(s: npt.ArrayLike, y: int, k: int, tau: float, margin: float = 1) -> np.longdouble:
    """Return equation 10, τ log(1 + exp(Δ/τ) σ_k(e_without_y) / (e_y σ_{k-1}(e_without_y))), for sums in range."""
    s, tau = np.asarray(s, np.longdouble), np.longdouble(tau)
    e = np.exp((s - s.max()) / (k * tau))
    sigma = summation_algorithm(np.delete(e, y), k)
    return tau * np.log1p(np.exp(margin / tau) * sigma[k] / (e[y] * sigma[k - 1]))

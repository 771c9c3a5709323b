"""What the settings of top-k losses and metrics may be. Checked once, here."""

import math
from collections.abc import Sequence


def check_degree(k: int, lowest: int = 0) -> None:
    """Raise unless the degree is an integer from the lowest on."""
    if not isinstance(k, int) or isinstance(k, bool):
        raise TypeError(f'Parameter `k` should be an integer. Found {k!r}.')
    if k < lowest:
        raise ValueError(f'Parameter `k` should be at least {lowest}. Found {k}.')


LARGEST_DEGREE = 1000
"""Largest degree of a symmetric sum: the number of subsets of so many numbers is in the range of float64."""


def check_summable(k: int) -> None:
    """Raise if sums over sets of k numbers may be out of range."""
    if k > LARGEST_DEGREE:
        raise ValueError(f'Parameter `k` should be at most {LARGEST_DEGREE}, for sums over sets of k. Found {k}.')


def check_k(k: int, n_classes: int) -> None:
    """Raise unless k labels leave one out."""
    check_degree(k, lowest=1)
    if k >= n_classes:
        raise ValueError(
            f'Parameter `k` should be below the number of classes, {n_classes}: with {k}, every label is in the top k. '
            f'Found {k}; take at most {n_classes - 1}.'
        )


def check_k_weights(ks: Sequence[int], weights: Sequence[float]) -> None:
    """Raise unless each k is one, and has a weight."""
    for k in ks:
        check_degree(k, lowest=1)
    if not ks or len(set(ks)) < len(ks):
        raise ValueError(f'Parameter `k` should hold at least one number, and each once. Found {list(ks)}.')
    if not isinstance(weights, Sequence):
        raise TypeError(f'Parameter `k_weights` should be a list of numbers. Found {weights!r}.')
    if not all(isinstance(weight, (int, float)) and 0 < weight < math.inf for weight in weights):
        raise ValueError(f'Parameter `k_weights` should hold positive numbers. Found {list(weights)}.')
    if len(weights) != len(ks):
        raise ValueError(f'Parameter `k_weights` should hold a weight for each `k`, {len(ks)}. Found {list(weights)}.')


def check_temperature(tau: float) -> None:
    """Raise unless the temperature is positive."""
    if isinstance(tau, bool) or not isinstance(tau, (int, float)):
        raise TypeError(f'Parameter `tau` should be a number. Found {tau!r}.')
    if not 0 < tau < math.inf:
        raise ValueError(f'Parameter `tau` should be positive and finite; `hard_topk_loss` is its limit. Found {tau}.')


def check_margin(margin: float) -> None:
    """Raise unless the margin is a number that is not negative."""
    if isinstance(margin, bool) or not isinstance(margin, (int, float)):
        raise TypeError(f'Parameter `margin` should be a number. Found {margin!r}.')
    if not 0 <= margin < math.inf:
        raise ValueError(f'Parameter `margin` should be finite and not negative. Found {margin}.')

"""Scores of positives and negatives on which rankings are tested, and what a ranking of them is worth."""

import functools
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from reference import direct_loss as reference
from torch import Tensor

DIRECTIONS = {'positive': 1, 'negative': -1}
each_direction = pytest.mark.parametrize('direction', DIRECTIONS)


class Case(NamedTuple):
    """A problem, and the counts of negatives above its positives in the ranking that maximises F + sign ε Δ."""

    pos: Tensor
    neg: Tensor
    epsilon: float
    sign: int
    counts: list[int]


def scores(rng, n_pos, n_neg, tied=False):
    pos, neg = rng.normal(size=n_pos), rng.normal(size=n_neg)
    return (np.round(pos), np.round(neg)) if tied else (pos, neg)


def descending(*parts):
    return tuple(torch.as_tensor(part).double().sort(descending=True).values for part in parts)


def different_problems():
    """Return problems of different sizes, some without positives or without negatives."""
    rng = np.random.default_rng(3)
    return [descending(*scores(rng, *size)) for size in [(3, 10), (0, 4), (5, 0), (1, 1), (8, 30), (8, 2)]]


def padded(*problems):
    """Return problems as one batch: scores of positives and negatives, and their numbers."""
    widths = [max(map(len, kind)) for kind in zip(*problems, strict=True)]
    pos, neg = (torch.full((len(problems), width), -math.inf).double() for width in widths)
    for k, (p, n) in enumerate(problems):
        pos[k, : len(p)], neg[k, : len(n)] = p, n
    return pos, neg, *torch.tensor([[len(p), len(n)] for p, n in problems]).unbind(1)


def objective(pos, neg, counts, epsilon, sign):
    """Return F ± ε Δ of the interleaving with these counts of negatives above the positives."""
    order, place = [], 0
    positives = sorted(range(len(pos)), key=lambda i: -pos[i])
    negatives = sorted(range(len(neg)), key=lambda j: -neg[j])
    for i, count in zip(positives, counts, strict=True):
        order += [len(pos) + j for j in negatives[place:count]] + [i]
        place = count
    order += [len(pos) + j for j in negatives[place:]]
    return float(reference.objective(tuple(order), pos, neg, sign * epsilon))


def items(n=40, seed=0, tied=False, dtype=torch.float64):
    """Return scores of the items of one problem, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, generator=generator, dtype=torch.float64)
    target = torch.randint(2, (n,), generator=generator)
    return ((2 * scores).round() / 2 if tied else scores).to(dtype), target


def value_and_gradient_of(function, scores, *args, **kwargs):
    scores = scores.detach().requires_grad_()
    value = function(scores, *args, **kwargs)
    return value.detach(), torch.autograd.grad(value, scores)[0]


@functools.cache
def random_cases():
    """Return 1000 random cases in both directions, solved cell by cell."""
    rng, cases = np.random.default_rng(1), []
    for case in range(1000):
        n_pos, n_neg = int(rng.integers(1, 51)), int(rng.integers(1, 401))
        epsilon, sign = float(10 ** rng.uniform(-3, 2)), (-1) ** case
        pos, neg = descending(*scores(rng, n_pos, n_neg))
        optimum = reference.dynamic_programme(pos.tolist(), neg.tolist(), epsilon, sign)
        cases.append(Case(pos, neg, epsilon, sign, reference.negatives_above(optimum.ranking, n_pos)))
    return cases

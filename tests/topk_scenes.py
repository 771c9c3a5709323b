"""Scores and labels on which the top-k losses are tested."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from calls import value_and_gradient as value_and_gradient

INF = math.inf
FAMILIES = {
    'normal': lambda rng, n: 2 * rng.normal(size=n),
    'tied': lambda rng, n: rng.integers(0, 3, n).astype(float),
    'constant': lambda rng, n: np.full(n, 0.7),
    'huge': lambda rng, n: 1e4 * rng.normal(size=n),
    'huge and tied': lambda rng, n: 1e4 * rng.integers(0, 3, n),
    'tiny': lambda rng, n: 1e-8 * rng.normal(size=n),
    'half masked': lambda rng, n: np.where(rng.permutation(n) < (n + 1) // 2, rng.normal(size=n), -INF),
    'one label': lambda rng, n: np.where(rng.permutation(n) == 0, 1.5, -INF),
}
each_dtype = pytest.mark.parametrize('dtype', [torch.float64, torch.float32], ids=str)
each_kind = pytest.mark.parametrize('soft', [False, True], ids=['labels', 'soft labels'])


def normal(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def one_hot(target, n_classes, dtype=torch.float64):
    return F.one_hot(target, n_classes).movedim(-1, 1).to(dtype)


def scene(*shape, soft=False, dtype=torch.float64):
    scores = 3 * normal(*shape, dtype=dtype)
    if soft:
        return scores, (4 * normal(*shape, seed=1)).softmax(1).to(dtype)
    target = torch.randint(shape[1], (shape[0], *shape[2:]), generator=torch.Generator().manual_seed(2))
    return scores, target

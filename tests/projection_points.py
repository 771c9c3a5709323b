"""Points outside and inside the cone that the S-measures project on."""

import numpy as np
import pytest
import torch


def spread(rng, n, orders=12):
    return 10 ** rng.uniform(-orders, orders, n) * rng.choice([-1, 1], n)


COMMON = {
    'around zero': lambda rng, n: (rng.normal(size=n), rng.normal()),
    'all negative': lambda rng, n: (-rng.exponential(size=n), rng.normal()),
    'negative bound': lambda rng, n: (rng.normal(size=n), -rng.exponential()),
    'far negative bound': lambda rng, n: (rng.exponential(size=n), -n * rng.exponential()),
    'already feasible': lambda rng, n: (1 - rng.exponential(size=n), 1.0),
    'ties': lambda rng, n: (rng.integers(-2, 3, n) / 2, rng.integers(-2, 3) / 2),
    'equal to the bound': lambda rng, n: (np.full(n, 0.1), 0.1),
    'zeros': lambda rng, n: (np.zeros(n), 0.0),
    'mean of zero': lambda rng, n: (np.ones(n), -float(n)),
    'geometric': lambda rng, n: (2.0 ** -(np.arange(n) % 90), -0.5),
}
EXACT = COMMON | {
    'positive': lambda rng, n: (rng.exponential(size=n), rng.exponential()),
    'ties of decimals': lambda rng, n: (rng.choice([0.1, 0.3, 0.7], n), rng.choice([0.1, 0.3, 0.7])),
    'equal': lambda rng, n: (np.full(n, rng.normal()), rng.normal()),
    'some equal to the bound': lambda rng, n: (np.where(rng.random(n) < 0.5, 0.3, rng.normal(size=n)), 0.3),
    'each at the mean of those before': lambda rng, n: (np.ones(n) - 1e-16 * rng.integers(0, 9, n), 1.0),
    'close': lambda rng, n: (1 + 1e-9 * rng.normal(size=n), 1.0),
    '24 orders of magnitude': lambda rng, n: (spread(rng, n), spread(rng, 1)[0]),
    'one giant': lambda rng, n: (np.where(np.arange(n) == n // 2, 1e12, rng.normal(size=n)), 1e-12),
    'denormal': lambda rng, n: (5e-324 * rng.integers(-9, 10, n), 5e-324 * rng.integers(-9, 10)),
    'huge': lambda rng, n: (1e300 * rng.normal(size=n), 1e300 * rng.normal()),
}
SOFT = COMMON | {
    'root near zero': lambda rng, n: (rng.exponential(size=n), -0.317 * n),
    'twenty temperatures apart': lambda rng, n: (rng.choice([-2.1, 0.0, 2.1, 4.3], n), 0.0),
    'large': lambda rng, n: (1e8 * rng.normal(size=n), 1e8 * rng.normal()),
    '12 orders of magnitude': lambda rng, n: (spread(rng, n, 6), rng.normal()),
    'one large': lambda rng, n: (np.where(np.arange(n) == n // 2, 1e6, rng.normal(size=n)), -1.0),
}
each_exact = pytest.mark.parametrize('family', EXACT)
each_soft = pytest.mark.parametrize('family', SOFT)


def point(family, n, seed=0):
    """A τ of n values and its bound, in float64."""
    tau, eps = (EXACT | SOFT)[family](np.random.default_rng([n, seed]), n)
    return torch.tensor(tau, dtype=torch.float64), torch.tensor(float(eps), dtype=torch.float64)


def joined(tau, eps):
    return torch.cat([tau, eps.unsqueeze(-1)], -1)


def scale(tau, eps, temperature=0.0):
    return joined(tau, eps).abs().max().item() + temperature


def assert_rows_do_not_depend_on_the_layout(project, points, **tolerances):
    """Rows of a batch, of any shape and strides, are projected as each alone."""
    tau, eps = (torch.stack(parts) for parts in zip(*points, strict=True))
    rows, bounds = (torch.stack(parts) for parts in zip(*(project(*each) for each in points), strict=True))
    for arranged in (
        lambda x: x,
        lambda x: x[::3],
        lambda x: x.unflatten(0, (3, 4)),
        lambda x: x.unflatten(0, (3, 4)).transpose(0, 1),
        lambda x: x[:1].expand(5, *x.shape[1:]),
        lambda x: x[None],
    ):
        expected = arranged(rows), arranged(bounds)
        torch.testing.assert_close(project(arranged(tau), arranged(eps)), expected, **tolerances)
    torch.testing.assert_close(project(tau.T.contiguous().T, eps), (rows, bounds), **tolerances)


T, E = torch.zeros(2, 3), torch.zeros(2)
BAD_ROWS = [
    ((T.long(), E), TypeError, '`tau`.*int64'),
    ((T.bool(), E), TypeError, '`tau`.*bool'),
    ((T, E.long()), TypeError, '`eps`.*int64'),
    ((T, torch.zeros(3)), ValueError, r'`eps`.*`tau`.*\(3,\) for \(2, 3\)'),
    ((T, torch.zeros(2, 1)), ValueError, r'`eps`.*\(2, 1\) for \(2, 3\)'),
    ((T, torch.tensor(0.0)), ValueError, r'`eps`.*\(\) for \(2, 3\)'),
    ((T[0, 0], E[0]), ValueError, r'`eps`.*\(\) for \(\)'),
]

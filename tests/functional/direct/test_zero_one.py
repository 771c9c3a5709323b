"""The value is the share of wrong labels, the gradient that of the paper at a finite epsilon."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from ranking_scenes import value_and_gradient_of
from reference import direct_loss as reference

from mmseg_nondecomp.functional import direct_zero_one_loss
from mmseg_nondecomp.functional.direct._gradient import MODES

each_mode = pytest.mark.parametrize('mode', MODES)
value_and_gradient = partial(value_and_gradient_of, direct_zero_one_loss)


@each_mode
@pytest.mark.parametrize('epsilon', [0.25, 1.0, 4.0])
def test_is_the_enumeration(mode, epsilon):
    """On the borders, too, which quarters hit."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 5):
        for _case in range(20):
            s, y = rng.integers(-8, 9, n) / 8, rng.integers(0, 2, n)
            exact = [Fraction(x) for x in s.tolist()]
            expected = reference.direct_zero_one(exact, (2 * y - 1).tolist(), Fraction(epsilon), mode)
            value, gradient = value_and_gradient(torch.tensor(s), torch.tensor(y), epsilon, mode)
            np.testing.assert_allclose(gradient, np.array(expected.gradient, float), rtol=1e-13)
            loss = expected.loss if mode in ('positive', 'negative') else expected.surrogate
            assert value.item() == pytest.approx(float(loss), rel=1e-13)


@pytest.mark.parametrize('mode', ['positive', 'negative'])
@pytest.mark.parametrize('epsilon', [0.1, 1 / 3, 0.25, 1e-6, 1e30, 3e38, 1e300])
def test_borders_of_single_precision_are_those_of_the_number(mode, epsilon):
    """A border that float32 does not hold is between two scores, and none is on it."""
    border = torch.tensor([epsilon / 2, -epsilon / 2, 0.0]).clamp(-1e38, 1e38)
    infinity = torch.tensor(math.inf)
    scores = torch.cat([border, border.nextafter(infinity), border.nextafter(-infinity), infinity.view(1)])
    for label in (0, 1):
        target = torch.full(scores.shape, label)
        _, gradient = value_and_gradient(scores, target, epsilon, mode)
        _, expected = value_and_gradient(scores.double(), target, epsilon, mode)
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-6, atol=1e-44)


@each_mode
def test_nan_is_not_hidden(mode):
    assert direct_zero_one_loss(torch.tensor([1.0, math.nan]), torch.tensor([1, 0]), mode=mode).isnan()

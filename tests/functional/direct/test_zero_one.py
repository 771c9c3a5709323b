"""The value is the share of wrong labels, the gradient that of the paper at a finite epsilon."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from reference import direct_loss as reference

from mmseg_nondecomp.functional import direct_zero_one_loss
from mmseg_nondecomp.functional.direct._gradient import MODES

each_mode = pytest.mark.parametrize('mode', MODES)


def value_and_gradient(scores, target, *arguments, **kwargs):
    scores = scores.detach().requires_grad_()
    value = direct_zero_one_loss(scores, target, *arguments, **kwargs)
    return value.detach(), torch.autograd.grad(value, scores)[0]


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
def test_a_weight_of_0_removes_an_item(mode):
    scores, target = torch.tensor([0.02, -0.01, math.nan, 0.03]), torch.tensor([1, 1, 0, 0])
    weight = torch.tensor([1, 1, 0, 1])
    value, gradient = value_and_gradient(scores, target, mode=mode, weight=weight)
    kept = weight > 0
    expected, of_kept = value_and_gradient(scores[kept], target[kept], mode=mode)
    assert value == expected
    assert torch.equal(gradient[kept], of_kept)
    assert gradient[2] == 0


@each_mode
def test_nothing_is_an_attached_zero(mode):
    scores = torch.ones(3, requires_grad=True)
    value = direct_zero_one_loss(scores, torch.ones(3).long(), mode=mode, weight=torch.zeros(3))
    assert value == 0
    value.backward()
    assert not scores.grad.any()


@each_mode
def test_nan_is_not_hidden(mode):
    assert direct_zero_one_loss(torch.tensor([1.0, math.nan]), torch.tensor([1, 0]), mode=mode).isnan()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype):
    scores, target = torch.tensor([0.02, -0.01, 0.5, 0.03]).to(dtype), torch.tensor([1, 1, 0, 0])
    value, gradient = value_and_gradient(scores, target)
    assert value.dtype == torch.float32
    assert value == 0.75
    assert gradient.dtype == dtype
    assert gradient.tolist() == [-5, 0, 0, 0]


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        (dict(epsilon=0.0), ValueError, '`epsilon`'),
        (dict(mode='both'), ValueError, "`mode`.*'both'"),
        (dict(scores=torch.ones(3).long()), TypeError, '`scores`.*int64'),
        (dict(target=torch.tensor([0, 1, -1])), ValueError, '`target`.*-1'),
        (dict(weight=torch.tensor([1.0, 2.0, 1.0])), ValueError, r'`weight`.*2\.0'),
    ],
)
def test_bad_input(arguments, error, message):
    with pytest.raises(error, match=message):
        direct_zero_one_loss(**{**dict(scores=torch.ones(3), target=torch.tensor([0, 1, 1])), **arguments})

"""Numbers and logarithms give the same sums, and numbers are used exactly where nothing is lost."""

import math

import numpy as np
import pytest
import torch
from reference import smooth_topk as reference

from mmseg_nondecomp.functional import log_elementary_symmetric, log_sums
from mmseg_nondecomp.functional.leave_one_out import log_leave_one_out
from mmseg_nondecomp.functional.polynomial_products import logarithms


@pytest.fixture
def arithmetics(monkeypatch):
    """The arithmetics that were used, in turn: the dtype of numbers, or 'logarithms'."""
    used = []
    monkeypatch.setattr(log_sums, 'logarithms', lambda dtype, k: used.append('logarithms') or logarithms(dtype, k))

    def is_in_range(sums, n, k, judge=log_sums._is_in_range):
        used.append(sums.dtype)
        return judge(sums, n, k)

    monkeypatch.setattr(log_sums, '_is_in_range', is_in_range)
    return used


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize('gap', [1, 5, 10, 20, 30, 40, 60, 100, 150, 200, 230, 240, 250, 300, 350, 400, 1000])
def test_nothing_is_lost_while_the_gap_grows(dtype, gap):
    """One number is e^gap times as large as the others, which the sums of the higher degrees need."""
    x = torch.tensor([0.0] + [-gap + i / 8 for i in range(9)], dtype=dtype).requires_grad_()
    found = log_elementary_symmetric(x, 4)
    rounding = 1e-13 if dtype == torch.float64 else 1e-6
    for k in range(1, 5):
        expected = reference.log_elementary_symmetric(x.detach(), k)
        assert found[k].item() == pytest.approx(float(expected.value), rel=rounding, abs=rounding)
        gradient = torch.autograd.grad(found[k], x, retain_graph=True)[0].double()
        np.testing.assert_allclose(gradient, expected.gradient.astype(float), rtol=0, atol=rounding)


@pytest.mark.parametrize(
    ('gap', 'used'),
    [
        (5, [torch.float32]),
        (30, [torch.float32, torch.float64]),
        (300, [torch.float32, torch.float64, 'logarithms']),
    ],
)
def test_the_arithmetic_is_as_wide_as_it_has_to_be(arithmetics, gap, used):
    log_elementary_symmetric(torch.tensor([0.0] + [-gap] * 9), 4)
    assert arithmetics == used


def test_double_precision_is_not_narrowed(arithmetics):
    log_elementary_symmetric(torch.zeros(9).double(), 4)
    assert arithmetics == [torch.float64]


@pytest.mark.parametrize('bad', [math.inf, math.nan, -math.inf])
def test_what_is_not_finite_is_left_to_logarithms(arithmetics, bad):
    log_elementary_symmetric(torch.full((9,), bad), 4)
    assert arithmetics[-1] == 'logarithms'


def test_many_products_do_not_overflow(arithmetics):
    """C(2000, 300) is far above the largest number, but not where the numbers are scaled."""
    x = torch.zeros(2000).double()
    expected = math.lgamma(2001) - math.lgamma(301) - math.lgamma(1701)
    assert log_elementary_symmetric(x, 300)[-1].item() == pytest.approx(expected, rel=1e-13)
    assert arithmetics == [torch.float64]


def test_a_batch_is_split_into_blocks_that_are_independent(monkeypatch):
    x = torch.randn(13, 7, generator=torch.Generator().manual_seed(0)).double()
    x[5] *= 1e4
    for function in (log_elementary_symmetric, log_leave_one_out):
        expected = torch.stack([function(row, 3) for row in x])
        monkeypatch.setattr(log_sums, 'BLOCK', 2 * 7)
        torch.testing.assert_close(function(x, 3), expected, rtol=1e-13, atol=1e-13)
        monkeypatch.undo()


def test_only_a_block_out_of_range_needs_logarithms(monkeypatch, arithmetics):
    monkeypatch.setattr(log_sums, 'BLOCK', 7)
    x = torch.zeros(3, 7).double()
    x[1, 0] = 1e4
    log_elementary_symmetric(x, 3)
    assert arithmetics == [torch.float64, torch.float64, 'logarithms', torch.float64]

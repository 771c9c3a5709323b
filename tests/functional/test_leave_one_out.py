import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from mmseg_nondecomp.functional import log_elementary_symmetric
from mmseg_nondecomp.functional.leave_one_out import log_leave_one_out

pytestmark = pytest.mark.usefixtures('each_arithmetic')

FAMILIES = {
    'normal': lambda n, g: torch.randn(3, n, generator=g).double(),
    'tied': lambda n, g: torch.randint(3, (3, n), generator=g).double(),
    'constant': lambda n, g: torch.full((3, n), 0.7).double(),
    'huge': lambda n, g: 1e4 * torch.randn(3, n, generator=g).double(),
    'some zero': lambda n, g: torch.randn(3, n, generator=g).double().masked_fill(torch.arange(n) % 3 > 0, -math.inf),
    'all zero': lambda n, g: torch.full((3, n), -math.inf).double(),
}


def one_by_one(x, k):
    without = [torch.cat([x[..., :i], x[..., i + 1 :]], -1) for i in range(x.shape[-1])]
    return torch.stack([log_elementary_symmetric(rest, k) for rest in without], -2)


@pytest.mark.parametrize('family', FAMILIES)
@pytest.mark.parametrize('n', [1, 2, 3, 4, 5, 7, 12])
def test_is_the_function_of_the_others(family, n):
    x = FAMILIES[family](n, torch.Generator().manual_seed(n))
    for k in (0, 1, 5, 13):
        torch.testing.assert_close(log_leave_one_out(x, k), one_by_one(x, k), rtol=1e-12, atol=1e-12)
        close = {'rtol': 1e-5, 'atol': 1e-5}
        torch.testing.assert_close(log_leave_one_out(x.float(), k).double(), one_by_one(x.float().double(), k), **close)


@pytest.mark.parametrize('family', FAMILIES)
def test_gradients_are_those_of_the_others(family):
    for n in (2, 5, 12):
        x = FAMILIES[family](n, torch.Generator().manual_seed(n)).requires_grad_()
        upstream = torch.randn(3, n, 5, generator=torch.Generator().manual_seed(1)).double()
        upstream = torch.where(one_by_one(x, 4).isfinite(), upstream, 0)
        found, expected = (torch.autograd.grad(f(x, 4), x, upstream)[0] for f in (log_leave_one_out, one_by_one))
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def test_what_a_number_and_the_others_make_is_the_whole():
    r""":math:`\sigma_k = e_i \sigma_{k - 1}(e_{\setminus i}) + \sigma_k(e_{\setminus i})` for each i."""
    x = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0)).double()
    others = log_leave_one_out(x, 5)
    whole = torch.logaddexp(x.unsqueeze(-1) + others[..., :-1], others[..., 1:])
    expected = log_elementary_symmetric(x, 5)[:, None, 1:].expand_as(whole)
    torch.testing.assert_close(whole, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize('n', [2, 3, 5])
def test_gradcheck_and_gradgradcheck(n):
    x = torch.randn(2, n, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    for k in range(1, n):
        assert gradcheck(lambda x, k=k: log_leave_one_out(x, k), x)
        assert gradgradcheck(lambda x, k=k: log_leave_one_out(x, k), x, fast_mode=True)


@pytest.mark.parametrize('shape', [(1,), (0, 5), (2, 0, 3), (2, 3, 4, 5)], ids=str)
def test_any_shape_and_any_layout(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).double()
    for layout in (x, torch.stack([x, x], -1)[..., 0], x.movedim(0, -1).contiguous().movedim(-1, 0)):
        found = log_leave_one_out(layout, 3)
        assert found.shape == (*shape, 4)
        torch.testing.assert_close(found, one_by_one(x, 3), rtol=1e-13, atol=1e-13)

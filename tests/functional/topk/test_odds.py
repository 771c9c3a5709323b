import math

import pytest
import torch

from mmseg_nondecomp.functional import log_elementary_symmetric, topk_marginals
from mmseg_nondecomp.functional.topk import smooth
from mmseg_nondecomp.functional.topk.smooth import log_odds_of_miss

pytestmark = pytest.mark.usefixtures('each_arithmetic')


def scores(dtype=torch.float64):
    return torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(3).to(dtype)


@pytest.mark.parametrize('k', [1, 3, 7])
@pytest.mark.parametrize('tau', [5.0, 0.5])
def test_are_those_of_the_marginals_for_a_label_and_for_all(k, tau):
    of_all = log_odds_of_miss(scores(), torch.ones(4, 3, 8), k, tau)
    marginals = topk_marginals(scores() / (k * tau), k, normalize=False)
    torch.testing.assert_close(torch.sigmoid(-of_all), marginals)
    for c in range(8):
        torch.testing.assert_close(log_odds_of_miss(scores(), torch.full((4, 3), c), k, tau), of_all[..., c])


def test_with_fewer_than_k_others_no_label_is_missed_and_an_offset_does_not_matter():
    x, target = scores(), torch.zeros(4, 3).long()
    x[..., 2:] = -torch.inf
    assert (log_odds_of_miss(x, target, 2, 1.0) == -torch.inf).all()
    assert log_odds_of_miss(x, target, 1, 1.0).isfinite().all()
    x = scores(torch.float32).mul(64).round() / 64
    assert torch.equal(log_odds_of_miss(x + 4096, target, 3, 0.1), log_odds_of_miss(x, target, 3, 0.1))


FAMILIES = {
    'normal': lambda n, g: torch.randn(3, n, generator=g).double(),
    'tied': lambda n, g: torch.randint(3, (3, n), generator=g).double(),
    'constant': lambda n, g: torch.full((3, n), 0.7).double(),
    'large': lambda n, g: 100 * torch.randn(3, n, generator=g).double(),
    'huge': lambda n, g: 1e4 * torch.randn(3, n, generator=g).double(),
    'one far ahead': lambda n, g: torch.randn(3, n, generator=g).double() + 900 * (torch.arange(n) == 1),
    'some far behind': lambda n, g: torch.randn(3, n, generator=g).double() - 900 * (torch.arange(n) > n // 2),
}


def one_by_one(scores, k):
    """The odds by their definition: each label is left out of the sums."""
    rest = torch.stack([torch.cat([scores[:, :i], scores[:, i + 1 :]], -1) for i in range(scores.shape[-1])], 1)
    others = log_elementary_symmetric(rest, k)
    return others[..., k] - others[..., k - 1] - scores


@pytest.mark.parametrize('family', FAMILIES)
@pytest.mark.parametrize('n', [2, 3, 5, 7, 12])
@pytest.mark.parametrize('few', [0, 8])
def test_are_those_of_the_others(monkeypatch, family, n, few):
    monkeypatch.setattr(smooth, 'FEW', few)
    scores = FAMILIES[family](n, torch.Generator().manual_seed(n))
    for k in {1, 2, n // 2, n - 1} & set(range(1, n)):
        x, y, z = (scores.clone().requires_grad_() for _ in range(3))
        expected = one_by_one(x, k)
        of_all = log_odds_of_miss(y, torch.ones(3, n), k, 1 / k)
        of_each = [log_odds_of_miss(z, torch.full((3,), label), k, 1 / k) for label in range(n)]
        upstream = torch.randn(3, n, generator=torch.Generator().manual_seed(1)).double()
        gradient = torch.autograd.grad(expected, x, upstream)[0]
        for actual, leaf in ((of_all, y), (torch.stack(of_each, -1), z)):
            torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
            actual = torch.autograd.grad(actual, leaf, upstream)[0]
            torch.testing.assert_close(actual, gradient, rtol=1e-11, atol=1e-11)
            of_float = log_odds_of_miss(scores.float(), torch.ones(3, n), k, 1 / k).double()
            rounded = one_by_one(scores.float().double(), k)
            torch.testing.assert_close(of_float, rounded, rtol=1e-5, atol=1e-5)


def test_of_many_labels():
    x = 3 * torch.randn(2, 2000, generator=torch.Generator().manual_seed(0)).double()
    for k, tau in ((5, 0.2), (5, 0.01), (100, 0.01), (300, 1.0), (300, 0.001)):
        others = x.clone()
        others[:, 7] = -math.inf
        logarithms = log_elementary_symmetric(others / (k * tau), k)
        expected = logarithms[:, k] - logarithms[:, k - 1] - x[:, 7] / (k * tau)
        actual = log_odds_of_miss(x, torch.tensor([7, 7]), k, tau)
        torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(
            log_odds_of_miss(x, torch.ones(2, 2000), k, tau)[:, 7], expected, rtol=1e-11, atol=1e-11
        )


def test_blocks_of_a_batch_are_independent(monkeypatch):
    x, target = 3 * torch.randn(13, 7, generator=torch.Generator().manual_seed(0)).double(), torch.arange(13) % 7
    x[5] *= 1e4
    expected = torch.stack([log_odds_of_miss(row, label, 3, 0.5) for row, label in zip(x, target, strict=True)])
    monkeypatch.setattr(smooth, 'BLOCK', 2 * 7)
    leaf = x.clone().requires_grad_()
    actual = log_odds_of_miss(leaf, target, 3, 0.5)
    torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-13)
    gradient = torch.autograd.grad(actual.sum(), leaf)[0]
    monkeypatch.undo()
    expected = torch.autograd.grad(log_odds_of_miss(leaf, target, 3, 0.5).sum(), leaf)[0]
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize('k', [1, 3])
def test_functional_gradients(k):
    x, target = scores()[0], torch.tensor([1, 0, 7])

    def total(x):
        return log_odds_of_miss(x, target, k, 0.5).square().sum()

    expected = torch.autograd.functional.jacobian(total, x)
    torch.testing.assert_close(torch.func.grad(total)(x), expected, rtol=1e-12, atol=1e-14)
    actual = torch.func.grad(lambda x: torch.func.grad(total)(x).square().sum())(x)
    expected = 2 * torch.autograd.functional.hvp(total, x, expected)[1]
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


def test_sets_of_more_than_a_thousand_labels_are_refused():
    x, target = torch.zeros(1, 1500), torch.zeros(1).long()
    assert log_odds_of_miss(x, target, 1000, 1.0).isfinite().all()
    for call in (lambda: log_odds_of_miss(x, target, 1001, 1.0), lambda: log_elementary_symmetric(x, 1001)):
        with pytest.raises(ValueError, match=r'`k`.*at most 1000.*1001'):
            call()

import pytest
import torch

from mmseg_nondecomp.functional import topk_marginals
from mmseg_nondecomp.functional.label_losses import Labelled
from mmseg_nondecomp.functional.topk_odds import log_odds_of_miss

pytestmark = pytest.mark.usefixtures('each_arithmetic')


def scores(dtype=torch.float64):
    return torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(3).to(dtype)


@pytest.mark.parametrize('k', [1, 3, 7])
@pytest.mark.parametrize('tau', [5.0, 0.5])
def test_are_those_of_the_marginals(k, tau):
    marginals = topk_marginals(scores() / (k * tau), k, normalize=False)
    found = log_odds_of_miss(Labelled(scores(), torch.ones(4, 3, 8)), k, tau)
    torch.testing.assert_close(torch.sigmoid(-found), marginals)


@pytest.mark.parametrize('k', [1, 3, 7])
def test_of_a_label_and_of_all_labels_agree(k):
    of_all = log_odds_of_miss(Labelled(scores(), torch.ones(4, 3, 8)), k, 0.7)
    for c in range(8):
        of_one = log_odds_of_miss(Labelled(scores(), torch.full((4, 3), c)), k, 0.7)
        torch.testing.assert_close(of_one, of_all[..., c])


def test_with_fewer_than_k_others_no_label_is_missed():
    x = scores()
    x[..., 2:] = -torch.inf
    assert (log_odds_of_miss(Labelled(x, torch.zeros(4, 3).long()), 2, 1.0) == -torch.inf).all()
    assert log_odds_of_miss(Labelled(x, torch.zeros(4, 3).long()), 1, 1.0).isfinite().all()


def test_offset_does_not_matter():
    target = torch.zeros(4, 3).long()
    x = scores(torch.float32).mul(64).round() / 64
    torch.testing.assert_close(
        log_odds_of_miss(Labelled(x + 4096, target), 3, 0.1),
        log_odds_of_miss(Labelled(x, target), 3, 0.1),
        rtol=0,
        atol=0,
    )

"""What processes exchange of their items; this file is the test, and the program that each of two processes runs."""

import math

import pytest
import torch
from processes import find_as_a_process, found_by_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmseg_nondecomp.losses import _direct as module
from mmseg_nondecomp.losses._direct import Problems, by_bins, of_all_processes
from mmseg_nondecomp.losses.direct_ap_loss import DirectAPLoss

N_CLASSES = 3
SHARDS = {'as many items': [400, 400], 'different numbers': [700, 60], 'no items on one process': [0, 300]}
LOSSES = {
    'positive': dict(epsilon=10.0),
    'negative': dict(epsilon=10.0, mode='negative'),
    'all pairs': dict(epsilon=10.0, per_class=False),
    'hinge': dict(mode='hinge'),
}


def shards_of(name):
    """Features, labels and weights of each process; the second one has the harder items."""
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.randn(n_items, 6, generator=generator) * (1 + 2 * rank),
            torch.randint(0, N_CLASSES + 1, (n_items,), generator=generator),
            torch.rand(n_items, generator=generator).gt(0.2).float(),
        )
        for rank, n_items in enumerate(SHARDS[name])
    ]


def step(model, loss, shard):
    features, labels, weights = shard
    value = loss(model(features), labels, weights)
    value.backward()
    return value.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, N_CLASSES))


def items(n=500, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(1, N_CLASSES, n, generator=generator).mul(4).requires_grad_()
    valid = torch.rand(1, 1, n, generator=generator).gt(0.2).expand_as(scores)
    return Problems(scores, torch.rand(scores.shape, generator=generator).gt(0.7), valid)


def find(rank):
    """Each loss in DDP, by histograms; one of them with a NaN on the second process; and what is put together."""
    exact = of_all_processes(items(seed=rank))
    module.MAX_EXCHANGED = 0
    results = {
        (data, name): step(
            DistributedDataParallel(network()), DirectAPLoss(scope='world', **args), shards_of(data)[rank]
        )
        for data in SHARDS
        for name, args in LOSSES.items()
    }
    features, labels, weights = shards_of('as many items')[rank]
    if rank == 1:
        features[:5] = math.nan
        weights[:5] = 1
    results['NaN'] = DirectAPLoss(scope='world')(network()(features), labels, weights).detach()
    results['exact'], results['by bins'] = (
        [part.detach() for part in each] for each in (exact, by_bins(items(seed=rank)))
    )
    return results


@pytest.fixture(scope='module')
def results(tmp_path_factory):
    return found_by_ranks(__file__, tmp_path_factory.mktemp('exchange'))


@pytest.mark.parametrize('loss', LOSSES)
@pytest.mark.parametrize('data', SHARDS)
def test_histograms_are_nearly_the_step_of_one_process(results, data, loss):
    union = [torch.cat(parts) for parts in zip(*shards_of(data), strict=True)]
    value, gradient = step(network(), DirectAPLoss(**LOSSES[loss]), union)
    of_both = [process[data, loss] for process in results]
    for its_value, its_gradient in of_both:
        assert its_value.item() == pytest.approx(value.item(), rel=2e-3)
        assert (its_gradient - gradient).norm() <= 2e-2 * gradient.norm()
    assert torch.equal(of_both[0][0], of_both[1][0])


def test_what_is_no_number_is_shown_by_all_and_one_process_keeps_its_items(results):
    assert all(process['NaN'].isnan() for process in results)
    own = items()
    assert of_all_processes(own) is own


def test_items_of_all_processes(results):
    expected = [torch.cat(parts, 2) for parts in zip(items(seed=0), items(seed=1), strict=True)]
    for process in results:
        for part, other in zip(process['exact'], expected, strict=True):
            assert torch.equal(part, other)
        scores, is_positive, valid = process['by bins']
        own, of_all = valid.sum(2), expected[2].sum(2)
        assert torch.equal(own, of_all)
        for kind in (True, False):
            for problem in range(N_CLASSES):
                of_kind = [
                    each[0][0, problem][each[2][0, problem] & (each[1][0, problem] == kind)].sort().values
                    for each in ((scores, is_positive, valid), expected)
                ]
                torch.testing.assert_close(*of_kind, rtol=5e-3, atol=2e-3)


def test_a_cell_has_the_mean_of_its_scores():
    scores = torch.tensor([[[-math.inf, -3.0, 2.0, 2.0 + 1e-5, 9.0, 7.0]]], requires_grad=True)
    valid = torch.tensor([[[True, True, True, True, True, False]]])
    results = by_bins(Problems(scores, torch.zeros_like(valid), valid))
    torch.testing.assert_close(
        results.scores[0, 0, 1:5], torch.tensor([-3.0, 2.000005, 2.000005, 9.0]), rtol=1e-7, atol=0
    )
    assert results.scores[0, 0, 0] < -1e9
    assert torch.equal(results.valid, valid)
    (gradient,) = torch.autograd.grad(results.scores.sum(), scores)
    assert gradient.tolist() == [[[0, 1, 1, 1, 1, 1]]]


@pytest.mark.parametrize('value', [math.nan, math.inf])
def test_what_has_no_order_is_no_number(value):
    scores = torch.tensor([[[value, 1.0, value]]])
    valid = torch.tensor([[[True, True, False]]])
    results = by_bins(Problems(scores, torch.zeros_like(valid), valid)).scores
    assert results[0, 0, 0].isnan()
    assert results[0, 0, 1] == 1


def test_cells_are_narrow():
    scores = torch.linspace(-50, 50, 200_001, dtype=torch.float64).view(1, 1, -1)
    everywhere = torch.ones_like(scores, dtype=torch.bool)
    error = (by_bins(Problems(scores, everywhere, everywhere)).scores - scores).abs()
    assert (error <= 0.5 * (scores.abs() + 0.5) / 200 + 1e-6).all()


if __name__ == '__main__':
    find_as_a_process(find)

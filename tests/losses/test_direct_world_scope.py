"""Two processes with different numbers of items: this file is the test, and the program that each of them runs."""

import pytest
import torch
from processes import find_as_a_process, found_by_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmseg_nondecomp.losses.direct_ap_loss import DirectAPLoss
from mmseg_nondecomp.losses.direct_zero_one_loss import DirectZeroOneLoss

N_CLASSES = 4
SHARDS = {
    'as many items': [30, 30],
    'different numbers of items': [50, 11],
    'no items on one process': [0, 40],
    'objects on one process only': [25, 30],
    'no objects': [20, 10],
    'no items': [0, 0],
}
LOSSES = {
    'AP': (DirectAPLoss, dict(epsilon=1.0)),
    'AP, negative, weighted': (
        DirectAPLoss,
        dict(epsilon=1.0, mode='negative', class_weight=[1.0, 2.0, 0.5, 3.0], loss_weight=0.4),
    ),
    'AP of all pairs': (DirectAPLoss, dict(epsilon=1.0, per_class=False)),
    'AP, hinge': (DirectAPLoss, dict(mode='hinge')),
    '0-1': (DirectZeroOneLoss, dict(epsilon=2.0)),
}


def shards_of(name):
    """What each process sees: features of items, labels and weights."""
    generator = torch.Generator().manual_seed(0)
    shards = []
    for rank, n_items in enumerate(SHARDS[name]):
        # The second process has the harder items: neither shard alone has the statistics of the union.
        features = torch.randn(n_items, 6, generator=generator) * (1 + 4 * rank)
        labels = torch.randint(0, N_CLASSES + 1, (n_items,), generator=generator)
        if name == 'no objects' or (name == 'objects on one process only' and rank == 0):
            labels[:] = N_CLASSES
        weights = torch.rand(n_items, generator=generator).gt(0.2).float()
        shards.append((features, labels, weights))
    return shards


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, N_CLASSES))


def step(model, loss, shard):
    """The value of the loss and the gradient of all parameters, as DDP leaves it for the optimiser."""
    features, labels, weights = shard
    value = loss(model(features), labels, weights, avg_factor=7.0)
    value.backward()
    return value.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])


def find(rank):
    """What a process finds, {(scope, data, loss): (value, gradient)}."""
    return {
        (scope, data, name): step(DistributedDataParallel(network()), kind(scope=scope, **args), shards_of(data)[rank])
        for scope in ('world', 'batch')
        for data in SHARDS
        for name, (kind, args) in LOSSES.items()
    }


@pytest.fixture(scope='module')
def found(tmp_path_factory):
    return found_by_ranks(__file__, tmp_path_factory.mktemp('direct_world'))


def one_process(data, loss):
    """The same step where one process holds the items of both."""
    union = [torch.cat(parts) for parts in zip(*shards_of(data), strict=True)]
    kind, args = LOSSES[loss]
    return step(network(), kind(**args), union)


@pytest.mark.parametrize('loss', LOSSES)
@pytest.mark.parametrize('data', SHARDS)
def test_two_processes_take_the_step_of_one(found, data, loss):
    value, gradient = one_process(data, loss)
    for process in found:
        its_value, its_gradient = process['world', data, loss]
        assert its_value.item() == pytest.approx(value.item(), rel=1e-6, abs=0)
        assert (its_gradient - gradient).norm() <= 1e-5 * gradient.norm()
    if data not in ('no objects', 'no items'):
        assert gradient.norm() > 0


@pytest.mark.parametrize('loss', LOSSES)
def test_without_world_scope_the_step_is_another(found, loss):
    _, gradient = one_process('different numbers of items', loss)
    for process in found:
        assert (process['batch', 'different numbers of items', loss][1] - gradient).norm() > 1e-2 * gradient.norm()


if __name__ == '__main__':
    find_as_a_process(find)

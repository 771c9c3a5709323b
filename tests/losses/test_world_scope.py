"""Two processes against one: this file is the test, and the program that each of the two processes runs."""

import math

import pytest
import torch
from processes import find_as_a_process, found_by_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmseg_nondecomp import LossMaxPooling, LovaszHingeLoss, LovaszSoftmaxLoss, SoftIoULoss

N_CLASSES = 4
SHARDS = {
    'one image each': [1, 1],
    'one and three images': [1, 3],
    'classes that only one process has': [2, 2],
    'nothing valid on one process': [2, 2],
    'nothing valid on either': [1, 1],
}
LOSSES = {
    'max-pooling, p=1': (LossMaxPooling, dict(p=1)),
    'max-pooling, p=1.3': (LossMaxPooling, dict(p=1.3)),
    'max-pooling, p=inf': (LossMaxPooling, dict(p=math.inf)),
    'max-pooling of bce with class weights': (
        LossMaxPooling,
        dict(pixel_loss='bce', class_weight=[1.0, 2.0, 0.5, 3.0]),
    ),
    'max-pooling, loss_weight=0.4': (LossMaxPooling, dict(loss_weight=0.4)),
    'Lovász-Softmax': (LovaszSoftmaxLoss, dict()),
    'Lovász-Softmax, all classes, weighted': (
        LovaszSoftmaxLoss,
        dict(classes='all', class_weight=[1.0, 2.0, 0.5, 3.0], loss_weight=0.4, bins=64),
    ),
    'Lovász-Softmax with memory': (LovaszSoftmaxLoss, dict(memory=2)),
    'Lovász hinge': (LovaszHingeLoss, dict(classes='present')),
    'soft IoU': (SoftIoULoss, dict()),
}


def shards_of(name):
    """What each process sees: images, labels and pixel weights."""
    generator = torch.Generator().manual_seed(0)
    shards = []
    for rank, n_images in enumerate(SHARDS[name]):
        # The second process has the harder images: neither shard alone has the statistics of the union.
        images = torch.randn(n_images, 3, 9, 11, generator=generator) * (1 + 4 * rank)
        labels = torch.randint(0, N_CLASSES, (n_images, 9, 11), generator=generator)
        if name == 'classes that only one process has':
            labels = labels.clamp(max=1) if rank == 1 else labels.clamp(min=1)
        labels[:, :2] = 255
        weights = torch.rand(n_images, 9, 11, generator=generator).gt(0.1).float()
        if name == 'nothing valid on either' or (name == 'nothing valid on one process' and rank == 1):
            labels[:] = 255
        shards.append((images, labels, weights))
    return shards


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, N_CLASSES, 1))


def step(model, loss, shard):
    """The value of the loss and the gradient of all parameters, as DDP leaves it for the optimiser."""
    images, labels, weights = shard
    if getattr(loss, 'memory', None):  # A step before this one, so that there is something to remember.
        loss(model(images.flip(1)), labels, weight=weights).backward()
        model.zero_grad()
    value = loss(model(images), labels, weight=weights)
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
    return found_by_ranks(__file__, tmp_path_factory.mktemp('world'))


def one_process(data, loss):
    """The same step where one process holds the images of both."""
    union = [torch.cat(parts) for parts in zip(*shards_of(data), strict=True)]
    kind, args = LOSSES[loss]
    return step(network(), kind(scope='batch', **args), union)


@pytest.mark.parametrize('loss', LOSSES)
@pytest.mark.parametrize('data', SHARDS)
def test_two_processes_take_the_step_of_one(found, data, loss):
    value, gradient = one_process(data, loss)
    for process in found:
        its_value, its_gradient = process['world', data, loss]
        assert its_value.item() == pytest.approx(value.item(), rel=1e-6, abs=0)
        assert (its_gradient - gradient).norm() <= 1e-6 * gradient.norm()
    assert (gradient.norm() > 0) == (data != 'nothing valid on either')


@pytest.mark.parametrize('loss', LOSSES)
def test_without_world_scope_the_step_is_another(found, loss):
    _, gradient = one_process('one and three images', loss)
    for process in found:
        assert (process['batch', 'one and three images', loss][1] - gradient).norm() > 1e-2 * gradient.norm()


if __name__ == '__main__':
    find_as_a_process(find)

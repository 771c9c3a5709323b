"""Losses of all processes in each way of using DDP, in 2 and 4 processes; this file is also what they run.

With every parameter used in each step, DDP is tested in `test_distributed_losses`.
"""

import pytest
import torch
from benchmarks.traffic import Collectives
from distributed_scenes import DATA as EACH_DATA
from distributed_scenes import NAN, Network, assert_close, built, gradient_of, losses_in, shards_of, union, value_of
from processes import find_as_a_process, found_by_ranks
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

LOSSES = [*losses_in('world')]
DATA = 'pixels, nothing valid on the last process'
N_STEPS = 3
WAYS = {'some parameters are not used': dict(find_unused_parameters=True), 'static graph': dict(static_graph=True)}
SEVERAL = ['LovaszSoftmaxLoss {}', 'LossMaxPooling {}']


class WithUnused(Network):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(3, 2)


def ordinary(logits, labels, weights):
    """Compute a sum over pixels, of which DDP takes the mean over processes."""
    return nn.functional.cross_entropy(logits, labels, ignore_index=255, reduction='sum') / 100


class Several(nn.Module):
    """Two losses of all processes and one of each, as the losses of one head."""

    def __init__(self, scope: str) -> None:
        super().__init__()
        self.parts = nn.ModuleList(built(loss, scope) for loss in SEVERAL)

    def forward(self, *call):
        return self.parts[0](*call) + ordinary(*call) + self.parts[1](*call)


def steps(model, loss, shards):
    found = []
    for shard in shards:
        model.zero_grad()
        value_of(loss, model, shard).backward()
        found.append(gradient_of(model))
    return found


def accumulated(model, loss, shards):
    """Return the gradient accumulated over all shards. Only the last one is reduced over processes, as in MMEngine."""
    model.zero_grad()
    with model.no_sync():
        for shard in shards[:-1]:
            (value_of(loss, model, shard) / len(shards)).backward()
    (value_of(loss, model, shards[-1]) / len(shards)).backward()
    return gradient_of(model)


def find(rank):
    n = distributed.get_world_size()
    shards = [shards_of(DATA, n, i)[rank] for i in range(N_STEPS)]
    found = {}
    for way, settings in WAYS.items():
        network = WithUnused if settings.get('find_unused_parameters') else Network
        for loss in LOSSES:
            found[way, loss] = steps(DistributedDataParallel(network(), **settings), built(loss, 'world'), shards)
    plain = DistributedDataParallel(Network())
    found |= {('accumulated', loss): accumulated(plain, built(loss, 'world'), shards) for loss in LOSSES}
    found['several'] = steps(plain, Several('world'), shards)
    for data in (*EACH_DATA, NAN):
        features, labels, weights = shards_of(data, n)[rank]
        for loss in LOSSES:
            with Collectives() as recorded:
                value = value_of(built(loss, 'world'), Network(), (features, labels, weights))
                value.backward()
            found['exchanges', data, loss] = value.detach(), [tuple(each) for each in recorded.found]
    return found


@pytest.fixture(scope='module', params=[2, 4])
def found(request, tmp_path_factory):
    return found_by_ranks(__file__, tmp_path_factory.mktemp('ddp'), request.param)


def of_one_process(loss, n):
    """Return the gradients of the unions, one for each step."""
    return steps(Network(), loss, [union(shards_of(DATA, n, i)) for i in range(N_STEPS)])


@pytest.mark.parametrize('loss', LOSSES)
@pytest.mark.parametrize('way', WAYS)
def test_every_way_of_ddp_takes_the_steps_of_one_process(found, way, loss):
    expected = of_one_process(built(loss, 'world'), len(found))
    for of_rank in found:
        for gradient, of_union in zip(of_rank[way, loss], expected, strict=True):
            assert_close(gradient, of_union)


@pytest.mark.parametrize('loss', LOSSES)
def test_accumulated_gradients_are_the_mean_of_those_of_the_sets(found, loss):
    expected = torch.stack(of_one_process(built(loss, 'world'), len(found))).mean(0)
    for of_rank in found:
        assert_close(of_rank['accumulated', loss], expected)


def test_several_losses_of_which_one_belongs_to_each_process(found):
    n = len(found)
    together, sums = (of_one_process(loss, n) for loss in (Several('batch'), ordinary))
    for of_rank in found:
        for gradient, of_all, of_sum in zip(of_rank['several'], together, sums, strict=True):
            assert_close(gradient, of_all - of_sum + of_sum / n)


@pytest.mark.parametrize('loss', LOSSES)
@pytest.mark.parametrize('data', [*EACH_DATA, NAN])
def test_every_process_takes_part_in_the_same_exchanges(found, data, loss):
    """In the same order and with as many bytes, whatever its data: or the processes would wait for each other."""
    (_, first), *others = (of_rank['exchanges', data, loss] for of_rank in found)
    assert first
    assert all(other == first for _, other in others)


@pytest.mark.parametrize('loss', LOSSES)
def test_nan_on_one_process_is_nan_on_all(found, loss):
    assert all(of_rank['exchanges', NAN, loss][0].isnan() for of_rank in found)


if __name__ == '__main__':
    find_as_a_process(find)

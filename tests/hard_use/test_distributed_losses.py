"""Every registered loss in 1, 2 and 4 processes of DDP; this file is also the program that they run."""

import pytest
import torch
from distributed_scenes import (
    DATA,
    Network,
    assert_close,
    built,
    gradient_of,
    has_scope,
    losses_in,
    shards_of,
    union,
    value_of,
)
from every_loss import CASES
from processes import find_as_a_process, found_by_ranks
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

N_PROCESSES = (1, 2, 4)
EACH = {scope: list(losses_in(scope)) for scope in ('image', 'batch', 'world')}
SOME_DATA = ('pixels, uneven', 'pixels, nothing valid on the last process', 'items, none on the first process')


def step(model, loss, shard):
    model.zero_grad()
    value = value_of(loss, model, shard)
    value.backward()
    return value.detach(), gradient_of(model)


def find(rank):
    """Run steps of one model. DDP raises an error in the next step if a parameter had no gradient."""
    n, model = distributed.get_world_size(), DistributedDataParallel(Network())
    return {
        (scope, loss, data): step(model, built(loss, scope), shards_of(data, n)[rank])
        for scope in EACH
        for loss in EACH[scope]
        for data in (DATA if scope == 'world' else SOME_DATA)
    }


@pytest.fixture(scope='module', params=N_PROCESSES)
def found(request, tmp_path_factory):
    return found_by_ranks(__file__, tmp_path_factory.mktemp('losses'), request.param)


def test_every_loss_with_a_scope_is_tried_in_the_world():
    assert {loss.split()[0] for loss in EACH['world']} == {name for name in CASES if has_scope(name)}


@pytest.mark.parametrize('data', DATA)
@pytest.mark.parametrize('loss', EACH['world'])
def test_processes_take_the_step_of_one_with_the_union(found, loss, data):
    value, gradient = step(Network(), built(loss, 'world'), union(shards_of(data, len(found))))
    for of_rank in found:
        assert_close(of_rank['world', loss, data][0], value)
        assert_close(of_rank['world', loss, data][1], gradient)


@pytest.mark.parametrize('data', SOME_DATA)
@pytest.mark.parametrize(('scope', 'loss'), [(scope, loss) for scope in ('image', 'batch') for loss in EACH[scope]])
def test_without_the_world_processes_take_the_mean_of_their_steps(found, scope, loss, data):
    alone = [step(Network(), built(loss, scope), shard) for shard in shards_of(data, len(found))]
    mean = torch.stack([gradient for _, gradient in alone]).mean(0)
    for of_rank, (value, _) in zip(found, alone, strict=True):
        assert_close(of_rank[scope, loss, data][0], value)
        assert_close(of_rank[scope, loss, data][1], mean)


@pytest.mark.parametrize('loss', EACH['world'])
def test_a_set_of_the_world_is_another(found, loss):
    """So what is compared above can differ."""
    for of_rank in found:
        in_batch, in_world = (of_rank[scope, loss, 'pixels, uneven'][1] for scope in ('batch', 'world'))
        assert ((in_batch - in_world).norm() > 1e-2 * in_world.norm()) == (len(found) > 1)
        assert in_world.norm() > 0


if __name__ == '__main__':
    find_as_a_process(find)

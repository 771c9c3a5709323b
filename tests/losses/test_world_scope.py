"""Two processes with ``scope='world'`` train as one with all items. This file is also the program of the processes."""

from functools import cache

import pytest
import torch
from distributed_scenes import BACKGROUND, DATA, Network, losses_in, shards_of
from every_loss import SIGMOID, build
from processes import find_as_a_process, found_by_ranks
from torch.nn.parallel import DistributedDataParallel

N_PROCESSES = 2
S_MEASURES = {
    'F_2': dict(measure='f_beta', beta=2.0),
    'F_1, hinge, by bounds, weighted': dict(surrogate='hinge', proxy=False, class_weight=[1.0, 2.0, 0.5, 1.0, 1.0]),
    'precision at recall, all classes': dict(measure='precision_at_recall', target=0.8, classes='all', loss_weight=0.4),
    'area under PR, by bounds': dict(measure='auc_pr', anchors=2, proxy=False),
    'F_1, per example': dict(per_example=True),
    'precision at recall, per example': dict(measure='precision_at_recall', target=0.8, per_example=True),
}
LOSSES = (
    losses_in('world')
    | {name: ('SMeasureLoss', args) for name, args in S_MEASURES.items()}
    | {'Lovász-Softmax with a memory': ('LovaszSoftmaxLoss', dict(memory=2))}
)
INDEPENDENT = [*losses_in('world', SIGMOID), *S_MEASURES]
CASES = [
    (data, loss)
    for data in (*DATA, *BACKGROUND)
    for loss in (INDEPENDENT if data in BACKGROUND else LOSSES)
    if data.startswith('items') or not LOSSES[loss][1].get('per_example')
]
UNEVEN = 'items, uneven'
KEEPS_DUALS = [(data, loss) for data, loss in CASES if LOSSES[loss][0] == 'SMeasureLoss']


def n_steps(loss):
    """Return a number of steps in which multipliers change and a memory is used."""
    return 6 if LOSSES[loss][0] == 'SMeasureLoss' else 2


def batches(data, loss):
    """Yield the shards of the processes in each step, with ids of the items that differ within a batch."""
    for step in range(n_steps(loss)):
        ids = torch.randperm(60, generator=torch.Generator().manual_seed(step))
        shards = []
        for features, labels, weights in shards_of(data, N_PROCESSES, step):
            mine, ids = ids[: len(labels)], ids[len(labels) :]
            shards.append((features.double(), labels, weights, mine))
        yield shards


def trained(model, loss, shards):
    """Return values and weights after each step, and the state of the loss at the end."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = []
    for step, (features, labels, weights, ids) in enumerate(shards):
        optimizer.zero_grad()
        value = loss(model(features), labels, weights, **(dict(ids=ids) if getattr(loss, 'per_example', False) else {}))
        value.backward()
        optimizer.step()
        if hasattr(loss, 'step'):
            loss.step(ascend=step % 3 != 1)
        found += [value.detach().view(1), *(parameter.detach().flatten().clone() for parameter in model.parameters())]
    state = {}
    if hasattr(loss, 'state'):
        state = dict(loss.state.as_dict())
        if loss.examples is not None:
            # Examples are kept in the order in which they came, which is that of the processes.
            state |= {name: value for name, value in loss.examples.as_dict().items() if name != 'touched'}
    return torch.cat(found), {name: value.double().nan_to_num(nan=-7) for name, value in state.items()}


def built(loss, scope):
    name, args = LOSSES[loss]
    return build(name, args | dict(scope=scope))


def find(rank):
    """Train in this process, {(scope, data, loss): (values and weights, state)}."""
    in_batch = {*KEEPS_DUALS, *((UNEVEN, loss) for loss in LOSSES)}
    return {
        (scope, data, loss): trained(
            DistributedDataParallel(Network().double()),
            built(loss, scope),
            [shards[rank] for shards in batches(data, loss)],
        )
        for data, loss in CASES
        for scope in ('world', 'batch')
        if scope == 'world' or (data, loss) in in_batch
    }


@pytest.fixture(scope='module')
def found(tmp_path_factory):
    return found_by_ranks(__file__, tmp_path_factory.mktemp('world'), N_PROCESSES)


@cache
def in_one_process(data, loss):
    unions = [[torch.cat(parts) for parts in zip(*shards, strict=True)] for shards in batches(data, loss)]
    return trained(Network().double(), built(loss, 'batch'), unions)


@pytest.mark.parametrize(('data', 'loss'), CASES)
def test_two_processes_train_as_one(found, data, loss):
    """In double precision, where sums in another order differ by 1e-15."""
    expected, state = in_one_process(data, loss)
    for of_rank in found:
        its_values, its_state = of_rank['world', data, loss]
        torch.testing.assert_close(its_values, expected, rtol=1e-9, atol=1e-9)
        assert its_state.keys() == state.keys()
        for name in state:
            torch.testing.assert_close(its_state[name], state[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(('data', 'loss'), KEEPS_DUALS)
@pytest.mark.parametrize('scope', ['world', 'batch'])
def test_dual_variables_are_equal_on_all_processes(found, data, loss, scope):
    """Also where each process has a loss of its own: multipliers belong to the measure of the data set."""
    one, other = (of_rank[scope, data, loss][1] for of_rank in found)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert data in (BACKGROUND[0], 'items, none') or 'nothing valid' in data or (one['mu'] != 1).any()


@pytest.mark.parametrize('loss', LOSSES)
def test_scope_batch_trains_otherwise(found, loss):
    expected, _ = in_one_process(UNEVEN, loss)
    for of_rank in found:
        assert (of_rank['batch', UNEVEN, loss][0] - expected).norm() > 1e-4 * expected.norm()


if __name__ == '__main__':
    find_as_a_process(find)

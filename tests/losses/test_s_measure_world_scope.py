"""Two processes against one: this file is the test, and the program that each of the two processes runs."""

import pytest
import torch
from processes import find_as_a_process, found_by_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmseg_nondecomp.losses.s_measure_loss import SMeasureLoss

SHARDS = {
    'as many items': [20, 20],
    'different numbers of items': [31, 9],
    'positives on one process only': [20, 12],
    'no items on one process': [0, 25],
    'no positives': [10, 7],
    'classes that only one process has': [15, 15],
}
LOSSES = {
    'F_2': dict(measure='f_beta', beta=2.0),
    'F_1, hinge, by bounds, weighted': dict(surrogate='hinge', proxy=False, class_weight=[1.0, 2.0, 0.5]),
    'precision at recall, all classes': dict(measure='precision_at_recall', target=0.8, classes='all', loss_weight=0.4),
    'recall at precision': dict(measure='recall_at_precision', target=0.6),
    'area under ROC': dict(measure='auc_roc', anchors=2),
    'area under PR': dict(measure='auc_pr', anchors=2, proxy=False),
    'F_1, per example': dict(per_example=True),
    'precision at recall, per example': dict(measure='precision_at_recall', target=0.8, per_example=True),
}
N_CLASSES, N_STEPS = 3, 6


def shards_of(name, step):
    """What each process sees in a step: features, labels and ids. Label 3 is none of the classes."""
    generator = torch.Generator().manual_seed(step)
    shards, ids = [], torch.randperm(60, generator=generator)
    for rank, n in enumerate(SHARDS[name]):
        # The second process has the harder items: neither shard alone has the statistics of the union.
        features = torch.randn(n, 5, generator=generator, dtype=torch.float64) * (1 + rank)
        labels = torch.randint(0, N_CLASSES + 1, (n,), generator=generator)
        if name == 'no positives' or (name == 'positives on one process only' and rank == 0):
            labels[:] = N_CLASSES
        if name == 'classes that only one process has':
            labels = labels.clamp(max=1) if rank else labels.clamp(min=2)
        mine, ids = ids[:n], ids[n:]
        shards.append((features, labels, mine))
    return shards


def trained(model, loss, shards):
    """Values and weights after each step, and at last what the loss keeps."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen = []
    for step, (features, labels, ids) in enumerate(shards):
        optimizer.zero_grad()
        value = loss(model(features), labels, **(dict(ids=ids) if loss.per_example else {}))
        value.backward()
        optimizer.step()
        loss.step(ascend=step % 3 != 1)
        seen += [value.detach().view(1), *(weights.detach().flatten().clone() for weights in model.parameters())]
    state = dict(loss.state.as_dict())
    if loss.examples is not None:
        # Examples are kept in the order in which they came, which is that of the processes.
        state |= {name: value for name, value in loss.examples.as_dict().items() if name != 'touched'}
    return torch.cat(seen), {name: value.double().nan_to_num(nan=-7) for name, value in state.items()}


def network():
    torch.manual_seed(0)
    return nn.Linear(5, N_CLASSES, dtype=torch.float64)


def find(rank):
    """What a process finds, {(scope, data, loss): (values and weights, state)}."""
    return {
        (scope, data, name): trained(
            DistributedDataParallel(network()),
            SMeasureLoss(**args, scope=scope),
            [shards_of(data, step)[rank] for step in range(N_STEPS)],
        )
        for scope in ('world', 'batch')
        for data in SHARDS
        for name, args in LOSSES.items()
    }


@pytest.fixture(scope='module')
def found(tmp_path_factory):
    return found_by_ranks(__file__, tmp_path_factory.mktemp('s_measure_world'))


def one_process(data, name):
    """The same training where one process holds the items of both."""
    unions = [[torch.cat(parts) for parts in zip(*shards_of(data, step), strict=True)] for step in range(N_STEPS)]
    return trained(network(), SMeasureLoss(**LOSSES[name]), unions)


each_loss = pytest.mark.parametrize('loss', LOSSES)
each_data = pytest.mark.parametrize('data', SHARDS)


@each_loss
@each_data
def test_two_processes_train_as_one(found, data, loss):
    """In double precision, where sums in another order differ by 1e-15."""
    seen, state = one_process(data, loss)
    for process in found:
        its_seen, its_state = process['world', data, loss]
        torch.testing.assert_close(its_seen, seen, rtol=1e-9, atol=1e-9)
        assert its_state.keys() == state.keys()
        for name in state:
            torch.testing.assert_close(its_state[name], state[name], rtol=1e-9, atol=1e-9)
    assert data == 'no positives' or (state['mu'] != 1).any()


@pytest.mark.parametrize('scope', ['world', 'batch'])
@each_loss
@each_data
def test_dual_variables_are_the_same_on_both(found, data, loss, scope):
    """Also where each process has a loss of its own: multipliers belong to the measure of the data set."""
    one, other = (process[scope, data, loss][1] for process in found)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@each_loss
def test_without_world_scope_the_step_is_another(found, loss):
    seen, _ = one_process('different numbers of items', loss)
    for process in found:
        assert (process['batch', 'different numbers of items', loss][0] - seen).norm() > 1e-3 * seen.norm()


if __name__ == '__main__':
    find_as_a_process(find)

"""When multipliers move, with a real Runner wherever it matters."""

from types import SimpleNamespace

import pytest
import torch
from mmengine.hooks import Hook
from mmengine.model import BaseModel, MMDistributedDataParallel
from mmengine.optim import OptimWrapper
from mmengine.runner import IterBasedTrainLoop, Runner
from processes import find_as_a_process, found_by_ranks
from torch import distributed, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

from mmseg_nondecomp import SMeasureLoss
from mmseg_nondecomp.hooks import DualAscentHook
from mmseg_nondecomp.hooks.dual_ascent_hook import _iterations_of_an_epoch

N_EXAMPLES = 6


class Examples:
    """Six points of two classes that overlap, in turn positives and negatives."""

    def __init__(self):
        self.x = torch.randn(N_EXAMPLES, 3, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return N_EXAMPLES

    def __getitem__(self, i):
        return dict(x=self.x[i], label=1 - i % 2, id=i)


class Points(BaseModel):
    """A linear classifier, which records the calls of its loss."""

    def __init__(self, **loss):
        super().__init__()
        self.classify = nn.Linear(3, 1)
        self.loss = SMeasureLoss(**loss)
        self.seen = []

    def forward(self, x, label, id, mode):
        scores = self.classify(x)
        ids = dict(ids=id) if self.loss.per_example else {}
        self.seen.append((scores.detach().clone(), label, ids))
        return {self.loss.loss_name: self.loss(scores, label, **ids)}


class Watch(Hook):
    priority = 'LOWEST'

    def __init__(self):
        self.kept = []

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.kept.append(kept_by(runner.model.loss))


def kept_by(loss):
    variables = {name: value.clone() for name, value in loss.state.as_dict().items()}
    if loss.examples is not None:
        variables |= {f'examples.{name}': value.clone() for name, value in loss.examples.as_dict().items()}
    return variables


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def by_iteration(n_iterations):
    return dict(type='IterBasedTrainLoop', max_iters=n_iterations)


def by_epoch(n_epochs):
    return dict(type='EpochBasedTrainLoop', max_epochs=n_epochs)


class EachInTurn:
    """All indices again and again, without the pause that MMEngine makes at the end of a data loader."""

    def __len__(self):
        return N_EXAMPLES

    def __iter__(self):
        while True:
            yield from range(N_EXAMPLES)


def train(folder, loop, hook=None, loss=None, checkpoint=None, resume=True, optim=None, hooks=(), batch_size=2):
    """The model after training by that loop, and what the loss had after each iteration."""
    torch.manual_seed(0)
    model, watch = Points(**(loss or {})), Watch()
    endless = loop['type'] == 'IterBasedTrainLoop'
    saving = dict(by_epoch=False, interval=2) if endless else dict(by_epoch=True, interval=1)
    wrapper = optim or (lambda model: OptimWrapper(torch.optim.SGD(model.parameters(), 0.1)))
    Runner(
        model=model,
        work_dir=str(folder),
        experiment_name=f'{folder.name} {loop} {hook} {checkpoint} {resume} {len(hooks)}',
        train_dataloader=DataLoader(Examples(), batch_size, sampler=EachInTurn() if endless else None),
        train_cfg=loop,
        optim_wrapper=wrapper(model),
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', **saving)),
        custom_hooks=[*([] if hook is None else [dict(type='DualAscentHook', **hook)]), watch, *hooks],
        load_from=checkpoint and str(folder / checkpoint),
        resume=checkpoint is not None and resume,
        log_level='ERROR',
    ).train()
    return model, watch.kept


def moved(kept, name='mu', start=1.0):
    """After which iterations, numbered from 1, a variable is not what it was."""
    values = [torch.full_like(kept[0][name], start), *(each[name] for each in kept)]
    return [i for i in range(1, len(values)) if not torch.equal(values[i], values[i - 1])]


def replayed(seen, period=1, **loss):
    """The loss after it was handed the same in a plain loop."""
    loss = SMeasureLoss(**loss)
    for i, (scores, label, ids) in enumerate(seen, 1):
        loss(scores.requires_grad_(), label, **ids)
        loss.step(ascend=i % period == 0)
    return kept_by(loss)


PIXEL = dict(measure='precision_at_recall', target=0.9)
EXAMPLE = dict(per_example=True)


@pytest.mark.parametrize('loss', [PIXEL, EXAMPLE], ids=['mean', 'per example'])
@pytest.mark.parametrize(
    ('loop', 'hook', 'ascents'),
    [
        (by_iteration(6), dict(), [1, 2, 3, 4, 5, 6]),
        (by_iteration(7), dict(interval=3), [3, 6]),
        (by_iteration(7), dict(interval=1, by_epoch=True), [3, 6]),
        (by_iteration(7), dict(interval=2, by_epoch=True), [6]),
        (by_epoch(2), dict(), [1, 2, 3, 4, 5, 6]),
        (by_epoch(2), dict(interval=4), [4]),
        (by_epoch(3), dict(interval=1, by_epoch=True), [3, 6, 9]),
        (by_epoch(3), dict(interval=2, by_epoch=True), [6]),
    ],
)
def test_multipliers_move_at_the_end_of_each_interval(loop, hook, ascents, loss, tmp_path):
    model, kept = train(tmp_path, loop, hook, loss)
    assert moved(kept) == ascents
    period = ascents[0]
    assert same(kept[-1], replayed(model.seen, period, **loss))


def test_descent_is_in_each_iteration_and_pends_nothing_at_the_end_of_an_interval(tmp_path):
    _, kept = train(tmp_path, by_iteration(6), dict(interval=6), dict(measure='f_beta'))
    assert moved(kept, 'epsilon') != [6]
    _, kept = train(tmp_path, by_iteration(6), dict(interval=6), EXAMPLE)
    tau = [each['examples.values'][:2, 0, 0] for each in kept]
    assert not torch.equal(tau[0], tau[3])
    state = torch.load(tmp_path / 'iter_6.pth', weights_only=False)['state_dict']['loss._extra_state']
    assert not state['queries']['pending'].any()
    assert not len(state['examples']['waiting_ids'])
    assert state['queries']['steps'] == 0


def test_only_examples_of_the_iteration_have_their_tau_moved(tmp_path):
    """Three iterations, each with examples of its own: the positives of the others are as they were."""
    _, kept = train(tmp_path, by_iteration(6), dict(interval=1), EXAMPLE)
    for i in range(3, 6):
        before, after = kept[i - 1]['examples.values'], kept[i]['examples.values']
        ids = kept[i]['examples.ids'].tolist()
        seen = [ids.index(key) for key in (2 * (i % 3), 2 * (i % 3) + 1) if key in ids]
        others = [row for row in range(len(ids)) if row not in seen]
        assert seen
        assert others
        assert torch.equal(before[others], after[others])
        assert not torch.equal(before[seen], after[seen])


@pytest.mark.parametrize('loss', [PIXEL, EXAMPLE, dict(measure='auc_roc', anchors=3)], ids=['mean', 'example', 'area'])
@pytest.mark.parametrize(
    ('loop', 'hook', 'checkpoint'),
    [
        (by_iteration(8), None, 'iter_4.pth'),
        (by_iteration(8), dict(), 'iter_4.pth'),
        (by_iteration(8), dict(interval=3), 'iter_4.pth'),
        (by_iteration(8), dict(by_epoch=True), 'iter_4.pth'),
        (by_epoch(4), None, 'epoch_2.pth'),
        (by_epoch(4), dict(interval=2), 'epoch_1.pth'),
        (by_epoch(4), dict(by_epoch=True, interval=2), 'epoch_3.pth'),
    ],
)
def test_resumed_training_is_the_same_as_one_without_a_stop(loop, hook, checkpoint, loss, tmp_path):
    whole, kept = train(tmp_path, loop, hook, loss)
    resumed, kept_of_resumed = train(tmp_path, loop, hook, loss, checkpoint)
    assert 0 < len(kept_of_resumed) < len(kept)
    assert all(same(*pair) for pair in zip(kept[-len(kept_of_resumed) :], kept_of_resumed, strict=True))
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize('hook', [None, dict()], ids=['without hook', 'with hook'])
def test_load_from_begins_with_new_multipliers(hook, tmp_path):
    train(tmp_path, by_iteration(4), hook, EXAMPLE)
    model, _ = train(tmp_path, by_iteration(2), hook, EXAMPLE, 'iter_4.pth', resume=False)
    if hook is None:
        model.loss.step()  # It waits for the iteration that never comes.
    assert same(kept_by(model.loss), replayed(model.seen, **EXAMPLE))


def test_each_iteration_is_what_a_loss_does_without_the_hook(tmp_path):
    by_hook, _ = train(tmp_path, by_iteration(5), dict(), PIXEL)
    alone, _ = train(tmp_path, by_iteration(5), None, PIXEL)
    alone.loss.step()  # It waits for the iteration that never comes.
    torch.testing.assert_close(by_hook.state_dict(), alone.state_dict(), rtol=0, atol=0)
    assert by_hook.loss.follows_runner  # again


@pytest.mark.parametrize(
    'optim',
    [
        lambda m: OptimWrapper(torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, weight_decay=1.0)),
        lambda m: OptimWrapper(torch.optim.AdamW(m.parameters(), 0.1, weight_decay=1.0), clip_grad=dict(max_norm=1e-3)),
        lambda m: OptimWrapper(torch.optim.SGD(m.parameters(), 0.1), accumulative_counts=3),
    ],
    ids=['weight decay', 'clipping', 'accumulation'],
)
@pytest.mark.parametrize('loss', [PIXEL, EXAMPLE], ids=['mean', 'per example'])
@pytest.mark.parametrize('ema', [False, True])
def test_whatever_trains_the_network_leaves_multipliers_alone(optim, loss, ema, tmp_path):
    """They are a function of what the loss was handed."""
    hooks = [dict(type='EMAHook', momentum=0.5)] if ema else []
    model, kept = train(tmp_path, by_iteration(6), dict(), loss, optim=optim, hooks=hooks)
    assert same(kept[-1], replayed(model.seen, **loss))
    assert {name for name, _ in model.named_parameters()} == {'classify.weight', 'classify.bias'}


def test_ema_resumes_multipliers_too(tmp_path):
    hooks = [dict(type='EMAHook', momentum=0.5)]
    _, kept = train(tmp_path, by_iteration(8), dict(), EXAMPLE, hooks=hooks)
    _, resumed = train(tmp_path, by_iteration(8), dict(), EXAMPLE, 'iter_4.pth', hooks=hooks)
    assert same(kept[-1], resumed[-1])


class Endless(IterableDataset):
    def __iter__(self):
        yield from iter(int, 1)


class Grouped:
    def __iter__(self):
        yield from ([0], [1, 2, 3], [4, 5])

    def __len__(self):
        return 3


class WithoutLength:
    def __iter__(self):
        yield from ([0], [1, 2])


def runner_with(dataloader, loop=IterBasedTrainLoop):
    """The attributes of a Runner that decide the length of an epoch."""
    return SimpleNamespace(train_dataloader=dataloader, train_loop=object.__new__(loop))


LOADERS = {
    'batches of 2': (lambda: DataLoader(Examples(), 2), 3),
    'batches of 4': (lambda: DataLoader(Examples(), 4), 2),
    'batches of 4, the last dropped': (lambda: DataLoader(Examples(), 4, drop_last=True), 2),
    'more than there are': (lambda: DataLoader(Examples(), 100), 1),
    'a sampler without end': (lambda: DataLoader(Examples(), 2, sampler=EachInTurn()), 3),
    'a batch sampler': (
        lambda: DataLoader(Examples(), batch_sampler=BatchSampler(RandomSampler(range(6)), 4, False)),
        2,
    ),
    'no batches': (lambda: DataLoader(Examples(), batch_size=None), 6),
    'batches of several sizes': (lambda: DataLoader(Examples(), batch_sampler=Grouped()), 3),
}


@pytest.mark.parametrize('name', LOADERS)
def test_an_epoch_draws_the_data_set_once(name):
    loader, iterations = LOADERS[name]
    assert _iterations_of_an_epoch(runner_with(loader())) == iterations


@pytest.mark.parametrize('sampled', [dict(dataset=Endless(), batch_size=2), dict(batch_sampler=WithoutLength())])
def test_an_epoch_without_length_is_an_error(sampled):
    with pytest.raises(ValueError, match='`by_epoch` should be False'):
        _iterations_of_an_epoch(runner_with(DataLoader(**dict(dataset=Examples()) | sampled)))


def find(rank):
    return {name: _iterations_of_an_epoch(runner_with(loader())) for name, (loader, _) in LOADERS.items()}


def test_two_processes_draw_the_data_set_together(tmp_path):
    found, of_the_other = found_by_ranks(__file__, tmp_path)
    assert found == of_the_other
    assert found['batches of 2'] == 2
    assert found['batches of 4'] == found['a batch sampler'] == 1
    assert found['no batches'] == 3
    assert found['batches of several sizes'] == 3  # Such a sampler gives this process's batches.


def test_losses_of_a_distributed_model_are_found_in_its_wrapper():
    distributed.init_process_group('gloo', store=distributed.HashStore(), rank=0, world_size=1)
    try:
        model = Points()
        hook = DualAscentHook()
        hook.before_train(SimpleNamespace(model=MMDistributedDataParallel(model), iter=0))
        assert hook.losses == [model.loss]
        assert not model.loss.follows_runner
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        (dict(interval=0), ValueError, '`interval`.*Found'),
        (dict(interval=1.0), TypeError, '`interval`.*Found'),
        (dict(by_epoch=1), TypeError, '`by_epoch`.*Found'),
        (dict(), ValueError, '`SMeasureLoss`'),
    ],
)
def test_wrong_arguments_and_a_model_without_such_a_loss_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        DualAscentHook(**arguments).before_train(SimpleNamespace(model=nn.Linear(1, 1), iter=0))


if __name__ == '__main__':
    find_as_a_process(find)

"""The weights of losses at each step, mostly by a real Runner."""

import math
from types import SimpleNamespace

import pytest
import torch
from mmengine.model import BaseModel, MMDistributedDataParallel
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from mmseg.models.losses import CrossEntropyLoss
from torch import distributed, nn
from torch.utils.data import DataLoader

from mmseg_nondecomp import LossMaxPooling, LovaszSoftmaxLoss, SoftIoULoss
from mmseg_nondecomp.hooks import LossWeightHook

SWITCH = dict(loss_ce=[(0, 1.0), (0.5, 0.0)], loss_lovasz=[(0, 0.0), (0.5, 2.0)])


class Pixels(BaseModel):
    """Classify pixels and record the weights of the losses at each step."""

    def __init__(self):
        super().__init__()
        self.classify = nn.Conv2d(1, 2, 1)
        self.decode_head = nn.ModuleList([CrossEntropyLoss(avg_non_ignore=True), LovaszSoftmaxLoss()])
        self.auxiliary_head = CrossEntropyLoss(avg_non_ignore=True, loss_weight=0.4)
        self.unnamed = SoftIoULoss(loss_weight=0.3)
        self.steps = []

    def weights(self):
        return [loss.loss_weight for loss in (*self.decode_head, self.auxiliary_head, self.unnamed)]

    def forward(self, image, label, mode):
        self.steps.append(self.weights())
        logits = self.classify(image)
        return {loss.loss_name: loss(logits, label) for loss in (*self.decode_head, self.unnamed)}


def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 1, 4, 4, generator=generator), torch.randint(2, (2, 4, 4), generator=generator)


def steps(ce, lovasz):
    """The expected record: the auxiliary head has the same weights, a loss of another name keeps its own."""
    return [[*weights, weights[0], 0.3] for weights in zip(ce, lovasz, strict=True)]


def by_iteration(n_iterations):
    return n_iterations, dict(type='IterBasedTrainLoop', max_iters=n_iterations)


def by_epoch(n_epochs, n_batches):
    return n_batches, dict(type='EpochBasedTrainLoop', max_epochs=n_epochs)


def train(folder, clock, weights=SWITCH, checkpoint=None):
    """The model after training by that clock, from the start or from a checkpoint in the folder."""
    n_batches, train_cfg = clock
    saving = dict(by_epoch=True, interval=1) if 'max_epochs' in train_cfg else dict(by_epoch=False, interval=2)
    torch.manual_seed(0)
    model = Pixels()
    image, label = batch()
    Runner(
        model=model,
        work_dir=str(folder),
        experiment_name=f'{folder.name} from {checkpoint}',
        train_dataloader=DataLoader([dict(image=image[0], label=label[0])] * n_batches),
        train_cfg=train_cfg,
        optim_wrapper=OptimWrapper(torch.optim.SGD(model.parameters(), 0.1)),
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', **saving)),
        custom_hooks=[dict(type='LossWeightHook', weights=weights)],
        load_from=checkpoint and str(folder / checkpoint),
        resume=checkpoint is not None,
        log_level='ERROR',
    ).train()
    return model


def at(model, iteration, max_iters=10):
    return SimpleNamespace(model=model, iter=iteration, max_iters=max_iters)


def started(model, weights, iteration=0, max_iters=10):
    """The hook after it has set the weights of that iteration."""
    hook = LossWeightHook(weights)
    hook.before_train(at(model, iteration, max_iters))
    hook.before_train_iter(at(model, iteration, max_iters), 0)
    return hook


@pytest.mark.parametrize(
    ('clock', 'ce', 'lovasz'),
    [
        (by_iteration(8), [1.0] * 4 + [0.0] * 4, [0.0] * 4 + [2.0] * 4),
        (by_iteration(5), [1.0] * 3 + [0.0] * 2, [0.0] * 3 + [2.0] * 2),
        (by_epoch(3, 2), [1.0] * 3 + [0.0] * 3, [0.0] * 3 + [2.0] * 3),
        (by_epoch(1, 4), [1.0] * 2 + [0.0] * 2, [0.0] * 2 + [2.0] * 2),
    ],
    ids=['iterations', 'odd number of iterations', 'amid an epoch', 'in the only epoch'],
)
def test_weights_change_at_their_share_of_training(clock, ce, lovasz, tmp_path):
    assert train(tmp_path, clock).steps == steps(ce, lovasz)


def test_each_loss_has_points_of_its_own(tmp_path):
    weights = dict(loss_ce=[(0, 1.0), (0.25, 0.5), (0.75, 0.25)], loss_lovasz=[[0, 0.1], [0.5, 0.9]])
    expected = steps([1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25], [0.1] * 4 + [0.9] * 4)
    assert train(tmp_path, by_iteration(8), weights).steps == expected


@pytest.mark.parametrize(
    ('clock', 'checkpoint', 'done'),
    [
        (by_iteration(8), 'iter_2.pth', 2),
        (by_iteration(8), 'iter_4.pth', 4),
        (by_iteration(8), 'iter_6.pth', 6),
        (by_epoch(4, 2), 'epoch_1.pth', 2),
        (by_epoch(4, 2), 'epoch_3.pth', 6),
    ],
    ids=lambda value: value if isinstance(value, str) else '',
)
def test_resumed_training_goes_on_with_the_weights_of_its_iteration(clock, checkpoint, done, tmp_path):
    whole = train(tmp_path, clock)
    resumed = train(tmp_path, clock, checkpoint=checkpoint)
    assert resumed.steps == whole.steps[done:]
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


def test_decimal_shares_fall_on_their_iteration():
    model = Pixels()
    for start in range(1, 1000):
        hook = started(model, dict(loss_ce=[(0, 1.0), (float(f'0.{start:03}'), 0.5)]), start - 1, 1000)
        assert model.weights()[0] == 1, start
        hook.before_train_iter(at(model, start, 1000), 0)
        assert model.weights()[0] == 0.5, start


def test_losses_outside_of_the_weights_are_left_alone():
    model = Pixels()
    before = model.weights()
    started(model, dict(loss_lovasz=[(0, 5.0)]))
    assert model.weights() == [before[0], 5.0, *before[2:]]


def test_losses_of_a_distributed_model_are_found_in_its_wrapper():
    distributed.init_process_group('gloo', store=distributed.HashStore(), rank=0, world_size=1)
    try:
        model = Pixels()
        wrapped = MMDistributedDataParallel(model)
        started(wrapped, SWITCH, iteration=7)
        image, label = batch()
        wrapped(image=image, label=label, mode='loss')
        assert model.steps == steps([0.0], [2.0])
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize('cls', [CrossEntropyLoss, LovaszSoftmaxLoss, LossMaxPooling])
def test_value_and_gradient_are_scaled(cls):
    """MMSegmentation's own loss among them."""
    loss = cls()
    logits, label = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_(), batch()[1]
    plain = loss(logits, label)
    (slope,) = torch.autograd.grad(plain, logits)
    for factor in (2.0, 0.0, 0.25):
        started(nn.ModuleList([loss]), {loss.loss_name: [(0, factor)]})
        scaled = loss(logits, label)
        torch.testing.assert_close(scaled, factor * plain)
        torch.testing.assert_close(torch.autograd.grad(scaled, logits)[0], factor * slope)


def test_unknown_names_are_an_error_with_the_known_ones():
    with pytest.raises(ValueError, match='`weights`') as raised:
        started(Pixels(), dict(loss_ce=[(0, 1.0)], loss_typo=[(0, 1.0)]))
    names, unknown = str(raised.value).split('Found')
    assert all(name in names for name in ('loss_ce', 'loss_lovasz', 'loss_soft_iou'))
    assert unknown == " ['loss_typo']."


@pytest.mark.parametrize(
    'weights',
    [None, {}, 'loss_ce', [('loss_ce', 1.0)], *(dict(loss_ce=p) for p in (None, 1.0, [1.0], [(0, 1.0, 2.0)]))],
)
def test_weights_of_another_form_are_a_type_error(weights):
    with pytest.raises(TypeError, match=r'`weights`.*Found'):
        LossWeightHook(weights)


@pytest.mark.parametrize('points', [[(0, 'a')], [(0, None)], [(0, math.nan)], [('0', 1.0)], ['01']], ids=repr)
def test_points_that_are_no_numbers_are_refused(points):
    with pytest.raises((TypeError, ValueError), match='`weights`'):
        LossWeightHook(dict(loss_ce=points))


@pytest.mark.parametrize('shares', [[], [0.5], [-0.5, 0.5], [0, 0], [0, 0.5, 0.2], [0, 1.5], [0, math.nan]], ids=repr)
def test_shares_that_do_not_grow_from_0_to_1_are_a_value_error(shares):
    with pytest.raises(ValueError, match=r"`weights`.*Found.*'loss_ce'"):
        LossWeightHook(dict(loss_ce=[(share, 1.0) for share in shares]))


def test_the_pixel_loss_of_another_loss_is_left_alone():
    pooled = LossMaxPooling(pixel_loss=dict(type='mmseg.models.losses.CrossEntropyLoss'))
    image, label = batch()
    logits = torch.cat([image, -image], 1)
    before = pooled(logits, label)
    started(nn.ModuleList([CrossEntropyLoss(), pooled]), dict(loss_ce=[(0, 0.0)], loss_lmp=[(0, 1.0)]))
    torch.testing.assert_close(pooled(logits, label), before)

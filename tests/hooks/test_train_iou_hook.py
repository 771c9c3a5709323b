"""The IoU of training, by a real Runner wherever the clock matters, and by two processes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from mmengine.structures import PixelData
from mmseg.models.decode_heads import FCNHead
from mmseg.structures import SegDataSample
from processes import find_as_a_process, found_by_ranks
from torch import nn
from torch.utils.data import BatchSampler, DataLoader

from mmseg_nondecomp import IoUAdaptiveSampler
from mmseg_nondecomp.functional.jaccard_counts import count_decisions
from mmseg_nondecomp.hooks import TrainIoUHook
from mmseg_nondecomp.hooks.train_iou_hook import KEY

NAMES = ('a', 'b', 'c')
CROSS_ENTROPY = dict(type='mmseg.CrossEntropyLoss', avg_non_ignore=True)


def head(loss=CROSS_ENTROPY, cls=FCNHead, **kwargs):
    return cls(
        in_channels=1,
        channels=4,
        num_convs=1,
        concat_input=False,
        num_classes=3,
        norm_cfg=None,
        dropout_ratio=0,
        loss_decode=loss,
        **kwargs,
    )


class Pixels(BaseModel):
    """A decode head on the image itself, which remembers what it hands to its loss."""

    def __init__(self, decode_head=None):
        super().__init__()
        self.decode_head = decode_head or head()
        self.seen = []
        last = self.decode_head[-1] if isinstance(self.decode_head, nn.ModuleList) else self.decode_head
        losses = last.loss_decode
        first = losses[0] if isinstance(losses, nn.ModuleList) else losses
        first.register_forward_pre_hook(lambda _, args: self.seen.append([a.detach().clone() for a in args]))

    def forward(self, image, label, mode):
        samples = [SegDataSample(gt_sem_seg=PixelData(data=one)) for one in label]
        heads = self.decode_head if isinstance(self.decode_head, nn.ModuleList) else [self.decode_head]
        return {f'{i}.{k}': v for i, h in enumerate(heads) for k, v in h.loss([image], samples, None).items()}


class Images:
    """Six images of three classes; class 2 is in two of them."""

    metainfo = dict(classes=NAMES)

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randn(6, 1, 8, 8, generator=generator)
        self.labels = torch.randint(2, (6, 1, 8, 8), generator=generator)
        self.labels[:2, :, 3:] = 2
        self.labels[:, :, 0] = 255

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return dict(image=self.images[i], label=self.labels[i])

    def get_cat_ids(self, i):
        return [0, 1, 2] if i < 2 else [0, 1]


def train(folder, n_iters, hook=None, model=None, checkpoint=None, sampler=True, resume=True, hooks=True):
    """The Runner after training."""
    torch.manual_seed(0)
    model = model or Pixels()
    data = Images()
    sampler = IoUAdaptiveSampler(data, seed=0) if sampler else None
    runner = Runner(
        model=model,
        work_dir=str(folder),
        experiment_name=f'{folder.name} {n_iters} {checkpoint} {resume}',
        train_dataloader=DataLoader(data, batch_size=2, sampler=sampler),
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=n_iters),
        optim_wrapper=OptimWrapper(torch.optim.SGD(model.parameters(), 0.1)),
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=5)),
        custom_hooks=[{'type': 'TrainIoUHook', 'interval': 2, **(hook or {})}] if hooks else None,
        load_from=checkpoint and str(folder / checkpoint),
        resume=checkpoint is not None and resume,
        randomness=dict(seed=0),
        log_level='ERROR',
    )
    runner.train()
    return runner


def iou_by_definition(seen, momentum, decide=lambda logits: logits.argmax(1)):
    """The running IoU after each iteration, pixel by pixel."""
    intersection, union, found = np.zeros(3), np.zeros(3), []
    for logits, labels in seen:
        decided = decide(logits)
        for c in range(3):
            valid = labels != 255
            hit = ((decided == c) & (labels == c) & valid).sum().item()
            either = (((decided == c) | (labels == c)) & valid).sum().item()
            intersection[c] = momentum * intersection[c] + hit
            union[c] = momentum * union[c] + either
        found.append(intersection / np.where(union > 0, union, np.nan))
    return found


def scalars(runner, name):
    return runner.message_hub.get_scalar(f'train/train/{name}').data[0]


class TestCountDecisions:
    def test_against_sets(self):
        generator = torch.Generator().manual_seed(0)
        decided, target = torch.randint(4, (2, 3, 50), generator=generator)
        target[target == 3] = torch.tensor([-1, 255, 4, 1])[torch.randint(4, ((target == 3).sum(),))]
        counts = count_decisions(decided, target, 4)
        valid = (target >= 0) & (target < 4)
        for c in range(4):
            d, t = (decided == c) & valid, (target == c) & valid
            assert counts[:, c].tolist() == [(d & t).sum(), (d | t).sum()]

    def test_nothing_valid(self):
        assert count_decisions(torch.zeros(5).long(), torch.full((5,), 255), 3).tolist() == [[0] * 3] * 2

    def test_labels_of_bytes(self):
        decided, target = torch.tensor([0, 19, 19]), torch.tensor([0, 19, 255], dtype=torch.uint8)
        assert count_decisions(decided, target, 20)[:, [0, 19]].tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize('momentum', [0.0, 0.9])
def test_reports_the_running_iou(tmp_path, momentum):
    runner = train(tmp_path, 6, dict(momentum=momentum))
    expected = iou_by_definition(runner.model.seen, momentum)[1::2]
    assert np.allclose(scalars(runner, 'mIoU'), [np.nanmean(iou) for iou in expected])
    for c, name in enumerate(NAMES):
        told = [iou[c] for iou in expected if not np.isnan(iou[c])]
        assert np.allclose(scalars(runner, f'IoU.{name}'), told)


def test_tells_the_sampler(tmp_path):
    runner = train(tmp_path, 6)
    expected = iou_by_definition(runner.model.seen, 0.99)[1::2]
    state = runner.train_dataloader.sampler.state_dict()
    assert np.allclose(torch.stack(state['iou'][1:]), np.nan_to_num(expected))
    assert state['since'] == [0, 4, 8, 12]


def test_needs_no_sampler(tmp_path):
    runner = train(tmp_path, 4, sampler=False)
    assert len(scalars(runner, 'mIoU')) == 2


def test_classes_can_stay_out_of_the_log(tmp_path):
    runner = train(tmp_path, 4, dict(per_class=False))
    assert not [key for key in runner.message_hub.log_scalars if 'IoU.' in key]


def test_training_is_the_same_with_and_without(tmp_path):
    with_hook = train(tmp_path / 'a', 5, sampler=False).model
    without = train(tmp_path / 'b', 5, sampler=False, hooks=False)
    torch.testing.assert_close(with_hook.state_dict(), without.model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ('decode_head', 'decide'),
    [
        (lambda: head([CROSS_ENTROPY, dict(type='LovaszSoftmaxLoss')]), lambda z: z.argmax(1)),
        (lambda: nn.ModuleList([head(), head()]), lambda z: z.argmax(1)),
        (lambda: head(dict(type='LossMaxPooling')), lambda z: z.argmax(1)),
    ],
    ids=['two losses', 'cascade', 'loss max-pooling'],
)
def test_heads(tmp_path, decode_head, decide):
    runner = train(tmp_path, 4, model=Pixels(decode_head()))
    expected = iou_by_definition(runner.model.seen, 0.99, decide)[1::2]
    assert np.allclose(scalars(runner, 'mIoU'), [np.nanmean(iou) for iou in expected])


def test_one_channel_decides_at_the_threshold_of_the_head(tmp_path):
    """Between two classes; the label 2 of the third is out of range and does not count."""
    loss = dict(type='LossMaxPooling', pixel_loss='bce')
    binary = FCNHead(
        in_channels=1,
        channels=4,
        num_convs=1,
        concat_input=False,
        num_classes=2,
        out_channels=1,
        threshold=0.4,
        norm_cfg=None,
        loss_decode=loss,
    )
    hook = started(SimpleNamespace(decode_head=binary), sampler=None)
    logits = torch.tensor([-1.0, -0.41, -0.4, 3.0, 3.0]).view(1, 1, 1, 5)
    assert (logits.sigmoid() > 0.4).flatten().tolist() == [False, False, True, True, True]
    binary.loss_decode(logits, torch.tensor([0, 1, 0, 1, 255]).view(1, 1, 5), ignore_index=255)
    assert hook.batch_counts.tolist() == [[1, 1], [3, 3]]


class TestResume:
    def test_goes_on_as_if_it_had_not_stopped(self, tmp_path):
        whole = train(tmp_path / 'whole', 11)
        train(tmp_path / 'parts', 11 - 6)
        resumed = train(tmp_path / 'parts', 11, checkpoint='iter_5.pth')
        for one, other in zip(whole.model.seen[5:], resumed.model.seen, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
        assert np.array_equal(scalars(whole, 'mIoU'), scalars(resumed, 'mIoU'))
        states = [runner.train_dataloader.sampler.state_dict() for runner in (whole, resumed)]
        torch.testing.assert_close(*states, rtol=0, atol=0)
        torch.testing.assert_close(whole.message_hub.get_info(KEY), resumed.message_hub.get_info(KEY), rtol=0, atol=0)

    def test_loading_weights_starts_anew(self, tmp_path):
        train(tmp_path, 5)
        fresh = train(tmp_path, 2, checkpoint='iter_5.pth', resume=False)
        assert np.allclose(scalars(fresh, 'mIoU'), np.nanmean(iou_by_definition(fresh.model.seen, 0.99)[1]))

    def test_another_training_in_the_process_starts_anew(self, tmp_path):
        first, second = (train(tmp_path, 2).message_hub.get_info(KEY) for _ in range(2))
        torch.testing.assert_close(first['counts'], second['counts'])

    def test_sampler_that_is_new_starts_anew(self, tmp_path):
        train(tmp_path, 5, sampler=False)
        with pytest.warns(UserWarning, match='had 0 samplers that follow the IoU, and has 1 now'):
            resumed = train(tmp_path, 7, checkpoint='iter_5.pth')
        expected = iou_by_definition(train(tmp_path / 'whole', 5, sampler=False).model.seen, 0.99)[-1]
        assert not np.isnan(expected).any()
        assert resumed.train_dataloader.sampler.state_dict()['since'] == [0, 12]

    def test_sampler_that_is_gone_is_told(self, tmp_path):
        train(tmp_path, 5)
        with pytest.warns(UserWarning, match='had 1 samplers that follow the IoU, and has 0 now'):
            train(tmp_path, 6, checkpoint='iter_5.pth', sampler=False)

    def test_other_classes_are_an_error(self):
        with pytest.raises(ValueError, match=r'3 classes should be resumed\. Found counts of shape \(2, 5\)'):
            started(Pixels(), state=dict(counts=torch.zeros(2, 5), samplers=[]))


def hub(state=None):
    infos, scalars = {KEY: state}, {}
    return SimpleNamespace(
        get_info=infos.get,
        update_info=infos.__setitem__,
        update_scalar=scalars.__setitem__,
        infos=infos,
        scalars=scalars,
    )


def started(model, sampler=None, state=None, **kwargs):
    """The hook at the start of a training, without a Runner."""
    hook = TrainIoUHook(**{'interval': 1, **kwargs})
    loader = SimpleNamespace(sampler=sampler, batch_sampler=None, dataset=Images())
    hook.before_train(SimpleNamespace(model=model, train_dataloader=loader, message_hub=hub(state)))
    return hook


def test_class_that_was_not_met_for_long_is_not_known():
    """Neither by chance of rounding 0 or 1."""
    model = Pixels(head(dict(type='LovaszSoftmaxLoss')))
    hook = started(model, momentum=0.5)
    logits = torch.zeros(1, 3, 4, 4)
    logits[:, 1] = 1
    for label in [2] + [1] * 40:
        model.decode_head.loss_decode(logits, torch.full((1, 4, 4), label))
        hook.after_train_iter(SimpleNamespace(iter=0, message_hub=hub(), train_dataloader=None), 0)
        assert (hook.counts[1, 2] > 0) == (label == 2 or hook.counts[1, 1] < 32 - 1e-6)
    assert hook.counts[:, 2].tolist() == [0, 0]


def test_sampler_within_a_batch_sampler_is_found():
    sampler = IoUAdaptiveSampler(Images(), seed=0)
    loader = DataLoader(Images(), batch_sampler=BatchSampler(sampler, 2, False))
    hook = TrainIoUHook()
    hook.before_train(SimpleNamespace(model=Pixels(), train_dataloader=loader, message_hub=hub()))
    assert hook.samplers == [sampler]


class TestMistakes:
    @pytest.mark.parametrize('interval', [0, -1, 1.5])
    def test_interval(self, interval):
        with pytest.raises(ValueError, match='`interval`'):
            TrainIoUHook(interval=interval)

    @pytest.mark.parametrize('momentum', [-0.1, 1.0, float('nan')])
    def test_momentum(self, momentum):
        with pytest.raises(ValueError, match='`momentum`'):
            TrainIoUHook(momentum=momentum)

    def test_no_such_head(self):
        with pytest.raises(ValueError, match=r"`head` should name a decode head of Pixels\. Found 'roi_head'"):
            started(Pixels(), head='roi_head')

    def test_no_such_loss(self):
        with pytest.raises(ValueError, match=r'`loss` should be below 1 for this head. Found 2'):
            started(Pixels(), loss=2)

    def test_head_that_does_not_call_its_loss(self):
        hook = started(Pixels())
        with pytest.raises(RuntimeError, match=r'`decode_head` \(FCNHead\) does not hand its logits'):
            hook.after_train_iter(None, 0)

    @pytest.mark.parametrize(
        ('logits', 'target'),
        [((2, 3), (2,)), ((2, 4, 5, 5), (2, 5, 5)), ((2, 3, 5, 5), (2, 4, 5)), ((2, 3, 5, 5), (2, 3, 5, 5))],
    )
    def test_head_that_hands_over_something_else(self, logits, target):
        model = Pixels(head(dict(type='LovaszSoftmaxLoss')))
        started(model)
        with pytest.raises(ValueError, match=r'TrainIoUHook needs logits \[N, 3, H, W\]'):
            model.decode_head.loss_decode(torch.zeros(logits), torch.zeros(target).long())

    def test_data_set_of_other_classes(self):
        sampler = SimpleNamespace(set_iou=None, index=SimpleNamespace(n_classes=7))
        with pytest.raises(ValueError, match=r'as many classes as the head, 3\. Found 7'):
            started(Pixels(), sampler)


def test_listens_no_more_after_training(tmp_path):
    model = train(tmp_path, 2).model
    loss = model.decode_head.loss_decode
    assert len(loss._forward_pre_hooks) == 1, 'the one of this test'


def test_is_built_by_name():
    assert type(HOOKS.build(dict(type='TrainIoUHook'))) is TrainIoUHook


def test_two_processes_find_what_one_finds(tmp_path):
    for found in found_by_ranks(__file__, tmp_path):
        assert torch.equal(found, iterations(0, 1))


def iterations(rank, world_size):
    """The counts after three iterations on this process's half of each batch."""
    model = Pixels(head(dict(type='LovaszSoftmaxLoss')))
    hook = started(model, momentum=0.5)
    generator = torch.Generator().manual_seed(0)
    for i in range(3):
        logits = torch.randn(4, 3, 6, 6, generator=generator)
        labels = torch.randint(3, (4, 6, 6), generator=generator)
        labels[:2][labels[:2] == 1] = 255
        model.decode_head.loss_decode(logits.chunk(world_size)[rank], labels.chunk(world_size)[rank])
        runner = SimpleNamespace(iter=i, message_hub=hub(), train_dataloader=SimpleNamespace(dataset=Images()))
        hook.after_train_iter(runner, i)
    return hook.counts


if __name__ == '__main__':
    find_as_a_process(lambda rank: iterations(rank, 2))

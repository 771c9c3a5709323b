"""The IoU of training, by a real Runner and by two processes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hooks.pixels import (
    BINARY,
    LOVASZ,
    NAMES,
    Images,
    Pixels,
    after_iteration,
    head,
    hub,
    logged,
    random_batch,
    started,
    trained,
)
from processes import find_as_a_process, found_by_ranks
from torch.utils.data import BatchSampler, DataLoader

from mmseg_nondecomp import IoUAdaptiveSampler
from mmseg_nondecomp.functional._averaging import count_decisions
from mmseg_nondecomp.hooks import TrainIoUHook
from mmseg_nondecomp.hooks.train_iou_hook import KEY


def train(folder, n_iters, checkpoint=None, resume=True, sampler=True, model=None, hook=True, **settings):
    """The Runner after training with the hook, from the start or from a checkpoint in the folder."""
    return trained(
        folder,
        n_iters,
        dict(type='TrainIoUHook', interval=2, **settings) if hook else None,
        model,
        IoUAdaptiveSampler(Images(), seed=0) if sampler else None,
        **(dict(load_from=str(folder / checkpoint), resume=resume) if checkpoint else {}),
    )


def iou_by_definition(seen, momentum=0.99):
    intersection, union, iou = np.zeros(3), np.zeros(3), []
    for logits, labels in seen:
        decided = logits.argmax(1)
        for c in range(3):
            valid = labels != 255
            hit = ((decided == c) & (labels == c) & valid).sum().item()
            either = (((decided == c) | (labels == c)) & valid).sum().item()
            intersection[c] = momentum * intersection[c] + hit
            union[c] = momentum * union[c] + either
        iou.append(intersection / np.where(union > 0, union, np.nan))
    return iou


def test_decisions_are_counted_as_sets():
    generator = torch.Generator().manual_seed(0)
    decided, target = torch.randint(4, (2, 3, 50), generator=generator)
    target[target == 3] = torch.tensor([-1, 255, 4, 1])[torch.randint(4, ((target == 3).sum(),))]
    counts = count_decisions(decided, target, 4)
    valid = (target >= 0) & (target < 4)
    for c in range(4):
        d, t = (decided == c) & valid, (target == c) & valid
        assert counts[:, c].tolist() == [(d & t).sum(), (d | t).sum()]
    assert not count_decisions(torch.zeros(5).long(), torch.full((5,), 255), 3).any()
    of_bytes = count_decisions(torch.tensor([0, 19, 19]), torch.tensor([0, 19, 255], dtype=torch.uint8), 20)
    assert of_bytes[:, [0, 19]].tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize('momentum', [0.0, 0.9, 0.99])
def test_logs_the_running_iou_and_hands_it_to_the_sampler(tmp_path, momentum):
    runner = train(tmp_path, 6, momentum=momentum)
    expected = iou_by_definition(runner.model.seen, momentum)[1::2]
    assert np.allclose(logged(runner, 'mIoU'), [np.nanmean(iou) for iou in expected])
    for c, name in enumerate(NAMES):
        assert np.allclose(logged(runner, f'IoU.{name}'), [iou[c] for iou in expected if not np.isnan(iou[c])])
    state = runner.train_dataloader.sampler.state_dict()
    assert np.allclose(torch.stack(state['iou'][1:]), np.nan_to_num(expected))
    assert state['since'] == [0, 4, 8, 12]


def test_training_is_the_same_with_and_without_a_hook_that_logs_only_the_mean(tmp_path):
    runner = train(tmp_path / 'a', 5, per_class=False, sampler=False)
    assert len(logged(runner, 'mIoU')) == 2, 'needs no sampler'
    assert not [key for key in runner.message_hub.log_scalars if 'IoU.' in key]
    without = train(tmp_path / 'b', 5, sampler=False, hook=False).model
    torch.testing.assert_close(runner.model.state_dict(), without.state_dict(), rtol=0, atol=0)
    assert len(runner.model.decode_head.loss_decode._forward_pre_hooks) == 1, 'the one of this test'


def started_with(model=None, sampler=None, state=None, **settings):
    return started(TrainIoUHook(**{'interval': 1, **settings}), model, sampler, message_hub=hub(**{KEY: state}))


def test_one_channel_decides_at_the_threshold_of_the_head():
    """Between two classes; the label 2 of the third is out of range and does not count."""
    binary = head(**BINARY, threshold=0.4)
    hook = started_with(SimpleNamespace(decode_head=binary))
    logits = torch.tensor([-1.0, -0.41, -0.4, 3.0, 3.0]).view(1, 1, 1, 5)
    assert (logits.sigmoid() > 0.4).flatten().tolist() == [False, False, True, True, True]
    binary.loss_decode(logits, torch.tensor([0, 1, 0, 1, 255]).view(1, 1, 5), ignore_index=255)
    assert hook.batch_counts.tolist() == [[1, 1], [3, 3]]


class TestResume:
    def test_goes_on_as_if_it_had_not_stopped(self, tmp_path):
        whole = train(tmp_path / 'whole', 11)
        train(tmp_path / 'parts', 5)
        resumed = train(tmp_path / 'parts', 11, 'iter_5.pth')
        for one, other in zip(whole.model.seen[5:], resumed.model.seen, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
        assert np.array_equal(logged(whole, 'mIoU'), logged(resumed, 'mIoU'))
        states = [runner.train_dataloader.sampler.state_dict() for runner in (whole, resumed)]
        torch.testing.assert_close(*states, rtol=0, atol=0)
        torch.testing.assert_close(whole.message_hub.get_info(KEY), resumed.message_hub.get_info(KEY), rtol=0, atol=0)

    def test_loading_weights_starts_anew(self, tmp_path):
        train(tmp_path, 5)
        fresh = train(tmp_path, 2, 'iter_5.pth', resume=False)
        assert np.allclose(logged(fresh, 'mIoU'), np.nanmean(iou_by_definition(fresh.model.seen)[1]))

    def test_another_training_in_the_process_starts_anew(self, tmp_path):
        first, second = (train(tmp_path, 2).message_hub.get_info(KEY) for _ in range(2))
        torch.testing.assert_close(first['counts'], second['counts'])

    @pytest.mark.parametrize(('before', 'now'), [(False, True), (True, False)])
    def test_another_number_of_samplers_is_a_warning(self, tmp_path, before, now):
        train(tmp_path, 5, sampler=before)
        with pytest.warns(UserWarning, match=f'had {before:d} samplers that follow the IoU, and has {now:d} now'):
            resumed = train(tmp_path, 7, 'iter_5.pth', sampler=now)
        assert not now or resumed.train_dataloader.sampler.state_dict()['since'] == [0, 12]

    def test_other_classes_are_an_error(self):
        with pytest.raises(ValueError, match=r'3 classes should be resumed\. Found counts of shape \(2, 5\)'):
            started_with(state=dict(counts=torch.zeros(2, 5), samplers=[]))


def test_a_class_without_recent_pixels_is_unknown():
    """Its IoU is not 0 or 1 by rounding."""
    model = Pixels(head(LOVASZ))
    hook = started_with(model, momentum=0.5)
    logits = torch.zeros(1, 3, 4, 4)
    logits[:, 1] = 1
    for label in [2] + [1] * 40:
        model.decode_head.loss_decode(logits, torch.full((1, 4, 4), label))
        after_iteration(hook)
        assert (hook.counts[1, 2] > 0) == (label == 2 or hook.counts[1, 1] < 32 - 1e-6)
    assert hook.counts[:, 2].tolist() == [0, 0]


def test_sampler_within_a_batch_sampler_is_found():
    sampler = IoUAdaptiveSampler(Images(), seed=0)
    loader = DataLoader(Images(), batch_sampler=BatchSampler(sampler, 2, False))
    hook = TrainIoUHook()
    hook.before_train(SimpleNamespace(model=Pixels(), train_dataloader=loader, message_hub=hub()))
    assert hook.samplers == [sampler]


class TestMistakes:
    @pytest.mark.parametrize('momentum', [-0.1, 1.0, float('nan')])
    def test_momentum(self, momentum):
        with pytest.raises(ValueError, match='`momentum`'):
            TrainIoUHook(momentum=momentum)

    @pytest.mark.parametrize(
        ('logits', 'target'),
        [((2, 3), (2,)), ((2, 4, 5, 5), (2, 5, 5)), ((2, 3, 5, 5), (2, 4, 5)), ((2, 3, 5, 5), (2, 3, 5, 5))],
    )
    def test_head_with_other_inputs_of_its_loss(self, logits, target):
        model = Pixels(head(LOVASZ))
        started_with(model)
        with pytest.raises(ValueError, match=r'TrainIoUHook needs logits \[N, 3, H, W\]'):
            model.decode_head.loss_decode(torch.zeros(logits), torch.zeros(target).long())

    def test_data_set_of_other_classes(self):
        sampler = SimpleNamespace(set_iou=None, index=SimpleNamespace(n_classes=7))
        with pytest.raises(ValueError, match=r'as many classes as the head, 3\. Found 7'):
            started_with(sampler=sampler)


def test_two_processes_count_what_one_counts(tmp_path):
    for found in found_by_ranks(__file__, tmp_path):
        assert torch.equal(found, iterations(0, 1))


def iterations(rank, world_size):
    """The counts after three iterations on this process's part of each batch."""
    model = Pixels(head(LOVASZ))
    hook = started_with(model, momentum=0.5)
    for i in range(3):
        logits, labels = random_batch(seed=i)
        model.decode_head.loss_decode(logits.chunk(world_size)[rank], labels.chunk(world_size)[rank])
        after_iteration(hook, i)
    return hook.counts


if __name__ == '__main__':
    find_as_a_process(lambda rank: iterations(rank, 2))

"""The logits and labels that a head passes to its losses, and the errors for heads that pass none."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hooks.pixels import BINARY, CROSS_ENTROPY, LOVASZ, Images, head, losses_of, started
from mmengine.structures import PixelData
from mmseg.models.decode_heads import PIDHead
from mmseg.structures import SegDataSample
from torch import nn

from mmseg_nondecomp.hooks._loss_inputs import LossInputsHook


class SomeHook(LossInputsHook):
    def __init__(self, head='decode_head', loss=None, interval=1):
        super().__init__(interval, head, loss)
        self.calls = []

    def update(self, *inputs):
        self.calls.append(inputs)


class Model(nn.Module):
    def __init__(self, decode_head):
        super().__init__()
        self.decode_head = decode_head


def listening(decode_head, data=None, **settings):
    return started(SomeHook(**settings), Model(decode_head), data=data)


def train_on_zeros(decode_head):
    losses_of(decode_head, torch.randn(2, 1, 8, 8), torch.zeros(2, 1, 8, 8).long())


def test_logits_target_and_ignored_label_are_passed_on():
    decode_head = head(ignore_index=7)
    hook = listening(decode_head)
    train_on_zeros(decode_head)
    [(logits, target, ignore_index)] = hook.calls
    assert logits.shape == (2, 3, 8, 8)
    assert not logits.requires_grad
    assert torch.equal(target, torch.zeros(2, 8, 8).long())
    assert ignore_index == 7


def test_heads_of_images():
    """MMPretrain's heads call their `loss_module`, and have no label to ignore."""
    decode_head = nn.Module()
    decode_head.num_classes, decode_head.loss_module = 3, nn.CrossEntropyLoss()
    hook = listening(decode_head)
    logits, target = torch.randn(9, 3), torch.randint(3, (9,))
    decode_head.loss_module(logits, target=target)
    assert [(z.equal(logits), y.equal(target), ignored) for z, y, ignored in hook.calls] == [(True, True, None)]


def test_the_last_head_of_a_cascade_counts():
    cascade = nn.ModuleList([head(), head()])
    hook = listening(cascade)
    train_on_zeros(cascade[0])
    assert not hook.calls
    train_on_zeros(cascade[1])
    assert len(hook.calls) == 1


def test_heads_are_found_by_name():
    outer = nn.Module()
    outer.inner = head()
    assert listening(outer, head='decode_head.inner').head is outer.inner
    with pytest.raises(ValueError, match=r"hands logits of pixels to its `loss_decode`.*Found 'decode_head', a Module"):
        listening(outer)
    with pytest.raises(ValueError, match=r"`head` should name a decode head of Model\. Found 'roi_head'"):
        listening(head(), head='roi_head')


def test_several_losses_of_the_same_logits_count_once_and_not_after_training():
    decode_head = head([CROSS_ENTROPY, LOVASZ])
    hook = listening(decode_head)
    train_on_zeros(decode_head)
    assert len(hook.calls) == 1
    hook.after_train(None)
    train_on_zeros(decode_head)
    assert len(hook.calls) == 1


def test_a_loss_that_is_not_called_is_an_error_with_hook_and_head():
    decode_head = head()
    hook = listening(decode_head)
    train_on_zeros(decode_head)
    hook.check_called()
    with pytest.raises(RuntimeError, match=r'SomeHook received no logits: `decode_head` \(FCNHead\) does not pass'):
        hook.check_called()


class TestDecided:
    def test_by_the_greatest_of_several_channels(self):
        logits = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
        assert torch.equal(listening(head()).decided(logits), logits.argmax(1))

    @pytest.mark.parametrize(('threshold', 'expected'), [(0.3, [0, 1, 1]), (0.5, [0, 0, 1])])
    def test_of_one_channel_by_the_threshold_of_the_head(self, threshold, expected):
        hook = listening(head(**BINARY, threshold=threshold))
        logits = torch.tensor([0.2, 0.4, 0.6]).logit().view(1, 1, 3, 1)
        assert hook.decided(logits).flatten().tolist() == expected


def test_a_head_with_different_logits_needs_the_number_of_the_deciding_loss():
    """The integral branch of the head is right, the proportional one wrong."""
    ohem = dict(type='mmseg.OhemCrossEntropy', min_kept=10)
    losses = [CROSS_ENTROPY, ohem, dict(type='mmseg.BoundaryLoss'), ohem]
    settings = dict(in_channels=4, channels=4, num_classes=3, norm_cfg=dict(type='BN'), loss_decode=losses)
    labels = torch.randint(3, (2, 8, 8), generator=torch.Generator().manual_seed(0))
    right = 100.0 * F.one_hot(labels, 3).movedim(-1, 1)
    samples = [
        SegDataSample(gt_sem_seg=PixelData(data=label[None]), gt_edge_map=PixelData(data=label[None] * 0))
        for label in labels
    ]

    def listened(**loss):
        decode_head = PIDHead(**settings)
        hook = listening(decode_head, **loss)
        decode_head.loss_by_feat((-right, right, torch.zeros(2, 1, 8, 8)), samples)
        return hook

    hook = listened(loss=1)
    [(logits, target, _)] = hook.calls
    assert torch.equal(hook.decided(logits), target)
    with pytest.raises(ValueError, match=r'hands different logits to its losses.*`SomeHook\(loss=1\)`'):
        listened()
    with pytest.raises(ValueError, match=r'`loss` should be below 1 for this head. Found 2'):
        listening(head(), loss=2)


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(interval=0), '`interval` should be a positive integer. Found 0'),
        (dict(interval=1.5), '`interval`.* Found 1.5'),
        (dict(loss=-1), '`loss` should be an integer from 0 on or None. Found -1'),
        (dict(loss=True), '`loss`.* Found True'),
    ],
    ids=str,
)
def test_arguments_out_of_range(settings, message):
    with pytest.raises(ValueError, match=message):
        SomeHook(**settings)


@pytest.mark.parametrize(
    ('data', 'expected'),
    [
        (SimpleNamespace(), ['0', '1', '2']),
        (SimpleNamespace(metainfo={}), ['0', '1', '2']),
        (SimpleNamespace(metainfo=dict(classes=('one',))), ['0', '1', '2']),
        (Images(), ['a', 'b', 'c']),
    ],
    ids=['none', 'empty', 'another number', 'as many'],
)
def test_classes_without_names_have_numbers(data, expected):
    assert listening(head(), data).class_names == expected

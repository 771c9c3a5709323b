"""What is heard of a head that hands logits to its losses, and what is said of one that cannot be listened to."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from mmengine.structures import PixelData
from mmseg.models.decode_heads import FCNHead, PIDHead
from mmseg.structures import SegDataSample
from torch import nn

from mmseg_nondecomp.hooks.loss_listener import LossListener, check_listening, class_names

CROSS_ENTROPY = dict(type='mmseg.CrossEntropyLoss', avg_non_ignore=True)


class Model(nn.Module):
    def __init__(self, decode_head):
        super().__init__()
        self.decode_head = decode_head


def head(loss=CROSS_ENTROPY, **kwargs):
    settings = dict(in_channels=1, channels=4, num_convs=1, concat_input=False, num_classes=3, norm_cfg=None)
    return FCNHead(dropout_ratio=0, loss_decode=loss, **(settings | kwargs))


def listen(decode_head, loss=None):
    """A listener, and the list of what it has heard."""
    heard = []
    return LossListener(Model(decode_head), 'decode_head', loss, lambda *said: heard.append(said), 'SomeHook'), heard


def train_on_zeros(decode_head):
    samples = [SegDataSample(gt_sem_seg=PixelData(data=torch.zeros(1, 8, 8).long())) for _ in range(2)]
    decode_head.loss([torch.randn(2, 1, 8, 8)], samples, None)


def test_hears_logits_target_and_the_label_to_ignore():
    decode_head = head(ignore_index=7)
    _, heard = listen(decode_head)
    train_on_zeros(decode_head)
    [(logits, target, ignore_index)] = heard
    assert logits.shape == (2, 3, 8, 8)
    assert not logits.requires_grad
    assert torch.equal(target, torch.zeros(2, 8, 8).long())
    assert ignore_index == 7


def test_hears_heads_of_images():
    """MMPretrain's heads call their `loss_module`, and have no label to ignore."""
    decode_head = nn.Module()
    decode_head.num_classes, decode_head.loss_module = 3, nn.CrossEntropyLoss()
    _, heard = listen(decode_head)
    logits, target = torch.randn(9, 3), torch.randint(3, (9,))
    decode_head.loss_module(logits, target=target)
    assert [(z.equal(logits), y.equal(target), ignored) for z, y, ignored in heard] == [(True, True, None)]


def test_hears_the_last_head_of_a_cascade():
    cascade = nn.ModuleList([head(), head()])
    _, heard = listen(cascade)
    train_on_zeros(cascade[0])
    assert not heard
    train_on_zeros(cascade[1])
    assert len(heard) == 1


def test_head_within_a_head():
    outer = nn.Module()
    outer.inner = head()
    listener = LossListener(Model(outer), 'decode_head.inner', None, print, 'SomeHook')
    assert listener.head is outer.inner
    with pytest.raises(ValueError, match=r"hands logits of pixels to its `loss_decode`.*Found 'decode_head', a Module"):
        listen(outer)


def test_no_such_head():
    with pytest.raises(ValueError, match=r"`head` should name a decode head of Model\. Found 'roi_head'"):
        LossListener(Model(head()), 'roi_head', None, print, 'SomeHook')


def test_hears_no_more_once_stopped():
    decode_head = head([CROSS_ENTROPY, dict(type='LovaszSoftmaxLoss')])
    listener, heard = listen(decode_head)
    listener.stop()
    train_on_zeros(decode_head)
    assert not heard


def test_silence_is_told_with_hook_and_head():
    listener, _ = listen(head())
    with pytest.raises(RuntimeError, match=r'SomeHook heard nothing: `decode_head` \(FCNHead\) does not hand'):
        raise listener.heard_nothing()


class TestDecided:
    def test_by_the_greatest_of_several_channels(self):
        logits = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
        assert torch.equal(listen(head())[0].decided(logits), logits.argmax(1))

    @pytest.mark.parametrize(('threshold', 'expected'), [(0.3, [0, 1, 1]), (0.5, [0, 0, 1])])
    def test_of_one_channel_by_the_threshold_of_the_head(self, threshold, expected):
        loss = dict(type='LossMaxPooling', pixel_loss='bce')
        listener, _ = listen(head(loss, num_classes=2, out_channels=1, threshold=threshold))
        logits = torch.tensor([0.2, 0.4, 0.6]).logit().view(1, 1, 3, 1)
        assert listener.decided(logits).flatten().tolist() == expected


class TestHeadsWithSeveralLosses:
    def test_those_that_hand_the_same_logits_are_heard_once(self):
        decode_head = head([CROSS_ENTROPY, dict(type='LovaszSoftmaxLoss')])
        _, heard = listen(decode_head)
        train_on_zeros(decode_head)
        assert len(heard) == 1

    def pid_head(self):
        ohem = dict(type='mmseg.OhemCrossEntropy', min_kept=10)
        losses = [CROSS_ENTROPY, ohem, dict(type='mmseg.BoundaryLoss'), ohem]
        return PIDHead(in_channels=4, channels=4, num_classes=3, norm_cfg=dict(type='BN'), loss_decode=losses)

    def call(self, decode_head):
        """All of its losses; the integral branch decides rightly, the proportional one wrongly."""
        labels = torch.randint(3, (2, 8, 8), generator=torch.Generator().manual_seed(0))
        right = 100.0 * F.one_hot(labels, 3).movedim(-1, 1)
        samples = [
            SegDataSample(gt_sem_seg=PixelData(data=label[None]), gt_edge_map=PixelData(data=label[None] * 0))
            for label in labels
        ]
        decode_head.loss_by_feat((-right, right, torch.zeros(2, 1, 8, 8)), samples)

    def test_the_one_that_is_handed_the_decision_can_be_named(self):
        decode_head = self.pid_head()
        listener, heard = listen(decode_head, loss=1)
        self.call(decode_head)
        [(logits, target, _)] = heard
        assert torch.equal(listener.decided(logits), target)

    def test_it_has_to_be(self):
        decode_head = self.pid_head()
        listen(decode_head)
        with pytest.raises(ValueError, match=r'hands different logits to its losses.*`SomeHook\(loss=1\)`'):
            self.call(decode_head)

    def test_there_is_no_such_loss(self):
        with pytest.raises(ValueError, match=r'`loss` should be below 1 for this head. Found 2'):
            listen(head(), loss=2)


@pytest.mark.parametrize(
    ('interval', 'loss', 'message'),
    [
        (0, None, '`interval` should be a positive integer. Found 0'),
        (-1, None, '`interval`.* Found -1'),
        (1.5, None, '`interval`.* Found 1.5'),
        (1, -1, '`loss` should be an integer from 0 on or None. Found -1'),
        (1, True, '`loss`.* Found True'),
        (1, 0.5, '`loss`.* Found 0.5'),
    ],
)
def test_arguments_that_hooks_have_in_common(interval, loss, message):
    with pytest.raises(ValueError, match=message):
        check_listening(interval, loss)


@pytest.mark.parametrize(
    ('metainfo', 'expected'),
    [
        (None, ['0', '1', '2']),
        ({}, ['0', '1', '2']),
        (dict(classes=('one',)), ['0', '1', '2']),
        (dict(classes=('a', 'b', 'c')), ['a', 'b', 'c']),
    ],
    ids=str,
)
def test_classes_without_names_have_numbers(metainfo, expected):
    data = SimpleNamespace() if metainfo is None else SimpleNamespace(metainfo=metainfo)
    assert class_names(data, 3) == expected

"""The head that gives the anchors of all levels to one loss."""

import pytest
import torch

pytest.importorskip('mmdet')

from mmengine.registry import DefaultScope
from mmengine.structures import InstanceData
from torch import nn

import mmseg_nondecomp.heads  # noqa: F401


@pytest.fixture(autouse=True)
def _scope():
    DefaultScope.get_instance('retina', scope_name='mmdet')


class Recorder(nn.Module):
    """A sum of squares over the number that it is told, and the calls that were made."""

    use_sigmoid = True

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, scores, labels, weights, avg_factor):
        self.calls.append((scores.detach(), labels, weights, avg_factor))
        return (weights.unsqueeze(1) * scores.square()).sum() / avg_factor


def head(type):
    from mmdet.registry import MODELS

    torch.manual_seed(0)
    built = MODELS.build(
        dict(
            type=type,
            num_classes=3,
            in_channels=4,
            stacked_convs=1,
            feat_channels=4,
            anchor_generator=dict(
                type='AnchorGenerator', octave_base_scale=4, scales_per_octave=1, ratios=[1.0], strides=[8, 16]
            ),
            bbox_coder=dict(type='DeltaXYWHBBoxCoder'),
            loss_cls=dict(type='FocalLoss', use_sigmoid=True),
            loss_bbox=dict(type='L1Loss'),
            train_cfg=dict(
                assigner=dict(type='MaxIoUAssigner', pos_iou_thr=0.5, neg_iou_thr=0.4, min_pos_iou=0),
                sampler=dict(type='PseudoSampler'),
                allowed_border=-1,
                pos_weight=-1,
                debug=False,
            ),
        )
    )
    built.loss_cls = Recorder()
    return built


def losses_of(built, boxes):
    generator = torch.Generator().manual_seed(1)
    features = [torch.randn(2, 4, size, size, generator=generator) for size in (8, 4)]
    instances = [InstanceData(bboxes=b, labels=torch.zeros(len(b)).long()) for b in boxes]
    metas = [dict(img_shape=(64, 64), pad_shape=(64, 64)) for _ in boxes]
    return built.loss_by_feat(*built(features), instances, metas)


BOXES = [torch.tensor([[0.0, 0.0, 32.0, 32.0], [16.0, 16.0, 60.0, 60.0]]), torch.tensor([[8.0, 8.0, 40.0, 40.0]])]


@pytest.mark.parametrize('boxes', [BOXES, [BOXES[0], torch.zeros(0, 4)], [torch.zeros(0, 4)] * 2])
def test_one_call_equals_the_calls_of_all_levels(boxes):
    stock, ours = head('RetinaHead'), head('AllLevelsRetinaHead')
    expected, found = losses_of(stock, boxes), losses_of(ours, boxes)
    assert len(stock.loss_cls.calls) == 2
    [(scores, labels, weights, avg_factor)] = ours.loss_cls.calls
    for one, parts in zip(
        (scores, labels, weights), zip(*(call[:3] for call in stock.loss_cls.calls), strict=True), strict=True
    ):
        assert torch.equal(one, torch.cat(parts))
    assert avg_factor == stock.loss_cls.calls[0][3]
    # A mean over items is the same in parts and at once.
    torch.testing.assert_close(found['loss_cls'], sum(expected['loss_cls']))
    assert found['loss_bbox'] == expected['loss_bbox']


def test_the_loss_is_back_in_its_place_after_an_error_and_gradients_reach_all_levels():
    built = head('AllLevelsRetinaHead')
    loss = built.loss_cls
    with pytest.raises(AssertionError):
        built.loss_by_feat([], [], [], [])
    assert built.loss_cls is loss
    assert 'loss_cls' in dict(built.named_children())
    losses = losses_of(built, BOXES)
    losses['loss_cls'].backward()
    assert built.retina_cls.weight.grad.abs().sum() > 0

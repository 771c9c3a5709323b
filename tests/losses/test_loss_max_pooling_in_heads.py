"""Loss max-pooling with the losses and in the heads of MMSegmentation and MMDetection."""

import needs_openmmlab  # noqa: F401  isort: skip

import pytest
import torch
import torch.nn.functional as F
from jaccard_scenes import batch
from mmengine.config import Config
from mmengine.structures import InstanceData, PixelData

from mmseg_nondecomp import LossMaxPooling
from mmseg_nondecomp.functional import loss_max_pooling


@pytest.mark.parametrize('kind', ['mmseg', 'mmdet'])
@pytest.mark.filterwarnings('ignore:Default ``avg_non_ignore``')
def test_the_registered_cross_entropy_is_the_built_in_one(kind):
    pytest.importorskip(kind)
    loss = LossMaxPooling(pixel_loss=dict(type=f'{kind}.CrossEntropyLoss'))
    torch.testing.assert_close(loss(*batch()), LossMaxPooling()(*batch()))


def config(tmp_path, base, model):
    path = tmp_path / 'config.py'
    path.write_text(f'_base_ = {base!r}\nmodel = {model!r}\n')
    return Config.fromfile(path).model


LMP = dict(_delete_=True, type='LossMaxPooling')


class TestMMSegmentation:
    @pytest.mark.parametrize('loss_decode', [LMP, LMP | dict(type='mmseg_nondecomp.LossMaxPooling')], ids=str)
    @pytest.mark.parametrize(
        ('base', 'head'), [('fcn_r50-d8', 'FCNHead'), ('deeplabv3plus_r50-d8', 'DepthwiseSeparableASPPHead')]
    )
    def test_stock_head_with_one_line(self, tmp_path, base, head, loss_decode):
        from mmseg.registry import MODELS
        from mmseg.structures import SegDataSample

        override = dict(decode_head=dict(loss_decode=loss_decode))
        cfg = config(tmp_path, f'mmseg::_base_/models/{base}.py', override).decode_head
        assert cfg.type == head
        cfg.update(in_channels=4, channels=4, norm_cfg=dict(type='BN'))
        cfg.update({'c1_in_channels': 4, 'c1_channels': 2} if 'c1_channels' in cfg else {})
        decode_head = MODELS.build(cfg)
        features = [torch.randn(2, 4, 8, 8) for _ in range(4)]
        labels = torch.randint(0, 19, (2, 1, 32, 32))
        labels[:, :, :5] = 255
        logits = decode_head(features)
        losses = decode_head.loss_by_feat(logits, [SegDataSample(gt_sem_seg=PixelData(data=x)) for x in labels])
        assert set(losses) == {'loss_lmp', 'acc_seg'}
        resized = F.interpolate(logits, size=(32, 32), mode='bilinear', align_corners=False)
        torch.testing.assert_close(losses['loss_lmp'], LossMaxPooling()(resized, labels[:, 0]))
        losses['loss_lmp'].backward()
        assert decode_head.conv_seg.weight.grad.any()


class TestMMDetection:
    @pytest.fixture(autouse=True)
    def _needs_mmdet(self):
        pytest.importorskip('mmdet')

    def test_roi_head(self, tmp_path):
        from mmdet.registry import MODELS

        override = dict(roi_head=dict(bbox_head=dict(loss_cls=LMP | dict(type='mmseg_nondecomp.LossMaxPooling'))))
        cfg = config(tmp_path, 'mmdet::_base_/models/faster-rcnn_r50_fpn.py', override).roi_head.bbox_head
        cfg.update(in_channels=4, fc_out_channels=8, num_classes=6)
        head = MODELS.build(cfg)
        assert head.fc_cls.out_features == 7
        cls_score, bbox_pred = head(torch.randn(10, 4, 7, 7))
        rois = torch.cat([torch.zeros(10, 1), torch.tensor([[0.0, 0.0, 9.0, 9.0]]).expand(10, 4)], 1)
        labels, label_weights = torch.tensor([0, 5, 2, 6, 6, 6, 6, 6, 6, 6]), torch.ones(10)
        label_weights[-2:] = 0
        targets = labels, label_weights, torch.rand(10, 4), torch.ones(10, 4)
        losses = head.loss(cls_score, bbox_pred, rois, *targets)
        expected = loss_max_pooling(F.cross_entropy(cls_score, labels, reduction='none')[:8])
        torch.testing.assert_close(losses['loss_cls'], expected)
        (losses['loss_cls'] + losses['loss_bbox']).backward()
        assert head.fc_cls.weight.grad.any()
        # Online hard example mining needs the terms.
        assert head.loss(cls_score, bbox_pred, rois, *targets, reduction_override='none')['loss_cls'].shape == (10,)

    @pytest.mark.parametrize('name', ['FCOSHead', 'RetinaHead'])
    def test_dense_head(self, name):
        from mmdet.registry import MODELS, TASK_UTILS  # noqa: F401  (the second registers what the heads build)

        loss_cls = dict(type='LossMaxPooling', pixel_loss='focal', use_sigmoid=True)
        cfg = dict(type=name, num_classes=6, in_channels=4, feat_channels=4, stacked_convs=1, loss_cls=loss_cls)
        if name == 'FCOSHead':
            cfg.update(norm_cfg=None, strides=[8, 16], regress_ranges=((-1, 32), (32, 1e8)))
        else:
            assigner = dict(type='MaxIoUAssigner', pos_iou_thr=0.5, neg_iou_thr=0.4, min_pos_iou=0, ignore_iof_thr=-1)
            cfg.update(
                anchor_generator=dict(
                    type='AnchorGenerator', octave_base_scale=4, scales_per_octave=1, ratios=[1.0], strides=[8, 16]
                ),
                train_cfg=dict(assigner=assigner, sampler=dict(type='PseudoSampler'), allowed_border=-1, pos_weight=-1),
            )
        head = MODELS.build(Config(cfg)._cfg_dict)
        assert head.cls_out_channels == 6, 'the head has read `use_sigmoid`'
        outputs = head([torch.randn(2, 4, 8, 8), torch.randn(2, 4, 4, 4)])
        boxes = InstanceData(bboxes=torch.tensor([[4.0, 4.0, 36.0, 36.0]]), labels=torch.tensor([3]))
        metas = [dict(img_shape=(64, 64), pad_shape=(64, 64), batch_input_shape=(64, 64))] * 2
        losses = head.loss_by_feat(*outputs, [boxes, boxes], metas)
        loss = sum(losses['loss_cls']) if isinstance(losses['loss_cls'], list) else losses['loss_cls']
        gradients = torch.autograd.grad(loss, outputs[0])
        assert all(gradient.isfinite().all() and gradient.any() for gradient in gradients)

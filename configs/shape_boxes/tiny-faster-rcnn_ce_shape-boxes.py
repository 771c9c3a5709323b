_base_ = ['mmdet::_base_/models/faster-rcnn_r50_fpn.py', 'mmdet::_base_/default_runtime.py']
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets.shape_boxes'], allow_failed_imports=False)

model = dict(
    data_preprocessor=dict(mean=[125.0, 125.0, 125.0], std=[50.0, 50.0, 50.0], bgr_to_rgb=False),
    backbone=dict(depth=18, base_channels=16, frozen_stages=-1, norm_eval=False, init_cfg=None),
    neck=dict(in_channels=[16, 32, 64, 128], out_channels=32),
    rpn_head=dict(in_channels=32, feat_channels=32, anchor_generator=dict(scales=[4])),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=32),
        bbox_head=dict(in_channels=32, fc_out_channels=128, num_classes=5),
    ),
    # 8 images of 64 RoIs: 512 in a batch.
    train_cfg=dict(rpn_proposal=dict(nms_pre=500, max_per_img=200), rcnn=dict(sampler=dict(num=64))),
    test_cfg=dict(rpn=dict(nms_pre=500, max_per_img=200), rcnn=dict(score_thr=0.0)),
)

train_dataloader = dict(
    batch_size=8,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type='ShapeBoxes',
        split='train',
        pipeline=[
            dict(type='LoadAnnotations', with_bbox=True),
            dict(type='RandomFlip', prob=0.5),
            dict(type='PackDetInputs'),
        ],
    ),
)
val_dataloader = dict(
    batch_size=8,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='ShapeBoxes',
        split='val',
        test_mode=True,
        pipeline=[dict(type='LoadAnnotations', with_bbox=True), dict(type='PackDetInputs')],
    ),
)
val_evaluator = dict(type='VOCMetric', metric='mAP', eval_mode='area')
test_dataloader = val_dataloader
test_evaluator = val_evaluator

optim_wrapper = dict(
    optimizer=dict(type='SGD', lr=0.02, momentum=0.9, weight_decay=1e-4), clip_grad=dict(max_norm=10.0)
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=50),
    dict(type='CosineAnnealingLR', by_epoch=True, T_max=12, convert_to_iter_based=True),
]
train_cfg = dict(by_epoch=True, max_epochs=12, val_interval=4)
val_cfg = dict()
test_cfg = dict()
default_hooks = dict(logger=dict(interval=25), checkpoint=dict(interval=12))

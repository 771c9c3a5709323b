_base_ = ['mmdet::_base_/models/retinanet_r50_fpn.py', 'mmdet::_base_/default_runtime.py']
custom_imports = dict(
    imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets.aerial_trees', 'mmseg_nondecomp.backbones'],
    allow_failed_imports=False,
)

norm_cfg = dict(type='GN', num_groups=8)
model = dict(
    data_preprocessor=dict(mean=[127.0, 127.0, 127.0], std=[128.0, 128.0, 128.0], bgr_to_rgb=False, pad_size_divisor=1),
    # Strides 4, 8 and 16. The statistics of small batches are worse than those of ImageNet.
    backbone=dict(
        _delete_=True, type='EfficientNetLite', out_indices=(1, 2, 4), frozen_stages=2, norm_eval=True, pretrained=True
    ),
    neck=dict(
        in_channels=[24, 40, 112], out_channels=48, start_level=0, add_extra_convs=False, num_outs=3, norm_cfg=norm_cfg
    ),
    bbox_head=dict(
        num_classes=1,
        in_channels=48,
        stacked_convs=1,
        feat_channels=48,
        norm_cfg=norm_cfg,
        # Squares with sides of 12, 17, 24, 34, 48 and 68 pixels.
        anchor_generator=dict(octave_base_scale=3, scales_per_octave=2, ratios=[1.0], strides=[4, 8, 16]),
        bbox_coder=dict(target_stds=[0.1, 0.1, 0.2, 0.2]),
        loss_bbox=dict(loss_weight=0.25),
    ),
    # Parts of trees that a border of a tile cuts train nothing.
    train_cfg=dict(assigner=dict(ignore_iof_thr=0.5)),
    test_cfg=dict(score_thr=0.0, max_per_img=200),
)

train_dataloader = dict(
    batch_size=4,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type='AerialTrees',
        split='train',
        pipeline=[
            dict(type='LoadAnnotations', with_bbox=True),
            dict(type='RandomFlip', prob=[0.25, 0.25, 0.25], direction=['horizontal', 'vertical', 'diagonal']),
            dict(type='PackDetInputs'),
        ],
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='AerialTrees',
        split='val',
        test_mode=True,
        pipeline=[dict(type='LoadAnnotations', with_bbox=True), dict(type='PackDetInputs')],
    ),
)
test_dataloader = dict(
    batch_size=1,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='AerialTrees',
        split='test',
        test_mode=True,
        pipeline=[dict(type='LoadAnnotations', with_bbox=True), dict(type='PackDetInputs')],
    ),
)
val_evaluator = dict(type='VOCMetric', metric='mAP', eval_mode='area')
test_evaluator = val_evaluator

optim_wrapper = dict(optimizer=dict(type='AdamW', lr=1e-3, weight_decay=1e-4), clip_grad=dict(max_norm=10.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=20),
    dict(type='CosineAnnealingLR', by_epoch=True, T_max=30, convert_to_iter_based=True),
]
train_cfg = dict(by_epoch=True, max_epochs=30, val_interval=10)
val_cfg = dict()
test_cfg = dict()
default_hooks = dict(logger=dict(interval=8), checkpoint=dict(interval=30))

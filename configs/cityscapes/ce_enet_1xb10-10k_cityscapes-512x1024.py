_base_ = [
    'mmseg::_base_/datasets/cityscapes.py',
    'mmseg::_base_/default_runtime.py',
    'mmseg::_base_/schedules/schedule_160k.py',
]
custom_imports = dict(
    imports=['mmseg_nondecomp', 'mmseg_nondecomp.backbones', 'mmseg_nondecomp.heads'], allow_failed_imports=False
)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(512, 1024),
    ),
    backbone=dict(type='ENet'),
    decode_head=dict(
        type='ENetHead',
        num_classes=19,
        # Mean over the pixels that are not ignored.
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
# Whole images at half their size, and no augmentation.
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='Resize', scale=(1024, 512), keep_ratio=True),
    dict(type='PackSegInputs'),
]
# Labels keep their full size; scores are resized to it.
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(1024, 512), keep_ratio=True),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(batch_size=10, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
optim_wrapper = dict(optimizer=dict(_delete_=True, type='Adam', lr=2.5e-4))
optimizer = dict(_delete_=True, type='Adam', lr=2.5e-4)
param_scheduler = [
    dict(type='PolyLR', eta_min=0.0, power=0.9, begin=0, end=10000, by_epoch=False),
]
train_cfg = dict(max_iters=10000, val_interval=1000)
# All ten checkpoints are kept; the paper reports the best on the validation set.
default_hooks = dict(checkpoint=dict(interval=1000, save_best='mIoU'))

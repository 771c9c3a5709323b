_base_ = 'mmseg::erfnet/erfnet_fcn_4xb4-160k_cityscapes-512x1024.py'
# Mean over the pixels that are not ignored.
model = dict(decode_head=dict(loss_decode=dict(avg_non_ignore=True)))
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

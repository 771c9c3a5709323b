_base_ = './lite0-fpn_lmp_lc.py'
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomCropOnClass', crop_size=(64, 64)),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(sampler=dict(_delete_=True, type='IoUAdaptiveSampler'), dataset=dict(pipeline=train_pipeline))
custom_hooks = [dict(type='TrainIoUHook')]

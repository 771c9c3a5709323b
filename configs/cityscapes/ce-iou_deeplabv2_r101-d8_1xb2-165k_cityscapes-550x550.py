_base_ = './ce_deeplabv2_r101-d8_1xb2-165k_cityscapes-550x550.py'
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomResize', scale=(2048, 1024), ratio_range=(0.5, 1.5), keep_ratio=True),
    dict(type='RandomCropOnClass', crop_size=(550, 550)),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(sampler=dict(_delete_=True, type='IoUAdaptiveSampler'), dataset=dict(pipeline=train_pipeline))
custom_hooks = [dict(type='TrainIoUHook')]

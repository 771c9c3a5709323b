_base_ = [
    '../_base_/models/tiny_unet.py',
    '../_base_/datasets/long_tail_shapes.py',
    '../_base_/schedules/schedule_long_tail_shapes.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets'], allow_failed_imports=False)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomCropOnClass', crop_size=(64, 64)),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(sampler=dict(_delete_=True, type='IoUAdaptiveSampler'), dataset=dict(pipeline=train_pipeline))
custom_hooks = [dict(type='TrainIoUHook')]

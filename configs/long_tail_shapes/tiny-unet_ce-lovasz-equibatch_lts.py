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
train_dataloader = dict(sampler=dict(_delete_=True, type='EquiBatchSampler'), dataset=dict(pipeline=train_pipeline))
model = dict(
    decode_head=dict(
        loss_decode=[
            dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
            dict(type='LovaszSoftmaxLoss', loss_weight=3.0),
        ]
    )
)

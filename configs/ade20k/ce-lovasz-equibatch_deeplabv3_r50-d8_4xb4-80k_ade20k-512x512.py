_base_ = './ce-lovasz_deeplabv3_r50-d8_4xb4-80k_ade20k-512x512.py'
custom_imports = dict(imports=['mmseg_nondecomp'], allow_failed_imports=False)
# The stock pipeline with a crop that contains the sampled class.
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='RandomResize', scale=(2048, 512), ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type='RandomCropOnClass', crop_size=(512, 512), cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(sampler=dict(_delete_=True, type='EquiBatchSampler'), dataset=dict(pipeline=train_pipeline))

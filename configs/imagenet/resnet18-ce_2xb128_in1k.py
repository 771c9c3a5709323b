_base_ = [
    'mmpretrain::_base_/models/resnet18.py',
    'mmpretrain::_base_/datasets/imagenet_bs32.py',
    'mmpretrain::_base_/schedules/imagenet_bs256.py',
    'mmpretrain::_base_/default_runtime.py',
]
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets'], allow_failed_imports=False)

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=256, edge='short'),
    dict(type='RandomCrop', crop_size=224),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
imagenet = dict(type='ImageNet', data_root='data/imagenet', split='train')
train_dataloader = dict(
    batch_size=128,
    dataset=dict(
        _delete_=True,
        type='RandomSubset',
        skip_per_class=50,
        dataset=dict(pipeline=train_pipeline, **imagenet),
    ),
)
# The 50 000 training images for the selection of the epoch.
val_dataloader = dict(
    batch_size=128,
    dataset=dict(
        _delete_=True,
        type='RandomSubset',
        images_per_class=50,
        dataset=dict(pipeline=_base_.test_pipeline, **imagenet),
    ),
)
# The official validation set.
test_dataloader = dict(batch_size=128)

optim_wrapper = dict(optimizer=dict(nesterov=True))
train_cfg = dict(max_epochs=120)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1, save_best='accuracy/top5', rule='greater'))

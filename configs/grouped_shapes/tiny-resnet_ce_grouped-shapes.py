_base_ = ['mmpretrain::_base_/default_runtime.py']
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets'], allow_failed_imports=False)

data_preprocessor = dict(num_classes=100, mean=[118.0, 118.0, 118.0], std=[54.0, 54.0, 54.0], to_rgb=False)
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='ResNet_CIFAR',
        depth=18,
        stem_channels=16,
        base_channels=16,
        num_stages=3,
        strides=(2, 2, 2),
        dilations=(1, 1, 1),
        out_indices=(2,),
        style='pytorch',
    ),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(type='LinearClsHead', num_classes=100, in_channels=64, topk=(1, 5), loss=dict(type='CrossEntropyLoss')),
)

# Few enough images to memorise noisy labels. With probability `noise` a label is replaced by a random one of its
# group of five. No flips: they change the class.
groups = [list(range(first, first + 5)) for first in range(0, 100, 5)]
train_dataloader = dict(
    batch_size=50,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type='GroupedShapes',
        split='train',
        images_per_class=15,
        pipeline=[dict(type='GroupLabelNoise', noise=0.6, groups=groups), dict(type='PackInputs')],
    ),
)
val_dataloader = dict(
    batch_size=100,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='GroupedShapes', split='val', pipeline=[dict(type='PackInputs')]),
)
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_dataloader = val_dataloader
test_evaluator = val_evaluator

optim_wrapper = dict(optimizer=dict(type='Adam', lr=3e-3))
param_scheduler = dict(type='CosineAnnealingLR', by_epoch=True, T_max=40, convert_to_iter_based=True)
train_cfg = dict(by_epoch=True, max_epochs=40, val_interval=10)
val_cfg = dict()
test_cfg = dict()
default_hooks = dict(logger=dict(interval=30), checkpoint=dict(interval=40))

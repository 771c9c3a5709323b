_base_ = ['mmpretrain::_base_/default_runtime.py']
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets'], allow_failed_imports=False)

data_preprocessor = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True)
model = dict(
    type='ImageClassifier',
    backbone=dict(type='AlexNet', num_classes=10),
    head=dict(type='MultiLabelClsHead', loss=dict(type='CrossEntropyLoss', use_sigmoid=True)),
    # MMPretrain has no weights of AlexNet: these are torchvision's, except for the last layer. The backbone accepts no
    # `init_cfg`, so it is set on the model.
    init_cfg=dict(
        type='Normal',
        layer='Linear',
        std=0.01,
        override=dict(
            type='Pretrained',
            name='backbone',
            checkpoint='https://download.pytorch.org/models/alexnet-owt-7be5be79.pth',
        ),
    ),
)

# R-CNN's crops: 16 of the 227 pixels at each edge are outside the box; outside the image they have the mean colour.
pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='CropBox', context=227 / 195, pad_value=(104, 116, 124)),
    dict(type='Resize', scale=(227, 227)),
    dict(type='PackInputs'),
]
actions = dict(type='VOCActions', data_root='data/VOCdevkit/VOC2012', seed=0, pipeline=pipeline)
# The whole third of "trainval" in each batch. Its images share one tensor: separate tensors are separate open files.
train_dataloader = dict(
    batch_size=2093,
    num_workers=4,
    prefetch_factor=1,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(split='train', **actions),
)
val_dataloader = dict(
    batch_size=128,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(split='val', **actions),
)
test_dataloader = dict(
    batch_size=128,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(split='test', **actions),
)
# The mean over the actions, and the value of each.
val_evaluator = [dict(type='AveragePrecision'), dict(type='AveragePrecision', average=None)]
test_evaluator = val_evaluator

optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.01, momentum=0.9, weight_decay=0.0005))
train_cfg = dict(type='IterBasedTrainLoop', max_iters=300, val_interval=50)
val_cfg = dict()
test_cfg = dict()
default_hooks = dict(
    logger=dict(interval=10),
    checkpoint=dict(by_epoch=False, interval=50, max_keep_ckpts=1, save_best='multi-label/mAP', rule='greater'),
)
log_processor = dict(by_epoch=False)

_base_ = [
    'mmpretrain::_base_/models/resnet18_cifar.py',
    'mmpretrain::_base_/datasets/cifar100_bs16.py',
    'mmpretrain::_base_/schedules/cifar10_bs128.py',
    'mmpretrain::_base_/default_runtime.py',
]
custom_imports = dict(
    imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets', 'mmseg_nondecomp.backbones'], allow_failed_imports=False
)
model = dict(
    backbone=dict(_delete_=True, type='DenseNet40', growth_rate=40),
    head=dict(num_classes=100, in_channels=1456, topk=(1, 5)),
)

cifar100 = dict(type='CIFAR100', data_root='data/cifar100', split='train')
# With probability `noise` (0, 0.2, ... 1 in the paper) a label is replaced by a random one of its coarse class.
train_dataloader = dict(
    batch_size=64,
    dataset=dict(
        _delete_=True,
        type='RandomSubset',
        skip_per_class=50,
        dataset=dict(
            pipeline=[dict(type='GroupLabelNoise', noise=0.0, groups='cifar100'), *_base_.train_pipeline],
            **cifar100,
        ),
    ),
)
# The 5000 images for the selection of the epoch; their labels are clean.
val_dataloader = dict(
    batch_size=64,
    dataset=dict(
        _delete_=True,
        type='RandomSubset',
        images_per_class=50,
        dataset=dict(pipeline=_base_.test_pipeline, **cifar100),
    ),
)
val_evaluator = dict(topk=(1, 5))
test_dataloader = dict(batch_size=64)
test_evaluator = val_evaluator

optim_wrapper = dict(optimizer=dict(nesterov=True))
param_scheduler = dict(milestones=[150, 225])
train_cfg = dict(max_epochs=300)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1, save_best='accuracy/top5', rule='greater'))

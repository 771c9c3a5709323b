_base_ = [
    'mmpretrain::_base_/models/resnet18.py',
    'mmpretrain::_base_/datasets/imagenet_bs32.py',
    'mmpretrain::_base_/schedules/imagenet_bs256.py',
    'mmpretrain::_base_/default_runtime.py',
]
custom_imports = dict(
    imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets', 'mmseg_nondecomp.heads'], allow_failed_imports=False
)
# Predictions are the probabilities of the labels to be in the top 5. With k * tau = 1 the weight of a set of labels is
# the product of their exp(s), as in cross-entropy's model.
model = dict(head=dict(type='TopKClsHead', k=5, tau=0.2))

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

# Ten crops (tools/test.py --tta): the four corners and the centre, each with its mirror image. The probabilities are
# averaged.
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=256, edge='short'),
    dict(
        type='TestTimeAug',
        transforms=[
            [
                dict(type='CornerCrop', crop_size=224, corner='top-left'),
                dict(type='CornerCrop', crop_size=224, corner='top-right'),
                dict(type='CornerCrop', crop_size=224, corner='bottom-left'),
                dict(type='CornerCrop', crop_size=224, corner='bottom-right'),
                dict(type='CenterCrop', crop_size=224),
            ],
            [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)],
            [dict(type='PackInputs')],
        ],
    ),
]
tta_model = dict(type='AverageClsScoreTTA')

optim_wrapper = dict(optimizer=dict(nesterov=True))
train_cfg = dict(max_epochs=120)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1, save_best='accuracy/top5', rule='greater'))

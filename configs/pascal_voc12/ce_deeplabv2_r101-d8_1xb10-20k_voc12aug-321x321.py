_base_ = 'mmseg::deeplabv3/deeplabv3_r101-d8_4xb4-20k_voc12aug-512x512.py'
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.heads'], allow_failed_imports=False)
crop_size = (321, 321)
data_preprocessor = dict(size=crop_size)
model = dict(
    data_preprocessor=data_preprocessor,
    decode_head=dict(
        _delete_=True,
        type='DeepLabV2Head',
        in_channels=2048,
        in_index=3,
        num_classes=21,
        # Mean over the pixels that are not ignored.
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True),
    ),
    # DeepLab has no auxiliary head; the stock model does.
    auxiliary_head=None,
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    # A factor from 0.5 to 1.5: the longer side of an image in this data set has 500 pixels.
    dict(type='RandomResize', scale=(500, 500), ratio_range=(0.5, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs'),
]
# Evaluation on whole images at their own size.
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
# The paper's multi-scale evaluation (tools/test.py --tta): the mean of the probabilities at three scales.
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [dict(type='Resize', scale_factor=factor, keep_ratio=True) for factor in (1.0, 0.75, 0.5)],
            [dict(type='LoadAnnotations')],
            [dict(type='PackSegInputs')],
        ],
    ),
]
dataset_train = dict(
    type='PascalVOCDataset',
    data_root='data/VOCdevkit/VOC2012',
    data_prefix=dict(img_path='JPEGImages', seg_map_path='SegmentationClass'),
    ann_file='ImageSets/Segmentation/train.txt',
    pipeline=train_pipeline,
)
dataset_aug = dict(
    type='PascalVOCDataset',
    data_root='data/VOCdevkit/VOC2012',
    data_prefix=dict(img_path='JPEGImages', seg_map_path='SegmentationClassAug'),
    ann_file='ImageSets/Segmentation/aug.txt',
    pipeline=train_pipeline,
)
train_dataloader = dict(batch_size=10, dataset=dict(datasets=[dataset_train, dataset_aug]))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
optimizer = dict(type='SGD', lr=2.5e-4, momentum=0.9, weight_decay=0.0005)
optim_wrapper = dict(optimizer=optimizer)
param_scheduler = [
    dict(type='PolyLR', eta_min=0.0, power=0.9, begin=0, end=20000, by_epoch=False),
]
train_cfg = dict(max_iters=20000, val_interval=2000)
# The result is the checkpoint of the last iteration.
default_hooks = dict(checkpoint=dict(interval=2000, max_keep_ckpts=1))

_base_ = './ce_deeplabv2_r101-d8_1xb4-200k_voc12aug-321x321.py'
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    # A factor from 0.5 to 1.5: the longer side of an image in this data set has 500 pixels.
    dict(type='RandomResize', scale=(500, 500), ratio_range=(0.5, 1.5), keep_ratio=True),
    dict(type='RandomCropOnClass', crop_size=(321, 321)),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs'),
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
train_dataloader = dict(
    sampler=dict(_delete_=True, type='IoUAdaptiveSampler'),
    dataset=dict(datasets=[dataset_train, dataset_aug]),
)
custom_hooks = [dict(type='TrainIoUHook')]

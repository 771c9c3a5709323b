_base_ = './ce_deeplabv2_r101-d8_1xb10-20k_voc12aug-321x321.py'
# One class against the rest. The script in the README creates its masks and image lists.
target = '{{$VOC_CLASS:bicycle}}'
model = dict(
    decode_head=dict(
        num_classes=2,
        # One score per pixel. A sigmoid of 0.5 is a score of 0, where the sign changes.
        out_channels=1,
        threshold=0.5,
        loss_decode=dict(use_sigmoid=True),
    ),
)
# A data set without classes, so that labels are read unchanged: 0, 1 and 255.
dataset_type = 'BaseSegDataset'
metainfo = dict(classes=('rest', target), palette=[[0, 0, 0], [192, 0, 0]])
data_prefix = dict(img_path='JPEGImages', seg_map_path=f'OneAgainstRest/{target}')
train_dataloader = dict(
    # An epoch is one pass through the list.
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        _delete_=True,
        type=dataset_type,
        metainfo=metainfo,
        data_root='data/VOCdevkit/VOC2012',
        data_prefix=data_prefix,
        ann_file=f'OneAgainstRest/{target}/train.txt',
        pipeline={{_base_.train_pipeline}},
    ),
)
val_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        metainfo=metainfo,
        data_prefix=data_prefix,
        ann_file=f'OneAgainstRest/{target}/val.txt',
    ),
)
test_dataloader = val_dataloader
# The paper's image IoU is `IoU.image`, from 0 to 1: the index of the class in each image, 1 where the class is neither
# true nor predicted, then the mean over the images.
iou = dict(type='JaccardIndexByImage', num_classes=1, ignore_index=255, zero_division=1)
val_evaluator = dict(_delete_=True, type='TorchMetricsEvaluator', metrics=dict(IoU=iou))
test_evaluator = val_evaluator
optimizer = dict(lr=5e-4)
optim_wrapper = dict(optimizer=optimizer)
# 1e-4 in the second epoch.
param_scheduler = [dict(type='MultiStepLR', milestones=[1], gamma=0.2, by_epoch=True)]
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=2, val_interval=1)
default_hooks = dict(
    logger=dict(log_metric_by_epoch=True),
    checkpoint=dict(by_epoch=True, interval=1),
)
log_processor = dict(by_epoch=True)

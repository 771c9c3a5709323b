_base_ = 'mmseg::deeplabv3/deeplabv3_r101-d8_4xb2-80k_cityscapes-512x1024.py'
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.heads'], allow_failed_imports=False)
crop_size = (550, 550)
data_preprocessor = dict(size=crop_size)
model = dict(
    # Five tiles of full height that overlap by 200 pixels; each overlap is cut in the middle.
    type='TiledSegmentor',
    segmentor='EncoderDecoder',
    test_cfg=dict(mode='slide', crop_size=(1024, 570), stride=(1024, 370)),
    data_preprocessor=data_preprocessor,
    decode_head=dict(
        _delete_=True,
        type='DeepLabV2Head',
        in_channels=2048,
        in_index=3,
        num_classes=19,
        # Mean over the pixels that are not ignored: loss max-pooling with p=inf and scope='batch'.
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True),
    ),
    # DeepLab has no auxiliary head; the stock model does.
    auxiliary_head=None,
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomResize', scale=(2048, 1024), ratio_range=(0.5, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(batch_size=2, dataset=dict(pipeline=train_pipeline))
optimizer = dict(type='SGD', lr=2.5e-4, momentum=0.9, weight_decay=0.0005)
optim_wrapper = dict(optimizer=optimizer)
param_scheduler = [
    dict(type='PolyLR', eta_min=0.0, power=0.9, begin=0, end=165000, by_epoch=False),
]
train_cfg = dict(max_iters=165000, val_interval=5000)
# The paper averages over the weights after 150k, 160k and 165k iterations.
default_hooks = dict(checkpoint=dict(interval=5000, max_keep_ckpts=4))

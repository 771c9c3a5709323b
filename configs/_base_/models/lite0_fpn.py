# EfficientNet-Lite0 with weights of ImageNet and a feature pyramid of 64 channels: 3.2 million parameters.
# Used with mmseg_nondecomp.backbones in the custom_imports of the leaf config.
norm_cfg = dict(type='BN', requires_grad=True)
data_preprocessor = dict(
    type='SegDataPreProcessor',
    mean=[127.0, 127.0, 127.0],
    std=[128.0, 128.0, 128.0],
    bgr_to_rgb=True,
    pad_val=0,
    seg_pad_val=255,
    size=(64, 64),
)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=data_preprocessor,
    backbone=dict(type='EfficientNetLite', out_indices=(1, 2, 4, 6), norm_eval=True, pretrained=True),
    neck=dict(type='FPN', in_channels=[24, 40, 112, 320], out_channels=64, num_outs=4),
    decode_head=dict(
        type='FPNHead',
        in_channels=[64, 64, 64, 64],
        in_index=[0, 1, 2, 3],
        feature_strides=[4, 8, 16, 32],
        channels=64,
        dropout_ratio=0.1,
        num_classes=17,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)

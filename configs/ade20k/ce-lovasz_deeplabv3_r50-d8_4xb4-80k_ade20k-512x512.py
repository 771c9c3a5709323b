_base_ = 'mmseg::deeplabv3/deeplabv3_r50-d8_4xb4-80k_ade20k-512x512.py'
custom_imports = dict(imports=['mmseg_nondecomp'], allow_failed_imports=False)
model = dict(
    decode_head=dict(
        loss_decode=[
            # As in the base config.
            dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
            # One set for all processes: 16 crops on 4 GPUs, for 150 classes.
            dict(type='LovaszSoftmaxLoss', classes='present', scope='world', loss_weight=3.0),
        ],
    ),
)

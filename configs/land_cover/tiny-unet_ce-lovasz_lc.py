_base_ = './tiny-unet_ce_lc.py'
model = dict(
    decode_head=dict(
        loss_decode=[
            dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
            dict(type='LovaszSoftmaxLoss', loss_weight=3.0),
        ]
    )
)

_base_ = './lite0-fpn_ce_lc.py'
model = dict(
    decode_head=dict(
        loss_decode=[
            dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
            dict(type='SoftIoULoss', alpha=0.5, beta=0.5, loss_weight=1.0, loss_name='loss_dice'),
        ]
    )
)

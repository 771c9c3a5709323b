_base_ = [
    '../_base_/models/tiny_unet.py',
    '../_base_/datasets/long_tail_shapes.py',
    '../_base_/schedules/schedule_long_tail_shapes.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets'], allow_failed_imports=False)
model = dict(
    decode_head=dict(
        loss_decode=[
            dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
            dict(type='SoftIoULoss', alpha=0.5, beta=0.5, loss_weight=1.0, loss_name='loss_dice'),
        ]
    )
)

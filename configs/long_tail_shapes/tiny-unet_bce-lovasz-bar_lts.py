_base_ = [
    '../_base_/models/tiny_unet.py',
    '../_base_/datasets/long_tail_shapes_bar.py',
    '../_base_/schedules/schedule_long_tail_shapes.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets'], allow_failed_imports=False)
model = dict(
    decode_head=dict(
        num_classes=2,
        out_channels=1,
        threshold=0.5,
        loss_decode=[
            dict(type='CrossEntropyLoss', use_sigmoid=True),
            dict(type='LovaszSoftmaxLoss', loss_weight=3.0),
        ],
    )
)

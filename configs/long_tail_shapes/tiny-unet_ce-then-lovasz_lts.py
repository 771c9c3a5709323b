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
            dict(type='LovaszSoftmaxLoss', loss_weight=0.0),
        ]
    )
)
# Cross-entropy for the first half of the training, the Lovász loss for the second.
custom_hooks = [
    dict(
        type='LossWeightHook',
        weights=dict(loss_ce=[(0, 1.0), (0.5, 0.0)], loss_lovasz=[(0, 0.0), (0.5, 1.0)]),
    )
]

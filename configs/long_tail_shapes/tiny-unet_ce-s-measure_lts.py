_base_ = [
    '../_base_/models/tiny_unet.py',
    '../_base_/datasets/long_tail_shapes.py',
    '../_base_/schedules/schedule_long_tail_shapes.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(
    imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets', 'mmseg_nondecomp.heads'], allow_failed_imports=False
)
# Decision from the coarsest features whether the objects in a crop are large.
model = dict(
    auxiliary_head=dict(
        type='SMeasureHead',
        in_channels=64,
        in_index=0,
        num_classes=16,
        group='majority',
        size_threshold=0.05,
        loss_decode=dict(type='SMeasureLoss', measure='f_beta', loss_weight=0.1),
    )
)
custom_hooks = [dict(type='DualAscentHook')]

_base_ = [
    '../_base_/models/tiny_unet.py',
    '../_base_/datasets/long_tail_shapes.py',
    '../_base_/schedules/schedule_long_tail_shapes.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets'], allow_failed_imports=False)
model = dict(decode_head=dict(loss_decode=dict(_delete_=True, type='LossMaxPooling', p=1.3, ratio=0.25)))
# For learning rates at which training from scratch may fail: see README.md.
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, begin=0, end=100, by_epoch=False),
    dict(type='PolyLR', eta_min=0.0, power=0.9, begin=100, end=500, by_epoch=False),
]

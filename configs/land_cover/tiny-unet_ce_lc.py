_base_ = [
    '../_base_/models/tiny_unet.py',
    '../_base_/datasets/land_cover.py',
    '../_base_/schedules/schedule_land_cover.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets'], allow_failed_imports=False)
model = dict(decode_head=dict(num_classes=17))

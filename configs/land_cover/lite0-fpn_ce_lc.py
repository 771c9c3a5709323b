_base_ = [
    '../_base_/models/lite0_fpn.py',
    '../_base_/datasets/land_cover.py',
    '../_base_/schedules/schedule_land_cover_sgd.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(
    imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets', 'mmseg_nondecomp.backbones'], allow_failed_imports=False
)

_base_ = './lite0-retinanet_focal_aerial-trees.py'
custom_imports = dict(
    imports=[
        'mmseg_nondecomp',
        'mmseg_nondecomp.datasets.aerial_trees',
        'mmseg_nondecomp.backbones',
        'mmseg_nondecomp.heads',
    ],
    allow_failed_imports=False,
)
model = dict(
    bbox_head=dict(type='AllLevelsRetinaHead', loss_cls=dict(_delete_=True, type='DirectAPLoss', use_sigmoid=True))
)

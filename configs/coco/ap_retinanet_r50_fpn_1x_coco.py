_base_ = ['mmdet::retinanet/retinanet_r50_fpn_1x_coco.py']
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.heads'], allow_failed_imports=False)
model = dict(
    bbox_head=dict(
        type='AllLevelsRetinaHead',
        loss_cls=dict(_delete_=True, type='DirectAPLoss', use_sigmoid=True, epsilon=0.1),
    ),
    test_cfg=dict(score_thr=0.0),
)

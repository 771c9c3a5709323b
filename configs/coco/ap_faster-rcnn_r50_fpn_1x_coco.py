_base_ = ['mmdet::faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py']
custom_imports = dict(imports=['mmseg_nondecomp'], allow_failed_imports=False)
model = dict(
    roi_head=dict(bbox_head=dict(loss_cls=dict(_delete_=True, type='DirectAPLoss', use_sigmoid=True, epsilon=0.1))),
    test_cfg=dict(rcnn=dict(score_thr=0.0)),
)

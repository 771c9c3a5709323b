_base_ = './ce_faster-rcnn_r50_fpn_1x_voc0712.py'
custom_imports = dict(imports=['mmseg_nondecomp'], allow_failed_imports=False)
model = dict(
    roi_head=dict(bbox_head=dict(loss_cls=dict(_delete_=True, type='DirectAPLoss', use_sigmoid=True, epsilon=0.1))),
    # 2 images of 256 RoIs: a ranking of 512 boxes, as in the paper.
    train_cfg=dict(rcnn=dict(sampler=dict(num=256))),
    test_cfg=dict(rcnn=dict(score_thr=0.0)),
)

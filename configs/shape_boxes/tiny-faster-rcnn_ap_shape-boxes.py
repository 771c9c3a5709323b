_base_ = './tiny-faster-rcnn_ce_shape-boxes.py'
model = dict(roi_head=dict(bbox_head=dict(loss_cls=dict(_delete_=True, type='DirectAPLoss', use_sigmoid=True))))

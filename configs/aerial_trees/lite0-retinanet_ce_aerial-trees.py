_base_ = './lite0-retinanet_focal_aerial-trees.py'
model = dict(bbox_head=dict(loss_cls=dict(_delete_=True, type='CrossEntropyLoss', use_sigmoid=True)))

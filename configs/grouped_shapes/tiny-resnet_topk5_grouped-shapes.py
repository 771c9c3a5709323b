_base_ = './tiny-resnet_ce_grouped-shapes.py'
model = dict(head=dict(loss=dict(_delete_=True, type='SmoothTopKLoss', k=5, tau=0.1)))

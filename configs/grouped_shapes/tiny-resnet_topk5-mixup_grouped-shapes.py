_base_ = './tiny-resnet_topk5_grouped-shapes.py'
model = dict(train_cfg=dict(augments=dict(type='Mixup', alpha=0.2)))

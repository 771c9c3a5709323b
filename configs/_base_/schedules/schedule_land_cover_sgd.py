# For fine-tuning.
_base_ = './schedule_land_cover.py'
optimizer = dict(_delete_=True, type='SGD', lr=0.01, momentum=0.9, weight_decay=0.0005)
optim_wrapper = dict(optimizer=optimizer)
param_scheduler = [
    dict(type='PolyLR', eta_min=0.0, power=0.9, begin=0, end=80, by_epoch=False),
]
train_cfg = dict(max_iters=80, val_interval=80)
default_hooks = dict(checkpoint=dict(interval=80))

_base_ = './ce_deeplabv2_r101-d8_1xb10-20k_voc12aug-321x321.py'
param_scheduler = [
    dict(type='PolyLR', eta_min=0.0, power=0.9, begin=0, end=30000, by_epoch=False),
]
train_cfg = dict(max_iters=30000)

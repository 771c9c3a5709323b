_base_ = './ce_enet_1xb10-10k_cityscapes-512x1024.py'
model = dict(
    decode_head=dict(loss_decode=dict(_delete_=True, type='LovaszSoftmaxLoss', classes='present', scope='batch')),
)

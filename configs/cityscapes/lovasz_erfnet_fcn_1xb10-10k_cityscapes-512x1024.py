_base_ = './ce_erfnet_fcn_1xb10-10k_cityscapes-512x1024.py'
custom_imports = dict(imports=['mmseg_nondecomp'], allow_failed_imports=False)
model = dict(
    decode_head=dict(loss_decode=dict(_delete_=True, type='LovaszSoftmaxLoss', classes='present', scope='batch')),
)

_base_ = './ce_deeplabv2_r101-d8_1xb10-30k_voc12aug-321x321.py'
model = dict(
    decode_head=dict(loss_decode=dict(_delete_=True, type='LovaszSoftmaxLoss', classes='present', scope='batch')),
)

_base_ = './ce_deeplabv2_r101-d8_1xb10-2e_voc12aug-binary-321x321.py'
model = dict(decode_head=dict(loss_decode=dict(_delete_=True, type='LovaszHingeLoss', scope='image')))

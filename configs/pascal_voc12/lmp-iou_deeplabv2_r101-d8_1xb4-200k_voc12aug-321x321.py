_base_ = './ce-iou_deeplabv2_r101-d8_1xb4-200k_voc12aug-321x321.py'
model = dict(decode_head=dict(loss_decode=dict(_delete_=True, type='LossMaxPooling', p=1.3, ratio=0.25)))

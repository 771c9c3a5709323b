_base_ = './ce-iou_deeplabv3_r101-d8_1xb2-165k_cityscapes-550x550.py'
custom_imports = dict(imports=['mmseg_nondecomp'], allow_failed_imports=False)
model = dict(decode_head=dict(loss_decode=dict(_delete_=True, type='LossMaxPooling', p=1.3, ratio=0.25)))

_base_ = './ce_deeplabv2_r101-d8_1xb2-165k_cityscapes-550x550.py'
model = dict(decode_head=dict(loss_decode=dict(_delete_=True, type='LossMaxPooling', p=1.3, ratio=0.25)))

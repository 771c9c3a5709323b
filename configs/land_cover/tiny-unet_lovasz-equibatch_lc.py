_base_ = './tiny-unet_ce-equibatch_lc.py'
model = dict(decode_head=dict(loss_decode=dict(_delete_=True, type='LovaszSoftmaxLoss')))

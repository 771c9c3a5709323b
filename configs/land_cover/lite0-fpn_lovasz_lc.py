_base_ = './lite0-fpn_ce_lc.py'
model = dict(decode_head=dict(loss_decode=dict(_delete_=True, type='LovaszSoftmaxLoss')))

_base_ = './tiny-unet_ce_lts.py'
model = dict(decode_head=dict(loss_decode=dict(_delete_=True, type='MetricLoss', measure='miou')))

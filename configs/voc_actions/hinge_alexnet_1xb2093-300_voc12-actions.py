_base_ = './ce_alexnet_1xb2093-300_voc12-actions.py'
model = dict(head=dict(loss=dict(_delete_=True, type='DirectZeroOneLoss', update='hinge')))

_base_ = './resnet18-ce_2xb128_in1k.py'
# The head takes k and tau from the loss.
model = dict(head=dict(k=None, tau=None, loss=dict(_delete_=True, type='SmoothTopKLoss', k=5, tau=0.1)))
optim_wrapper = dict(optimizer=dict(lr=1.0, weight_decay=0.000025))

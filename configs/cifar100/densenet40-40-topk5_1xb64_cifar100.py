_base_ = './densenet40-40-ce_1xb64_cifar100.py'
model = dict(head=dict(loss=dict(_delete_=True, type='SmoothTopKLoss', k=5, tau=1.0)))

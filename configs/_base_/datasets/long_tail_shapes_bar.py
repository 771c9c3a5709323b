# The class 'bar' (0.4 % of the pixels), one-vs-rest.
_base_ = './long_tail_shapes.py'
metainfo = dict(classes=('rest', 'bar'), palette=[[40, 40, 40], [255, 240, 90]])
train_dataloader = dict(dataset=dict(metainfo=metainfo))
val_dataloader = dict(dataset=dict(metainfo=metainfo))
test_dataloader = val_dataloader

_base_ = './resnet18-ce_2xb128_in1k.py'
train_dataloader = dict(dataset=dict(images_per_class=320))

# Weighted cross-entropy: a class weighs 1 / ln(1.02 + p), where p is its share of the pixels that are not ignored. The
# hook computes the weights from the training set.
# A. Paszke, A. Chaurasia, S. Kim, E. Culurciello: ENet: A deep neural network architecture for real-time semantic
# segmentation. 2016. https://arxiv.org/abs/1606.02147
_base_ = './ce_enet_1xb10-10k_cityscapes-512x1024.py'
# With reduction='none' the model computes the mean over all pixels. With 'mean' the stock loss divides by the sum of
# the pixels' class weights, and fails on the ignored label 255, which has no weight.
model = dict(decode_head=dict(loss_decode=dict(reduction='none')))
custom_hooks = [dict(type='ClassWeightHook', weighting='enet')]

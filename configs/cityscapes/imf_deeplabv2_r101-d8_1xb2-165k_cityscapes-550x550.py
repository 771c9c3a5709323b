# Median frequency balancing: a class weighs median(f) / f, where f is its share of the pixels that are not ignored in
# those training images in which it occurs. The hook computes the weights from the training set.
# D. Eigen, R. Fergus: Predicting depth, surface normals and semantic labels with a common multi-scale convolutional
# architecture. ICCV 2015. https://arxiv.org/abs/1411.4734
_base_ = './ce_deeplabv2_r101-d8_1xb2-165k_cityscapes-550x550.py'
# With reduction='none' the model computes the mean over all pixels. With 'mean' the stock loss divides by the sum of
# the pixels' class weights, and fails on the ignored label 255, which has no weight.
model = dict(decode_head=dict(loss_decode=dict(reduction='none')))
custom_hooks = [dict(type='ClassWeightHook', weighting='median_frequency')]

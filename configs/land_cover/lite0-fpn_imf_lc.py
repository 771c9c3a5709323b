# Median frequency balancing: a class weighs median(f) / f, where f is its share of the pixels that are not ignored in
# those training tiles in which it occurs. tests/test_configs.py recomputes the weights.
# D. Eigen, R. Fergus: Predicting depth, surface normals and semantic labels with a common multi-scale convolutional
# architecture. ICCV 2015. https://arxiv.org/abs/1411.4734
_base_ = './lite0-fpn_ce_lc.py'
# fmt: off
class_weight = [
    0.216, 2.13, 0.907, 6.12, 2.58, 1.28, 6.4, 0.641, 0.774, 0.612, 0.431, 8.24, 0.61, 15.0, 5.94, 1.0, 0.446,
]
# fmt: on
# With reduction='none' the model computes the mean over all pixels, as for plain cross-entropy. With 'mean' the stock
# loss divides by the sum of the pixels' class weights, and fails on the ignored label 255, which has no weight.
model = dict(decode_head=dict(loss_decode=dict(reduction='none', class_weight=class_weight)))

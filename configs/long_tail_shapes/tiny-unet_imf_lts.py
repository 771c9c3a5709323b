# Median frequency balancing: a class weighs median(f) / f, where f is its share of the pixels that are not ignored in
# those training images in which it occurs. tests/test_configs.py recomputes the weights.
# D. Eigen, R. Fergus: Predicting depth, surface normals and semantic labels with a common multi-scale convolutional
# architecture. ICCV 2015. https://arxiv.org/abs/1411.4734
_base_ = [
    '../_base_/models/tiny_unet.py',
    '../_base_/datasets/long_tail_shapes.py',
    '../_base_/schedules/schedule_long_tail_shapes.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.datasets'], allow_failed_imports=False)
class_weight = [0.051, 0.073, 0.081, 0.087, 0.338, 0.48, 0.761, 0.956, 1.05, 1.76, 2.63, 2.29, 3.6, 4.23, 15.2, 16.0]
# With reduction='none' the model computes the mean over all pixels, as for plain cross-entropy. With 'mean' the stock
# loss divides by the sum of the pixels' class weights, and fails on the ignored label 255, which has no weight.
model = dict(decode_head=dict(loss_decode=dict(reduction='none', class_weight=class_weight)))

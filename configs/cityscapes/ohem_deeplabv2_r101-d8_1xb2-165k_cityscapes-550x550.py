# Online bootstrapping: the quarter of the pixels with the highest losses, with equal weights.
# Z. Wu, C. Shen, A. van den Hengel: High-performance semantic segmentation using very deep fully convolutional
# networks. 2016. https://arxiv.org/abs/1604.04339
_base_ = './ce_deeplabv2_r101-d8_1xb2-165k_cityscapes-550x550.py'
model = dict(
    decode_head=dict(
        # min_kept is per image, chosen from the whole batch; a crop has 550 x 550 pixels.
        sampler=dict(type='OHEMPixelSampler', thresh=None, min_kept=75625),
        # The stock loss divides the sum over kept pixels by the number of all pixels; this weight gives their mean.
        loss_decode=dict(avg_non_ignore=False, loss_weight=4.0),
    )
)

# Online bootstrapping: the quarter of the pixels with the highest losses, with equal weights.
# Z. Wu, C. Shen, A. van den Hengel: High-performance semantic segmentation using very deep fully convolutional
# networks. 2016. https://arxiv.org/abs/1604.04339
_base_ = './tiny-unet_ce_lc.py'
model = dict(
    decode_head=dict(
        # min_kept is per image, chosen from the whole batch; a crop has 64 x 64 pixels.
        sampler=dict(type='OHEMPixelSampler', thresh=None, min_kept=1024),
        # The stock loss divides the sum over kept pixels by the number of all pixels; a weight of 4 gives their mean.
        loss_decode=dict(loss_weight=4.0),
    )
)

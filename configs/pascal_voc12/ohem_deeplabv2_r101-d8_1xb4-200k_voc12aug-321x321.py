# Online bootstrapping: the quarter of the pixels with the highest losses, with equal weights.
# Z. Wu, C. Shen, A. van den Hengel: High-performance semantic segmentation using very deep fully convolutional
# networks. 2016. https://arxiv.org/abs/1604.04339
_base_ = './ce_deeplabv2_r101-d8_1xb4-200k_voc12aug-321x321.py'
model = dict(
    decode_head=dict(
        # min_kept is per image, chosen from the whole batch; a crop has 321 x 321 pixels.
        sampler=dict(type='OHEMPixelSampler', thresh=None, min_kept=25760),
        # The stock loss divides the sum over kept pixels by the number of all pixels; this weight gives their mean.
        loss_decode=dict(avg_non_ignore=False, loss_weight=321 * 321 / 25760),
    )
)
